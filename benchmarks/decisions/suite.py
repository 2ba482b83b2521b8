"""The runs of the cases as figures of `pipetune bench --decisions`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.decisions.cases import Decision, Decisions, choose_cases, judgements, runs_of
from benchmarks.suites import Suite


def _choose(names: Sequence[str], _quick: bool) -> Sequence[str]:
    return tuple(runs_of(choose_cases(names).values()))


def line_of(decision: Decision) -> str:
    """Returns a decision as one line of text."""
    verdict = {True: "right", False: "WRONG", None: "not judged"}[decision.right]
    gain = "" if decision.gain is None else f", {decision.gain:.2f}x"
    possible = "" if decision.wanted_gain is None else f" of {decision.wanted_gain:.2f}x"
    harmful = ", HARMFUL" if decision.harmful else ""
    run = f"{decision.name}, seed {decision.seed}, beside {decision.neighbours}"
    return f"{run}: {decision.answer}{gain}{possible}: {verdict}{harmful}"


def _print_all(decisions: Decisions, _path: Path) -> None:
    for neighbours, counts in judgements(decisions.cases).items():
        seconds = "" if counts.median_seconds is None else f", a patch after {counts.median_seconds:.0f} s (median)"
        expert = "" if counts.gain_over_expert is None else f", {counts.gain_over_expert:.2f} times the expert's gain"
        print(
            f"beside {neighbours}: {counts.right} of {counts.cases} right, {counts.unjudged} not judged, "
            f"{counts.harmful} harmful{seconds}{expert}"
        )


SUITE = Suite(
    Decisions,
    "benchmarks.decisions",
    "decisions",
    choose=_choose,
    print_figure=lambda _run, decision: print(line_of(decision), flush=True),
    print_all=_print_all,
    cumulative=True,
)
