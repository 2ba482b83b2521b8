"""The families of cases, by name: how a case is run, and how one that fails is made smaller."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.soundness import adapter, chains, functions, pipelines, programs, scripts, writing
from tests.soundness.cases import Case, Tried
from tests.soundness.drained import Unbuilt


@dataclass(frozen=True)
class Family:
    """What is done with the cases of a family."""

    run: Callable[..., Case]
    unpacked: Callable[[Mapping[str, Any]], Any]  # the program of a case, from the result of its `packed`
    of_rules: Callable[..., Iterable[Tried]]  # what is proposed for a program by rules
    smaller: Callable[[Any], Iterable[Any]]
    most: int  # smaller programs that are tried
    seconds: float  # within this time


_PIPELINES = Family(pipelines.run, chains.unpacked, pipelines.of_rules, pipelines.smaller, 60, 90.0)
FAMILIES = {
    "function": Family(functions.run, programs.unpacked, functions.of_rules, programs.smaller, 50, 60.0),
    "pipeline": _PIPELINES,
    "script": Family(scripts.run, writing.unpacked, scripts.of_rules, scripts.smaller, 40, 60.0),
    "hand": replace(_PIPELINES, run=pipelines.run_by_hand),
}
"""Functions, pipelines and scripts composed at random; pipelines written by hand."""


def run(family: str, seed: str, index: int, *, folder: str, **given: Any) -> Case:
    """The case of this seed; an error of the suite itself is recorded in it, not raised."""
    try:
        return FAMILIES[family].run(seed, index, folder=folder, **given)
    except Exception:
        return Case(family, seed, unbuilt="the suite itself failed: " + traceback.format_exc()[-1500:])


def of_rules(family: str, packed: Mapping[str, Any], rules: Sequence[str], *, folder: str) -> Iterable[Tried]:
    """What is proposed by these rules for a packed program, and the truth about it."""
    return FAMILIES[family].of_rules(FAMILIES[family].unpacked(packed), rules, folder=folder)


def reduced(case: Mapping[str, Any], rules: Sequence[str], kind: str, *, folder: str) -> dict[str, Any]:
    """The smallest case found in which these rules are accepted and wrong in this way."""
    family = FAMILIES[case["family"]]
    last = Tried((), (), "", right=False, accepted=True)

    def fails(program: Any) -> bool:
        nonlocal last
        with contextlib.suppress(Unbuilt, adapter.Crash, adapter.Refused):
            for one in family.of_rules(program, rules, folder=folder):
                if one.wrong and one.kind == kind and set(one.rules) == set(rules):
                    last = one
                    return True
        return False

    program = family.unpacked(case["material"])
    small = smallest(program, family.smaller, fails, most=family.most, seconds=family.seconds)
    text = small.pasted() + (f"\n{last.why}" if case["family"] == "script" else "")
    found = {"rule": "+".join(rules), "kind": kind, "safety": last.safety, "detail": last.detail, "text": text}
    return {**found, "operations": list(small.operations), "program": small.packed()}


def smallest(
    case: Any, smaller: Callable[[Any], Iterable[Any]], fails: Callable[[Any], bool], *, most: int, seconds: float
) -> Any:
    """The smallest case reached by steps after each of which it still fails (delta debugging).

    At most `most` cases are tried, for so many seconds; `smaller` gives the simplifications of a case, the best first.
    """
    end, left = time.monotonic() + seconds, most
    while True:
        for candidate in smaller(case):
            if left <= 0 or time.monotonic() > end:
                return case
            left -= 1
            if fails(candidate):
                case = candidate
                break
        else:
            return case
