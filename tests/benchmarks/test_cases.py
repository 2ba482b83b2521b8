"""The cases of `pipetune bench --decisions`, what counts as a right answer, and the counts of the summary."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.decisions import cases as decisions
from benchmarks.decisions.cases import NOTHING, PROVEN, Case, Decision, Judgement, PossibleGain, Run, load_cases
from pipetune.core.errors import PipetuneError

GAIN = PossibleGain((2.0,) * 60, True, "abc")


def test_the_cases_are_those_that_the_design_asks_for() -> None:
    cases = load_cases().values()
    assert len(cases) >= 30
    assert all(case.path.exists() for case in cases)
    assert sum("--step-time" in case.arguments for case in cases) >= 8
    assert sum(case.neighbours == (0, 1, 2) for case in cases) >= 12
    assert sum(case.repeats == 10 for case in cases) == 6
    assert sum("--cold" in case.options for case in cases) >= 2
    assert sum(case.name.startswith("replicas") for case in cases) >= 2
    workloads = {case.path.parent.name for case in cases if case.path.parents[1].name == "examples"}
    assert len(workloads) == 19


def test_data_is_cold_where_the_script_is_analyzed_so(tmp_path: Path) -> None:
    (tmp_path / "data" / "train").mkdir(parents=True)
    (tmp_path / "data" / "train" / "0").touch()
    warm = Case("one", str(tmp_path / "train.py"), "none")
    assert warm.cold_files == ()
    assert replace(warm, options=("--cold",)).cold_files == (tmp_path / "data" / "train" / "0",)


def test_what_is_to_be_gained_was_measured_with_an_experts_script() -> None:
    cases, gains = load_cases(), decisions.load_gains().gains
    assert all(case.expert for case in cases.values() if case.wanted == PROVEN)
    assert set(gains) <= set(cases)
    for name, gain in gains.items():
        if gain.fixed:
            assert (gain.median >= 1.05) == (cases[name].wanted == PROVEN), name


def test_every_expert_says_why_the_data_are_the_same() -> None:
    experts = {case.expert for case in load_cases().values() if case.expert}
    assert len(experts) >= 20
    for path in experts:
        described = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert "\nEqual: " in described, path


@pytest.mark.parametrize(("wanted", "answer", "shipped", "gain", "possible", "right"), [
    ("proven", "proven", True, 1.75, GAIN, True),  # 2 ** 0.8 = 1.741
    ("proven", "proven", True, 1.73, GAIN, False),
    ("proven", "likely", True, 1.75, GAIN, True),
    ("proven", "likely", False, None, GAIN, False),
    ("proven", "proven", False, None, None, False),  # the source cannot say the plan
    ("proven", "proven", True, None, GAIN, None),  # too few quiet pairs of the patch
    ("proven", "proven", True, 1.9, PossibleGain((2.0,) * 59, True, "abc"), None),
    ("proven", "proven", True, 1.9, None, None),
    ("none", "none", False, None, None, True),
    ("none", "not-input-bound", False, None, None, True),
    ("not-input-bound", "none", False, None, None, True),
    ("none", "undecided", False, None, None, False),
    ("none", "proven", True, 1.2, None, False),
])  # fmt: skip
def test_right(wanted, answer, shipped, gain, possible, right) -> None:
    case = Case("photos", "photos/train.py", wanted)
    assert decisions.is_right(case, answer, shipped=shipped, gain=gain, possible=possible) is right


def decision(seed: int, neighbours: int = 0, **values: object) -> Decision:
    known: dict[str, Any] = {"right": True, "harmful": False, "seconds_to_patch": float(seed), "answer": PROVEN}
    known |= {"wanted": PROVEN, "seconds_to_verdict": 5.0, "seconds_total": 60.0, "commit": "", **values}
    return Decision("photos", neighbours, seed, **known)


def test_summary_counts_by_neighbours() -> None:
    quiet = [decision(seed) for seed in range(1, 21)]
    quiet += [decision(30, right=False, harmful=True), decision(31, right=None, harmful=None, seconds_to_patch=None)]
    quiet[:2] = [replace(quiet[0], gain=4.0, wanted_gain=2.0), replace(quiet[1], gain=None, wanted_gain=2.0)]
    beside = [decision(1, 2, right=False, answer=NOTHING[0], seconds_to_patch=None)]
    assert decisions.judgements([*beside, *quiet]) == {
        # 21 patches: the middle one after 11 s; 95 % of them, 20, within 20 s
        "0": Judgement(
            right=20,
            cases=21,
            harmful=1,
            median_seconds=11.0,
            p95_seconds=20.0,
            unjudged=1,
            gain_over_expert=pytest.approx(1.0),
        ),
        "2": Judgement(right=0, cases=1, harmful=0, median_seconds=None, p95_seconds=None),
    }


def test_runs_of_a_case() -> None:
    assert list(decisions.choose_cases(("photos",))) == ["photos"]
    assert Case("a", "a/train.py", PROVEN).runs == (Run(0, 0),)
    assert Case("a", "a/train.py", PROVEN, neighbours=(0, 2)).runs == (Run(0, 0), Run(2, 0), Run(2, 1))
    assert len(Case("a", "a/train.py", PROVEN, neighbours=(0, 1), repeats=10).runs) == 20


@pytest.mark.parametrize("text", [
    "[[case]]\nname = 'a'\nscript = 'a/train.py'\nwanted = 'likely'",
    "[[case]]\nname = 'a'\nwanted = 'none'",
    "[[case]]\nname = 'a'\nscript = 's'\nwanted = 'none'\n" * 2,
    "case = 1",
    "",
])  # fmt: skip
def test_invalid_cases_are_an_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cases.toml"
    path.write_text(text)
    with pytest.raises(PipetuneError, match=r"cases\.toml"):
        load_cases(path)
