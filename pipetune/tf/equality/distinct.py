"""Measures how much randomness a pipeline has, as distinct outputs on a source that repeats one element.

Draws that cannot be matched one by one must still be as many: one draw shared by a batch, or an augmentation
frozen by a cache, gives fewer distinct outputs than the original pipeline, or the same outputs in every epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipetune.core.comparison import Check
from pipetune.tf.equality import elements

_FEW_OUTCOMES = {"within batches": 0.2, "over three epochs": 0.2, "changed from epoch to epoch": 0.5}
"""Relative difference of counts that is put down to chance, where draws have few outcomes (a flip, a small crop).
A draw shared by a batch at least halves the first count; a frozen draw makes the last one zero."""

_MANY_OUTCOMES = 0.02
"""The same tolerance where (almost) every output of the original was distinct."""


@dataclass(frozen=True)
class Counts:
    """Counts of the rows that one pipeline yielded."""

    rows: int
    within: int  # distinct rows within each batch, summed over the batches
    across: int  # distinct rows over all epochs
    changed: int  # rows that differ from the row at the same position one epoch earlier


class RowCounter:
    """Counts the distinct rows in one run over several whole epochs; keeps only hashes."""

    def __init__(self, *, batched: bool) -> None:
        self._batched = batched
        self.rows: list[str] = []
        self.within = 0

    def __call__(self, element: Any) -> None:
        rows = elements.rows(element) if self._batched else ["/".join(elements.component_hashes(element))]
        self.rows += rows
        self.within += len(set(rows))

    def counts(self, *, epochs: int) -> Counts:
        """The counts of a run over `epochs` whole epochs."""
        epoch = len(self.rows) // epochs
        changed = sum(one != other for one, other in zip(self.rows, self.rows[epoch:], strict=False))
        return Counts(len(self.rows), self.within, len(set(self.rows)), changed)


def randomness_check(
    original: Callable[[int | None], Counts],
    candidate: Callable[[int | None], Counts],
    *,
    random_ops: tuple[tuple[str, ...], tuple[str, ...]],
) -> Check:
    """Whether the candidate's outputs vary as much as the original's.

    Args:
        original: returns the counts of the original pipeline, with every draw free (None) or with only the random
            op of this index free and all others constant.
        candidate: the same for the tuned pipeline.
        random_ops: the random op types of each pipeline, in order.
    """
    numbers: list[int | None] = [None]
    if random_ops[0] == random_ops[1] and len(random_ops[0]) > 1:
        numbers += range(len(random_ops[0]))
    for number in numbers:
        one, other = original(number), candidate(number)
        for what, before, after in (
            ("within batches", one.within, other.within),
            ("over three epochs", one.across, other.across),
            ("changed from epoch to epoch", one.changed, other.changed),
        ):
            many = before >= (1 - _MANY_OUTCOMES) * one.rows
            by_chance = _MANY_OUTCOMES if many else _FEW_OUTCOMES[what]
            if abs(before - after) > by_chance * before:
                which = "" if number is None else f" when only {random_ops[0][number]} draws"
                detail = f"{after} distinct outputs {what}, {before} as written{which}"
                return Check("randomness", False, detail)
    return Check("randomness", True, "as many distinct outputs per batch and across epochs")
