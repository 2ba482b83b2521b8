"""The patched script beside the script as it is, against processes that serve windows of invented lengths."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.core import planfile
from pipetune.core.measurement import Outcome
from pipetune.core.session import PatchResult, Session
from pipetune.report.terminal import summary_text
from pipetune.supervisor.analysis import analyze
from pipetune.supervisor.request import Analysis
from pipetune.supervisor.verification import fits_twice
from tests.core.sessions import PARALLEL, WINDOW, session
from tests.supervisor.test_analysis import SOON, Recorder, request, run

pytestmark = pytest.mark.slow

CLAIM = re.compile(r"\b[1-9]\.\d\dx|times as fast|% faster")


def patch_of(analysis: Analysis) -> PatchResult:
    assert analysis.session.patch is not None
    return analysis.session.patch


def is_withheld(analysis: Analysis, out: Path) -> str:
    """Nothing is handed out, and nothing is said to be faster; why."""
    found, patch = analysis.session, patch_of(analysis)
    assert (patch.diff, patch.files, patch.covered) == ("", (), ())
    assert (out / "tuned.patch").read_text() == ""
    assert found.training is None or (found.training.speedup, found.training.tuned_step_ms) == (None, None)
    (dataset,) = found.studied
    assert dataset.input_speedup is None and "tuned" not in dataset.rates
    assert not dataset.gains and all(offer.gain is None for offer in dataset.offered)
    summary = json.loads((out / "session.json").read_text())["summary"]
    assert summary["training"]["speedup"] is None and summary["patch"]["covered"] == []
    told = summary_text(found).replace(patch.verification, "")
    assert not [line for line in told.splitlines() if CLAIM.search(line) and "0.5" not in line]
    return patch.verification


@pytest.mark.one_core
def test_the_first_number_everywhere_is_what_the_patched_script_was_measured_at(tmp_path: Path) -> None:
    analysis, screen, out = run(tmp_path, "normal")
    found, patch = analysis.session, patch_of(analysis)
    assert analysis.exit_code == 0 and patch.verified is True
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
    assert in_file["seconds"]["verification"] is not None and "verification_starts" in in_file["seconds"]
    spoken = f"{gain.median:.2f}x ({gain.low:.2f} to {gain.high:.2f})"
    assert summary_text(found).startswith(f"Training speedup  {spoken}")
    assert f'<span class="big">{gain.median:.2f}\u00d7</span>' in (out / "report.html").read_text()
    assert f"{gain.median:.2f} times as fast" in patch.verification and "64 elements equal" in patch.verification
    assert found.datasets[0].rates["tuned"].peak_rss_mib == 321.0
    assert screen.phases[-2] == "verification"
    assert [one for one in screen.done if one.startswith("running the") and one != "running the script"] == [
        "running the patched script",
        "running the script as it is",
    ]


@pytest.mark.parametrize("scenario", ["patch_is_slower", "harmful_part"])
def test_a_patch_that_is_not_faster_is_not_shipped(tmp_path: Path, scenario: str) -> None:
    analysis, _, out = run(tmp_path, scenario)
    assert (analysis.exit_code, patch_of(analysis).verified) == (0, False)
    assert is_withheld(analysis, out).startswith("It is slower: 0.54 times as fast (0.5")
    assert analysis.session.trials[-1].outcome is Outcome.REJECTED
    edits = planfile.load_plan(out).edits
    if scenario == "harmful_part":  # what the source cannot say was measured by itself
        assert edits == (*WINDOW.edits, *PARALLEL.edits)
    else:
        assert edits == () and analysis.session.plan is None
        assert {one.rule for one in analysis.session.datasets[0].rejected} >= {"prefetch", "parallel-map"}


def test_of_a_plan_that_is_written_in_part_the_number_is_that_of_the_part(tmp_path: Path) -> None:
    analysis, _, out = run(tmp_path, "helpful_part")
    training = analysis.session.training
    assert training is not None and training.speedup is not None
    assert training.speedup.median == pytest.approx(2, rel=0.05), "1.3 is what the whole was measured at"
    assert planfile.load_plan(out).edits == (*WINDOW.edits, *PARALLEL.edits)


def test_what_fails_leaves_the_patch_and_the_rest_is_run_again(tmp_path: Path) -> None:
    analysis, screen, out = run(tmp_path, "part_of_the_patch_fails")
    patch = patch_of(analysis)
    assert (patch.verified, patch.diff, patch.covered) == (True, "smaller", (WINDOW.key,))
    assert [(gone.rule, gone.why) for gone in patch.not_covered] == [("parallel-map", "map differs")]
    assert (out / "tuned.patch").read_text() == "smaller"
    assert screen.done.count("running the patched script") == 2
    assert screen.done.count("running the script as it is") == 1, "it stands until the patch does"
    assert [one.rule for one in analysis.session.trials[-1].plan.rewrites] == ["prefetch"]


def test_a_patch_that_changes_the_data_is_not_emitted(tmp_path: Path) -> None:
    analysis, _, out = run(tmp_path, "patch_fails")
    assert is_withheld(analysis, out) == "elements differ at 17"
    gone = [(one.rule, one.node, one.why) for one in patch_of(analysis).not_covered]
    assert gone == [(one.rule, one.node, "elements differ at 17") for one in (WINDOW, PARALLEL)]


def test_a_patched_script_that_does_not_come_to_its_first_step_is_not_shipped(tmp_path: Path) -> None:
    analysis, _, out = run(tmp_path, "patch_raises")
    assert (analysis.exit_code, patch_of(analysis).verified) == (0, False)
    assert is_withheld(analysis, out) == "the patched script raised: ValueError: of the user"


@pytest.mark.parametrize(
    ("who", "what", "why"),
    [
        ("patched", "dies", "the patched script was killed (SIGKILL)"),
        ("original", "exits", "the script as it is ended its process with exit status 0"),
        ("patched", "hangs", "the patched script gave no sign of life for 2 s and was ended"),
    ],
)
def test_a_script_that_is_lost_in_its_windows_is_tried_alone_and_said(
    tmp_path: Path, who: str, what: str, why: str
) -> None:
    screen, out = Recorder(), tmp_path / "out"
    limits = replace(SOON, phases={"windows": 2.0}) if what == "hangs" else SOON
    analysis = analyze(request(out, "disturbed", who, what, limits=limits), screen=screen)
    assert analysis.exit_code == 0
    assert why in is_withheld(analysis, out)
    assert "once more, one after the other" in screen.done


@pytest.mark.one_core
def test_ctrl_c_in_the_windows_withholds_the_patch(tmp_path: Path) -> None:
    analysis, _, out = run(tmp_path, "disturbed", "patched", "ctrl-c")
    assert (analysis.exit_code, analysis.session.status) == (130, "interrupted")
    assert patch_of(analysis).verified is None
    assert "interrupted" in is_withheld(analysis, out)


def test_what_is_proven_is_not_lost_with_what_is_measured_beside_it(tmp_path: Path) -> None:
    """A window that does not count and six of the pairs: then comes what decides nothing."""
    analysis, _, out = run(tmp_path, "disturbed", "original", "ctrl-c", "7")
    assert (analysis.exit_code, analysis.session.status) == (130, "interrupted")
    assert patch_of(analysis).verified is True and (out / "tuned.patch").read_text() != ""
    assert analysis.session.training is not None and analysis.session.training.speedup is not None


@pytest.mark.parametrize(
    ("condition", "starts"),
    [("small", 4), ("lock", 2 + 4)],
    ids=["one fits", "one cannot stand beside the other"],
)
def test_where_both_cannot_be_there_at_a_time_they_take_turns(tmp_path: Path, condition: str, starts: int) -> None:
    notes = tmp_path / "starts"
    analysis, screen, _ = run(tmp_path, "noted", str(notes), condition)
    assert patch_of(analysis).verified is True, patch_of(analysis).verification
    order = notes.read_text().split()
    assert len(order) == starts
    first, second = order[-4:-2]
    assert first != second and order[-4:] == [first, second, second, first]
    assert ("once more, one after the other" in screen.done) is (condition == "lock")
    gain = analysis.session.trials[-1].gain
    assert gain is not None and (gain.pairs, gain.median) == (6, pytest.approx(2, rel=0.05))


def test_what_both_need_is_held_against_what_is_free() -> None:
    def found(mib: float, **machine: object) -> Session:
        made = session()
        assert made.machine is not None and made.patch is not None
        here = replace(made.machine, **machine)  # type: ignore[arg-type]
        return replace(made, machine=here, patch=replace(made.patch, process_mib=mib))

    gib = 1 << 30
    assert fits_twice(found(2000, memory_available_bytes=6 * gib), processes=1)
    assert not fits_twice(found(2600, memory_available_bytes=6 * gib), processes=1), "less a margin"
    assert not fits_twice(found(2000, memory_available_bytes=6 * gib), processes=2)
    assert not fits_twice(found(2000, memory_limit_bytes=4 * gib), processes=1), "what the container grants"
    assert not fits_twice(found(10, device="gpu"), processes=1)
    assert not fits_twice(replace(found(10), machine=None), processes=1)
