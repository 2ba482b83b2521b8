"""What a case of the suite comes to, as values that a worker hands to the supervisor."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.soundness.adapter import Answer, Proposal
from tests.soundness.verdict import Verdict


@dataclass(frozen=True)
class Tried:
    """A proposal, or a plan of several, and the truth about it."""

    rules: tuple[str, ...]
    keys: tuple[str, ...]
    safety: str
    right: bool
    accepted: bool | None  # None: the comparison was not asked, for the data are the same
    kind: str = ""  # how the data differ
    detail: str = ""
    why: str = ""  # what pipetune's comparison says where it refuses
    zeros: bool = False  # right only where zeros were spoken of

    @property
    def wrong(self) -> bool:
        """Whether data would have changed under a promise that they do not."""
        return bool(self.accepted) and not self.right


@dataclass(frozen=True)
class Case:
    """What came of one case."""

    family: str  # "function", "pipeline", "script"
    seed: str
    tried: tuple[Tried, ...] = ()
    proposed: tuple[tuple[str, str], ...] = ()  # key and class of everything that was proposed
    operations: tuple[str, ...] = ()  # of the function, or operators of the pipeline
    crash: str = ""  # where pipetune would have ended
    unbuilt: str = ""  # why nothing could be tried
    seconds: float = 0.0
    material: dict[str, Any] | None = None  # of a case with something wrong: what it was made of, for the reduction
    patches: int = 0

    def packed(self) -> dict[str, Any]:
        """As JSON knows it."""
        return asdict(self)


def tried(
    plan: Sequence[Proposal],
    safety: str,
    verdict: Callable[[bool], Verdict],
    compared: Callable[[], Answer],
    *,
    ask: bool,
) -> Tried:
    """What came of a plan; the comparison is asked where the data differ under it, or where `ask` says so.

    Args:
        plan: the proposals, one or several.
        safety: the class of all together.
        verdict: the truth, by whether zeros and denormals were spoken of.
        compared: what pipetune's own comparison says.
        ask: even if the data are the same.
    """
    found, answer = verdict(False), None
    if ask or not found.right:
        answer = compared()
        found = verdict(answer.notes_zeros)
    return Tried(
        tuple(dict.fromkeys(one.rule for one in plan)),
        tuple(one.key for one in plan),
        safety,
        right=found.right,
        accepted=answer.accepted if answer is not None else None,
        kind=found.kind,
        detail=found.detail,
        why=answer.why if answer is not None else "",
        zeros=found.zeros,
    )


def unpacked(packed: dict[str, Any]) -> Case:
    """The case that `Case.packed` gave."""
    fields = dict(packed)
    fields["tried"] = tuple(
        Tried(**{**one, "rules": tuple(one["rules"]), "keys": tuple(one["keys"])}) for one in packed["tried"]
    )
    fields["proposed"] = tuple((key, safety) for key, safety in packed["proposed"])
    fields["operations"] = tuple(packed["operations"])
    return Case(**fields)


MOST_OF_A_RULE = 4
"""Proposals of one rule that are tried in one case, where they change more than numbers."""

_ASKED = 4
"""Of the proposals under which the data are the same, the comparison is asked of one in so many: that takes most of the
time, and tells only what it loses."""


def chosen(proposals: Sequence[Proposal], *, salt: str, plain: int) -> list[Proposal]:
    """The proposals to try: a few of each rule that changes functions, and so many of all the others.

    By a hash of their names, so that two versions of pipetune that propose the same try the same.
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
    """Whether the comparison is asked of this proposal though the data are the same under it."""
    return lot(salt, proposal) % _ASKED == 0


def lot(salt: str, proposal: Proposal) -> int:
    """A number drawn for a proposal."""
    drawn = hashlib.sha256(f"{salt}/{proposal.key}/{proposal.safety}".encode()).digest()
    return int.from_bytes(drawn[:6], "big")
