"""Runs of the cases are judged, saved one by one, and not made twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import ProgressCallback
from benchmarks.decisions import cases, judging
from benchmarks.decisions.cases import Case, Decision, PossibleGain, Run, choose_cases, runs_of
from benchmarks.decisions.judging import Answer, PairsOfPatch, copy_script, judge
from benchmarks.decisions.stopwatch import TimedPair, Timing
from benchmarks.decisions.suite import SUITE
from pipetune.core.codec import decode
from pipetune.core.machine import CpuLoad
from pipetune.core.measurement import RunFailed
from pipetune.core.messages import FigureMeasured, LogLine
from tests.benchmarks.fake_process import FakeBench
from tests.benchmarks.jobs import messages_of
from tests.core.sessions import MACHINE, session

PROVEN = replace(session(), seconds={"profile": 3.0, "verdict": 5.0, "budget": 44.0, "total": 60.0})
CASE = Case("photos", "photos/train.py", "proven")
QUIET = (1.4,) * 12


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cases of three runs, and nothing known about them."""
    path = tmp_path / "cases.toml"
    path.write_text(
        "[[case]]\nname='a'\nscript='a/train.py'\nwanted='proven'\nrepeats=2\n"
        "[[case]]\nname='b'\nscript='b/train.py'\nwanted='none'\n"
    )
    monkeypatch.setattr(cases.choose_cases, "__defaults__", (path,))
    for function in (cases.load_gains, cases.save_gains):
        monkeypatch.setattr(function, "__defaults__", (tmp_path / "gains.json",))


@pytest.mark.slow
@pytest.mark.usefixtures("table")
def test_an_interrupted_run_continues_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of(choose_cases(()).values())
    decisions = {name: judge(*run, Answer(PROVEN, 70.0, QUIET), None, commit="abc") for name, run in runs.items()}
    bench = FakeBench(tmp_path, SUITE, decisions, MACHINE)
    monkeypatch.setenv("DIES_AFTER", "1")
    assert bench.run() == (["a-0-0"], 1)
    assert [row["seed"] for row in json.loads((tmp_path / "decisions.json").read_text())["cases"]] == [0]

    monkeypatch.delenv("DIES_AFTER")
    assert bench.run() == (["a-0-1", "b-0-0"], 0)
    assert bench.run() == bench.run("a") == bench.run(seed=1) == ([], 0)
    bench.run(again=True)
    assert bench.asked == ["a-0-0 a-0-1 b-0-0", "a-0-1 b-0-0", "a-0-0 a-0-1 b-0-0"]
    data = json.loads((tmp_path / "decisions.json").read_text())
    assert len(data["cases"]) == 3 and data["machine"]["processor"] == "An Invented Processor"
    # No gain is fixed, so that a patch of `a` cannot be judged; for `b` any patch is wrong.
    counts = {"right": 0, "cases": 1, "harmful": 0, "unjudged": 2}
    seconds = {"median_seconds": 44.0, "p95_seconds": 44.0}
    assert data["summary"] == {"0": {**counts, **seconds, "gain_over_expert": None}}

    # Earlier decisions are judged as soon as what can be gained is fixed.
    cases.save_gains(cases.Gains("an invented machine", {"a": PossibleGain((1.5,) * cases.FIXED_PAIRS, True, "abc")}))
    assert bench.run() == ([], 0)
    rows = json.loads((tmp_path / "decisions.json").read_text())["cases"]
    judged = [(row["name"], row["right"], row["wanted_gain"]) for row in rows]
    assert judged == [("a", True, 1.5), ("a", True, 1.5), ("b", False, None)]


@pytest.mark.usefixtures("table")
def test_runs_that_fail_and_quiet_runs_on_a_busy_machine_do_not_count(tmp_path, monkeypatch) -> None:
    def answer(case: Case, run: Run, out: Path, say: ProgressCallback) -> Answer:
        assert out == tmp_path / "decisions" / f"{case.name}-0-{run.seed}"
        if case.name == "b":
            raise RunFailed("no session")
        load = CpuLoad(30.0, 20, 2.0, own_share=0.5, others_share=0.3 if run.seed == 1 else 0.05)
        return Answer(replace(PROVEN, load=load), 70.0, QUIET)

    monkeypatch.setattr(judging, "answer_run", answer)
    messages, code = messages_of(judging.measure, tmp_path, monkeypatch, arguments=("a-0-0", "a-0-1", "b-0-0"))
    (sent,) = [one for one in messages if isinstance(one, FigureMeasured)]
    decision = decode(Decision, sent.figure)
    assert sent.name == decision.run == "a-0-0" and decision.commit and decision.date and code == 1
    busy, failed = [one.text for one in messages if isinstance(one, LogLine)]
    assert "a-0-1" in busy and "other processes used 30%" in busy and failed.endswith("no session")


