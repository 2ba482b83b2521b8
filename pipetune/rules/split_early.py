"""`split-early`: take and skip before the maps, so that no element is computed and then dropped."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Rewrite, Silence
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.dropping import drop_first

NAME = "split-early"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    yield from drop_first(context, rule=NAME, concerns=frozenset({"take", "skip"}))


RULE = Rule(
    name=NAME,
    summary="Moves take and skip before the maps whose results they drop.",
    legality=(
        "Only past maps that give one element for one and depend on it alone, and past prefetch. Never past a "
        "function that runs Python, draws random numbers, uses a variable or a table that can change, has a side "
        "effect or checks values, nor past a map that need not keep the order, nor where ignore_errors stands "
        "below: other elements would come out, or an error would be missed. Never past shuffle, repeat, filter, "
        "batch, cache, interleave or another operator that counts, orders or keeps elements. A take stays where "
        "nothing reads far ahead of it, for it saves nothing there, and where what reads ahead fills a cache or "
        "moves state."
    ),
    safety="EXACT: the same elements in the same order; only what was thrown away is not computed.",
    propose=propose,
    turn=0,  # its positions are those of the original pipeline: later rules move the operators that it is placed after
)
