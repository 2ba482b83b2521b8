"""`shard-early`: shard before the maps, so that no worker computes the elements of the others."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Rewrite, Silence
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.dropping import drop_first

NAME = "shard-early"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    yield from drop_first(context, rule=NAME, concerns=frozenset({"shard"}))


RULE = Rule(
    name=NAME,
    summary="Moves shard before the maps whose results it drops.",
    legality=(
        "Only past maps that give one element for one and depend on it alone, and past prefetch; a take or skip "
        "directly above moves along. Never past a function that runs Python, draws random numbers, uses a variable "
        "or a table that can change, has a side effect or checks values, nor past a map that need not keep the "
        "order, nor where ignore_errors stands below. Never past shuffle, repeat, filter, batch, cache or "
        "interleave: a worker would then get other elements."
    ),
    safety="EXACT: a worker gets the elements it got, in the same order; it computes none of the others'.",
    propose=propose,
    turn=0,  # its positions are those of the original pipeline: later rules move the operators that it is placed after
)