@pytest.mark.parametrize(
    ("ratios", "gain", "harmful"),
    # Eleven pairs are too few to say.
    [(QUIET, 1.4, False), ((0.96,) * 12, 0.96, True), ((0.98,) * 12, 0.98, False), ((0.5,) * 11, None, None)],
)
def test_harmful_is_a_patch_that_makes_training_slower(ratios, gain, harmful) -> None:
    possible = PossibleGain((1.5,) * 60, True, "abc")
    decision = judge(CASE, Run(0, 0), Answer(PROVEN, 70.0, ratios), possible, commit="abc")
    assert (decision.gain, decision.harmful, decision.pairs) == (gain, harmful, len(ratios))
    assert decision.right is (None if gain is None else gain > 1.39)
    assert (decision.seconds_to_verdict, decision.seconds_to_patch, decision.seconds_total) == (8.0, 44.0, 70.0)
    assert decision.rules == tuple(rewrite.rule for rewrite in PROVEN.plan.rewrites)  # type: ignore[union-attr]


def test_an_answer_without_a_patch_is_not_harmful_and_has_no_time_to_a_patch() -> None:
    failed = judge(CASE, Run(0, 0), Answer(replace(PROVEN, status="failed"), 9.0), None, commit="abc")
    assert failed.seconds_to_verdict == 8.0
    assert (failed.answer, failed.right, failed.harmful, failed.seconds_to_patch) == ("failed", False, False, None)
    assert PROVEN.patch is not None
    plan_only = replace(PROVEN, patch=replace(PROVEN.patch, diff=""))
    assert judge(CASE, Run(0, 0), Answer(plan_only, 9.0), None, commit="abc").right is False


@pytest.mark.usefixtures("table")
def test_quiet_pairs_of_an_expert_add_up() -> None:
    def added(starts_counted: bool, *pairs: TimedPair) -> tuple[int, float, bool, bool]:
        judging.add_gain("a", Timing(pairs, starts_counted=starts_counted))
        gain = cases.load_gains().gains["a"]
        return len(gain.ratios), gain.median, gain.starts_counted, gain.fixed

    quiet, loud = TimedPair(2.0, 0.05), TimedPair(1.0, 0.9)
    added(True, quiet, loud, quiet)
    added(False, loud)  # nothing in it counts
    assert added(True, *(quiet,) * 57) == (59, 2.0, True, False)
    assert added(False, quiet) == (60, 2.0, False, True)


def test_a_script_is_copied_and_its_data_is_linked_to(tmp_path: Path) -> None:
    examples = tmp_path / "examples"
    for name in ("set/one/train.py", "set/one/helper.py", "set/one/expert.py", "set/data/x", "photos/data/y"):
        (examples / name).parent.mkdir(parents=True, exist_ok=True)
        (examples / name).write_text("original")
    copy = copy_script(examples / "set" / "one" / "train.py", tmp_path / "copy", examples)
    assert sorted(path.name for path in copy.parent.iterdir()) == ["helper.py", "train.py"]
    assert (copy.parents[2] / "photos" / "data" / "y").read_text() == "original"
    assert (copy.parents[1] / "data" / "x").read_text() == "original"
    copy.write_text("patched")
    (copy.parent / "model.keras").write_text("saved")
    assert (examples / "set" / "one" / "train.py").read_text() == "original"
    assert not (examples / "set" / "one" / "model.keras").exists()


def test_pairs_of_the_same_patch_are_used_again(tmp_path: Path) -> None:
    def pairs_of(run: str, text: str) -> PairsOfPatch:
        for name in (run, "patched"):
            (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / "patched" / "train.py").write_text(text)
        return PairsOfPatch(tmp_path / run, run.partition("-")[0], tmp_path / "patched")

    first = pairs_of("one-0-0", "patched = 1\n")
    assert first.ratios == ()
    first.add((1.5, 1.6))
    first.save()
    assert pairs_of("one-1-1", "patched = 1\n").ratios == (1.5, 1.6)
    assert pairs_of("one_more-0-0", "patched = 1\n").ratios == ()
    assert pairs_of("one-1-1", "patched = 2\n").ratios == ()
