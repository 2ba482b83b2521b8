"""The results of a case, as values that a worker sends to the supervisor."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tests.soundness.adapter import Answer, Crash, Proposal, Refused
from tests.soundness.drained import Unbuilt
from tests.soundness.verdict import Verdict


@dataclass(frozen=True)
class Tried:
    """A proposal, or a plan of several, and the truth about it."""

    rules: tuple[str, ...]
    keys: tuple[str, ...]
    safety: str
    right: bool
    accepted: bool | None  # None: the comparison was not run, as the data are equal
    kind: str = ""  # how the data differ
    detail: str = ""
    why: str = ""  # the reason of pipetune's comparison where it rejects
    zeros: bool = False  # right only where zeros were noted

    @property
    def wrong(self) -> bool:
        """Whether data would have changed although the class promises that they do not."""
        return bool(self.accepted) and not self.right


@dataclass(frozen=True)
class Case:
    family: str  # "function", "pipeline", "script"
    seed: str
    tried: tuple[Tried, ...] = ()
    proposed: tuple[tuple[str, str], ...] = ()  # key and class of everything that was proposed
    operations: tuple[str, ...] = ()  # of the function, or operators of the pipeline
    crash: str = ""  # the error with which pipetune would have ended
    unbuilt: str = ""  # why nothing could be tried
    seconds: float = 0.0
    material: dict[str, Any] | None = None  # of a case with something wrong: its program, for the reduction
    patches: int = 0

    def packed(self) -> dict[str, Any]:
        return asdict(self)


def tried(
    plan: Sequence[Proposal],
    safety: str,
    verdict: Callable[[bool], Verdict],
    compared: Callable[[], Answer],
    *,
    ask: bool,
) -> Tried:
    """The results of a plan; pipetune's own comparison is run where the data differ, or if `ask` is set.

    `safety` is the class of all proposals together, `verdict` the truth, depending on whether zeros were noted.
    """
    found, answer = verdict(False), None
    if ask or not found.right:
        answer = compared()
        found = verdict(answer.notes_zeros)
    accepted, why = (answer.accepted, answer.why) if answer is not None else (None, "")
    rules, keys = tuple(dict.fromkeys(one.rule for one in plan)), tuple(one.key for one in plan)
    return Tried(rules, keys, safety, found.right, accepted, found.kind, found.detail, why, found.zeros)


def first_built(family: str, seed: str, attempts: int, tried: Callable[[str], Case]) -> Case:
    """The case of the first of up to so many seeds, made from this one, that TensorFlow can run."""
    started = time.monotonic()
    case = Case(family, seed)
    for attempt in range(attempts):
        try:
            case = tried(f"{seed}/{attempt}")
            break
        except Unbuilt as error:
            case = Case(family, seed, unbuilt=str(error))
    return replace(case, seconds=time.monotonic() - started)


Plans = Sequence[Sequence[Proposal]]


def of_plans(
    case: Case,
    planned: Callable[[], tuple[Sequence[Proposal], Plans]],
    tried: Callable[[Sequence[Proposal]], Tried],
    packed: Callable[[], dict[str, Any]],
) -> Case:
    """The case with the results of plans, without those that pipetune does not build.

    `planned` gives all proposals and the plans to try; `packed` the program of the case, for the reduction.
    """
    try:
        proposals, plans = planned()
    except Crash as crash:
        return replace(case, crash=str(crash), material=packed())
    except Refused as reason:
        return replace(case, unbuilt=str(reason))
    case = replace(case, proposed=names_of(proposals))
    found: list[Tried] = []
    for plan in plans:
        try:
            found.append(tried(plan))
        except Refused:
            continue
        except Crash as crash:
            case = replace(case, crash=f"{' + '.join(one.key for one in plan)}: {crash}")
    material = packed() if case.crash or any(not one.right for one in found) else None
    return replace(case, tried=tuple(found), material=material)


def without_one(parts: tuple[Any, ...], first: int = 0) -> Iterator[tuple[Any, ...]]:
    """The parts without each of them in turn, from this one on."""
    return (parts[:place] + parts[place + 1 :] for place in range(first, len(parts)))


def names_of(proposals: Sequence[Proposal]) -> tuple[tuple[str, str], ...]:
    return tuple((one.key, one.safety) for one in proposals)


@contextlib.contextmanager
def building() -> Iterator[None]:
    """While open, an error means that there is no case: TensorFlow cannot trace or build it."""
    try:
        yield
    except Exception as error:
        raise Unbuilt(f"{type(error).__name__}: {str(error)[:200]}") from error


MOST_OF_A_RULE = 4
"""Proposals of one rule that are tried in one case, if they change more than numbers."""

_ASKED = 4
"""One in so many of the proposals that keep the data is compared: comparisons take most of the time, and here they only
show what pipetune loses."""


def chosen(proposals: Sequence[Proposal], *, salt: str, plain: int) -> list[Proposal]:
    """The proposals to try: a few of each rule that changes functions, and a number of all others.

    Chosen by a hash of their names, so that versions of pipetune with equal proposals try the same ones.
    """
    by_rule: dict[str, list[Proposal]] = {}
    others: list[Proposal] = []
    for one in sorted(proposals, key=lambda one: lot(salt, one)):
        if one.functional:
            by_rule.setdefault(one.rule, []).append(one)
        elif not any(one.rule == other.rule and one.numbers_only for other in others):
            others.append(one)
    return [one for group in by_rule.values() for one in group[:MOST_OF_A_RULE]] + others[:plain]


def asked(proposal: Proposal, *, salt: str) -> bool:
    """Whether the comparison is run on this proposal although it keeps the data."""
    return lot(salt, proposal) % _ASKED == 0


def lot(salt: str, proposal: Proposal) -> int:
    drawn = hashlib.sha256(f"{salt}/{proposal.key}/{proposal.safety}".encode()).digest()
    return int.from_bytes(drawn[:6], "big")
