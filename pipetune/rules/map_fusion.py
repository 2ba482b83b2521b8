"""`map-fusion`: merge consecutive maps into one map that calls their functions one after another."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Remove, ReplaceFunction, Rewrite, Safety, Silence
from pipetune.core.functions import FunctionForm
from pipetune.core.map_runs import map_runs
from pipetune.core.pipeline import Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import described

NAME = "map-fusion"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for run in map_runs(context.pipeline):
        lowest = run[-1]
        known = lowest.function.fused if lowest.function is not None else None
        first = tuple(node.id for node in run[:-1])
        if known is None or known.first != first:
            why = "it is not known what their functions would do as one"
        else:
            why = known.why_not
        if known is None or why:
            yield Silence(NAME, lowest.id, f"{_names(run)} stay {len(run)} maps: {why}.")
        else:
            yield _rewrite(run, known.digest, context)


def _rewrite(run: tuple[Node, ...], digest: str, context: RuleContext) -> Rewrite:
    lowest, first = run[-1], tuple(node.id for node in run[:-1])
    calls = lowest.argument("num_parallel_calls")
    fixed = isinstance(calls, int) and calls > 0
    return Rewrite(
        rule=NAME,
        node=lowest.id,
        safety=Safety.EXACT,
        edits=(
            ReplaceFunction(lowest.id, FunctionForm.FUSED, digest, first),
            *(Remove(name) for name in reversed(first)),
        ),
        summary=f"Call the functions of {_names(run)} in one map: one element handed on instead of {len(run)}.",
        group=f"{NAME}@{lowest.id}",
        notes=(f"Each had {calls} parallel calls of its own; the one map has {calls} in all.",) if fixed else (),
    )


def _names(run: tuple[Node, ...]) -> str:
    return " and ".join(described(node) for node in run)


RULE = Rule(
    name=NAME,
    summary="Makes one map of several that stand directly below each other.",
    legality=(
        "Only maps with nothing between them and no other reader, with the same parallel calls and the same order, "
        "whose functions depend on their element alone: never with Python, random numbers, variables, tables that "
        "can change or side effects. The functions, called in one, are traced together and must be shown to compute "
        "what they compute apart."
    ),
    safety="EXACT: the same calls on the same elements.",
    propose=propose,
)
