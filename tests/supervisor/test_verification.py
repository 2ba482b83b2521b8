"""Verification of the patched script against the original, with fake processes that report given window lengths."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.core import plan_file
from pipetune.core.edits import Plan
from pipetune.core.results import Outcome
from pipetune.core.session import PatchResult, Session
from pipetune.supervisor.analysis import analyze
from pipetune.supervisor.request import AnalysisResult
from pipetune.supervisor.verification import fit_in_memory_together
from tests.core.sessions import ALONE, BOTH, MACHINE, PARALLEL, SPLIT, WINDOW, session
from tests.report.reading import summary_text
from tests.supervisor.test_analysis import SOON, Recorder, request, run

pytestmark = pytest.mark.slow

PATCHED, ORIGINAL = "running the patched script", "running the original script"
CLAIM = re.compile(r"\b[1-9]\.\d\dx|times as fast|% faster")


def patch_of(analysis: AnalysisResult) -> PatchResult:
    return analysis.session.patch


def told_of(session: Session) -> str:
    return " ".join(summary_text(session).split())


def runs_of(screen: Recorder) -> tuple[int, int]:
    """How often the patched script was run, and the original."""
    return screen.done.count(PATCHED), screen.done.count(ORIGINAL)


def is_withheld(analysis: AnalysisResult, out: Path) -> str:
    """Checks that no patch is written and no speedup is reported; returns the reason."""
    found, patch = analysis.session, patch_of(analysis)
    assert (patch.diff, patch.files, patch.covered) == ("", (), ())
    assert (out / "tuned.patch").read_text() == ""
    assert found.training is None or (found.training.speedup, found.training.tuned_step_ms) == (None, None)
    (dataset,) = found.profiled_datasets
    assert dataset.input_speedup is None and "tuned" not in dataset.rates
    assert not dataset.gains and all(offer.gain is None for offer in dataset.offered)
    summary = json.loads((out / "session.json").read_text())["summary"]
    assert summary["training"]["speedup"] is None and summary["patch"]["covered"] == []
    told = summary_text(found).replace(patch.verification, "")
    assert not [line for line in told.splitlines() if CLAIM.search(line) and "0.5" not in line]
    return patch.verification


@pytest.mark.one_core
def test_verified_speedup_is_the_headline_of_all_outputs(tmp_path: Path) -> None:
    analysis, screen, out = run(tmp_path, "normal")
    found, patch = analysis.session, patch_of(analysis)
    assert analysis.exit_code == 0 and patch.verified is True
    assert (found.status, found.complete, screen.verdicts) == ("done", True, ["input-bound"])
    assert found.command.script and found.command.date
    assert "pipetune runs the script; nothing is saved." in screen.said
    assert (out / "script.log").read_text() == "the script prints this\n" * 3
    assert (out / "tuned.patch").read_text() == patch.diff != ""
    assert plan_file.load_plan(out).edits == (*WINDOW.edits, *PARALLEL.edits)
    trial = found.trials[-1]
    assert (trial.kind, trial.unit, trial.outcome) == ("verification", "training", Outcome.ACCEPTED)
    assert len(trial.ratios) == len(trial.windows) == 6 and trial.ratios[0] == pytest.approx(2, rel=0.05)
    assert {pair.tuned_first for pair in trial.windows} == {True, False}
    assert trial.windows[0].original.others_seconds == 0.2
    assert found.training is not None and found.training.speedup == trial.gain
    gain = trial.gain
    assert gain is not None and 1 < gain.low < 2 < gain.high and gain.pairs == 6
    assert (found.training.defaults_step_ms, found.training.tuned_step_ms) == pytest.approx((20, 10), rel=0.05)
    in_file = json.loads((out / "session.json").read_text())["summary"]
    assert in_file["training"]["speedup"] == pytest.approx(vars(gain))
    assert {"verification", "verification_starts", "after_proof", "total"} <= set(in_file["seconds"])
    assert found.plan is not None and found.notes[-1] == f"Informed of {found.plan.name} after True"
    assert screen.results == [f"{gain.median:.2f}x faster"], "said before what only informs is measured"
    assert screen.phases[-3:] == ["steps", "steps", "report"]
    first = summary_text(found).splitlines()[0]
    assert first.startswith(f"{gain.median:.2f}x faster training")
    assert first.endswith(f"({gain.low:.2f} to {gain.high:.2f}; 6 pairs)")
    assert f'<span class="big">{gain.median:.2f}\u00d7</span>' in (out / "report.html").read_text()
    assert f"{gain.median:.2f} times as fast" in patch.verification and "64 elements equal" in patch.verification
    assert found.datasets[0].rates["tuned"].peak_rss_mib == 321.0
    assert [one for one in screen.done if re.match("running the (?!script$)", one)] == [PATCHED, ORIGINAL]


@pytest.mark.sample(1)
@pytest.mark.parametrize("scenario", [["patch_is_slower"], ["partial", "slower"]])
def test_patch_that_is_not_faster_is_withheld(tmp_path: Path, scenario: list[str]) -> None:
    analysis, _, out = run(tmp_path, *scenario)
    assert (analysis.exit_code, patch_of(analysis).verified) == (0, False)
    assert is_withheld(analysis, out).startswith("It is slower: 0.54 times as fast (0.5")
    assert analysis.session.trials[-1].outcome is Outcome.REJECTED
    edits = plan_file.load_plan(out).edits
    if scenario[0] == "partial":  # the plan was measured separately from the patch
        assert edits == (*WINDOW.edits, *PARALLEL.edits)
    else:
        assert edits == () and analysis.session.plan is None
        assert {one.rule for one in analysis.session.datasets[0].rejected} >= {"prefetch", "parallel-map"}


def test_speedup_of_partial_patch_is_that_of_the_part(tmp_path: Path) -> None:
    analysis, _, out = run(tmp_path, "partial", "faster")
    training = analysis.session.training
    assert training.speedup.median == pytest.approx(2, rel=0.05), "1.3 is what the whole was measured at"
    assert plan_file.load_plan(out).edits == (*WINDOW.edits, *PARALLEL.edits)


def test_failed_rewrite_is_removed_and_rest_is_verified_again(tmp_path: Path) -> None:
    analysis, screen, out = run(tmp_path, "part_of_the_patch_fails")
    patch = patch_of(analysis)
    assert (patch.verified, patch.diff, patch.covered) == (True, "smaller", (WINDOW.key,))
    assert [(gone.rule, gone.why) for gone in patch.not_covered] == [("parallel-map", "map differs")]
    assert (out / "tuned.patch").read_text() == "smaller"
    assert runs_of(screen) == (2, 1), "the original stands until the patch does"
    assert [one.rule for one in analysis.session.trials[-1].plan.rewrites] == ["prefetch"]


def test_patch_that_changes_data_or_raises_before_first_step_is_withheld(tmp_path: Path) -> None:
    analysis, _, out = run(tmp_path, "patch_fails")
    assert is_withheld(analysis, out) == "elements differ at 17"
    gone = [(one.rule, one.node, one.why) for one in patch_of(analysis).not_covered]
    assert gone == [(one.rule, one.node, "elements differ at 17") for one in (WINDOW, PARALLEL)]
    analysis, _, out = run(tmp_path, "patch_raises")
    assert (analysis.exit_code, patch_of(analysis).verified) == (0, False)
    assert is_withheld(analysis, out) == "the patched script raised an exception: ValueError: of the user"


@pytest.mark.sample(1)
@pytest.mark.parametrize(("who", "what", "why"), [
    ("patched", "dies", "the patched script was killed (SIGKILL)"),
    ("original", "exits", "the original script exited with status 0"),
    ("patched", "hangs", "the patched script sent no message for 2 s and was killed"),
])  # fmt: skip
def test_script_lost_during_windows_is_measured_alone_and_reported(tmp_path, who, what, why) -> None:
    screen, out = Recorder(), tmp_path / "out"
    limits = replace(SOON, phases={"windows": 2.0}) if what == "hangs" else SOON
    analysis = analyze(request(out, "disturbed", who, what, limits=limits), screen=screen)
    assert analysis.exit_code == 0
    assert why in is_withheld(analysis, out)
    assert "measuring again, one process at a time" in screen.done


@pytest.mark.one_core
def test_ctrl_c_during_windows_withholds_patch(tmp_path: Path) -> None:
    analysis, _, out = run(tmp_path, "disturbed", "patched", "ctrl-c")
    assert (analysis.exit_code, analysis.session.status) == (130, "interrupted")
    assert patch_of(analysis).verified is None
    assert "interrupted" in is_withheld(analysis, out)


def test_ctrl_c_after_decisive_pairs_keeps_verified_patch(tmp_path: Path) -> None:
    """One uncounted window and six pairs decide the verification; the interrupt comes afterwards."""
    analysis, _, out = run(tmp_path, "disturbed", "original", "ctrl-c", "7")
    assert (analysis.exit_code, analysis.session.status) == (130, "interrupted")
    assert patch_of(analysis).verified is True and (out / "tuned.patch").read_text() != ""
    assert analysis.session.training is not None and analysis.session.training.speedup is not None


def test_ctrl_c_while_it_informs_changes_no_decision(tmp_path: Path) -> None:
    analysis, _, out = run(tmp_path, "patch_is_slower", "ctrl-c while it informs")
    assert (analysis.exit_code, analysis.session.status) == (130, "interrupted")
    assert is_withheld(analysis, out).startswith("It is slower: 0.54 times as fast")
    assert analysis.session.candidate is None, "it was measured to be slower"
    assert not [note for note in analysis.session.notes if "once more" in note or "Informed" in note]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("condition", "starts"),
    [("small", 4 + 1), ("lock", 2 + 4 + 1)],
    ids=["one fits", "one cannot stand beside the other"],
)
def test_scripts_that_cannot_run_together_take_turns(tmp_path: Path, condition: str, starts: int) -> None:
    notes = tmp_path / "starts"
    analysis, screen, _ = run(tmp_path, "noted", str(notes), condition)
    assert patch_of(analysis).verified is True, patch_of(analysis).verification
    order = notes.read_text().split()
    assert len(order) == starts
    *_, first, second, third, fourth, informing = order
    assert first != second and [first, second, third, fourth] == [first, second, second, first]
    assert informing == "original" and any(one.startswith("Informed") for one in analysis.session.notes)
    assert ("measuring again, one process at a time" in screen.done) is (condition == "lock")
    gain = analysis.session.trials[-1].gain
    assert gain is not None and (gain.pairs, gain.median) == (6, pytest.approx(2, rel=0.05))


@pytest.mark.parametrize(("free_mib", "starts"), [(8000, ["patched grows", "original grows"]), (4000, None)])
def test_scripts_share_a_gpu_that_has_memory_for_both(tmp_path, monkeypatch, free_mib, starts) -> None:
    tool, notes = tmp_path / "nvidia-smi", tmp_path / "starts"
    tool.write_text(f"#!/bin/sh\necho 80000, 0, GPU-8a; echo {free_mib}, 1, GPU-3f\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    analysis, _, _ = run(tmp_path, "noted", str(notes), "gpu")
    assert patch_of(analysis).verified is True, patch_of(analysis).verification
    order = notes.read_text().splitlines()
    assert order == starts if starts else len(order) == 5 and not any("grows" in one for one in order)


def test_part_for_validation_is_proven_by_pairs_of_passes_apart_from_training(tmp_path: Path) -> None:
    analysis, screen, out = run(tmp_path, "validated")
    found, patch = analysis.session, patch_of(analysis)
    assert (patch.verified, patch.diff, patch.covered) == (True, BOTH, (WINDOW.key, PARALLEL.key))
    assert (out / "tuned.patch").read_text() == BOTH
    assert "Of validation: 11 elements equal." in patch.verification
    training, validation = found.datasets
    gain = validation.input_speedup
    assert gain is not None and gain.pairs >= 3 and gain.low < 4 < gain.high and validation.gains == {SPLIT.key: gain}
    assert found.training.speedup.median == pytest.approx(2, rel=0.05), "training is measured as ever"
    assert training.input_speedup != gain
    told = told_of(found)
    assert "Validation: its input runs " in told
    assert "--dataset analyzes it" not in told, "the patch does"
    assert [edit for one in plan_file.load_plan(out).more for edit in one.edits] == list(SPLIT.edits)
    assert runs_of(screen) == (1, 1)


@pytest.mark.parametrize(("what", "why"), [
    (["different"], "skip is missing"),
    (["changing"], "as written: it is another one"),
    (["slower"], "It is not proven faster."),
    (["small", "different"], "skip is missing"),  # the scripts take turns
])  # fmt: skip
def test_part_for_validation_that_is_not_proven_is_left_out(tmp_path: Path, what: list[str], why: str) -> None:
    analysis, screen, out = run(tmp_path, "validated", *what)
    patch, validation = patch_of(analysis), analysis.session.datasets[1]
    assert patch.verified is True and patch.diff == (out / "tuned.patch").read_text() != BOTH
    assert (validation.plan, validation.patch, validation.input_speedup) == (None, None, None)
    assert [one.why for one in validation.rejected] == [why]
    patched, original = runs_of(screen)
    assert patched == 3 if "small" in what else (patched, original) == (2, 1), "what is shipped was run"
    told = told_of(analysis.session)
    assert "Validation: its input" not in told and "--dataset analyzes it" in told


def test_patch_for_validation_alone_claims_nothing_for_training(tmp_path: Path) -> None:
    analysis, _, out = run(tmp_path, "validated", "alone")
    found, patch = analysis.session, patch_of(analysis)
    assert (patch.verified, patch.diff, patch.covered) == (True, BOTH, ())
    assert found.plan is None and found.training is not None and found.training.speedup is None
    assert not [trial for trial in found.trials if trial.kind == "verification"]
    told = told_of(found)
    assert "The patch is for validation alone." in told and "No patch was made" not in told
    assert "+ validation: same elements" in told and "+ same elements" not in told
    planned = replace(found.datasets[0], plan=Plan("tuned", (WINDOW,)))  # which the source cannot express
    assert "The patch is for validation alone." in told_of(replace(found, datasets=(planned, *found.datasets[1:])))
    assert (out / "tuned.patch").read_text() == BOTH


def test_patch_for_validation_alone_that_is_not_proven_is_no_patch(tmp_path: Path) -> None:
    analysis, _, out = run(tmp_path, "validated", "alone", "slower")
    assert analysis.exit_code == 0 and analysis.session.patch is None
    assert (out / "tuned.patch").read_text() == ""
    assert analysis.session.datasets[1].plan is None and len(analysis.session.datasets[1].rejected) == 1


@pytest.mark.parametrize("condition", ["", "small"])
def test_part_for_validation_stays_where_that_for_training_is_not_faster(tmp_path: Path, condition: str) -> None:
    analysis, screen, out = run(tmp_path, "validated", "harmful", condition)
    patch, (training, validation) = patch_of(analysis), analysis.session.datasets
    assert (patch.verified, patch.diff, patch.covered) == (True, ALONE, ())
    assert (out / "tuned.patch").read_text() == ALONE
    assert patch.verification == "Of validation: 7 elements equal.", "as run without the part for training"
    assert training.plan is None and {WINDOW.rule, PARALLEL.rule} <= {one.rule for one in training.rejected}
    gain = validation.input_speedup
    assert gain is not None and gain.median == pytest.approx(4, rel=0.1) and validation.gains == {SPLIT.key: gain}
    assert not condition or gain.pairs == 4
    assert screen.done.count(PATCHED) == (3 if condition else 2)
    told = told_of(analysis.session)
    assert "The patch is for validation alone." in told and "faster training" not in told


@pytest.mark.parametrize("why", ["inseparable", "fails alone", "slower"])
def test_part_for_validation_goes_with_a_patch_that_is_withheld(tmp_path: Path, why: str) -> None:
    """It cannot be written alone, is not as planned alone, or is not faster itself."""
    analysis, _, out = run(tmp_path, "validated", "harmful", why)
    assert patch_of(analysis).verified is False and (out / "tuned.patch").read_text() == ""
    assert analysis.session.datasets[1].plan is None
    assert "was withheld" in analysis.session.datasets[1].rejected[0].why


def test_memory_of_both_scripts_is_compared_with_available_memory() -> None:
    def fit(mib: float, *, processes: int = 1, gpu: Any = None, free: float | None = None, **machine: Any) -> bool:
        patch = PatchResult("", process_mib=mib, gpu_mib=gpu)
        found = replace(session(), machine=replace(MACHINE, **machine), patch=patch)
        return fit_in_memory_together(found, processes=processes, free_gpu_mib=free)

    gib = 1 << 30
    assert fit(2000, memory_available_bytes=6 * gib)
    assert not fit(2600, memory_available_bytes=6 * gib), "minus a margin"
    assert not fit(2000, memory_available_bytes=6 * gib, processes=2)
    assert not fit(2000, memory_limit_bytes=4 * gib), "as available to the container"
    assert not fit_in_memory_together(replace(session(), machine=None), processes=1, free_gpu_mib=None)

    assert fit(10, device="gpu", gpu=2000, free=8000)
    assert not fit(10, device="gpu", gpu=2000, free=7000), "CUDA needs some, too"
    assert not fit(10, device="gpu", gpu=2000) and not fit(10, device="gpu", free=8000), "unknown"
    assert not fit(10, device="gpu", gpu=2000, free=80000, processes=2)
    assert not fit(10, device="tpu", gpu=2000, free=80000), "it belongs to one process"
