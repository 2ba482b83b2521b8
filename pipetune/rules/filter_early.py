"""`filter-early`: filter before the maps that do not change what the predicate reads."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Move, ReplaceFunction, Rewrite, Silence
from pipetune.core.functions import FunctionForm, OnInput
from pipetune.core.pipeline import Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import described, draws, keeps_state, runs_python
from pipetune.rules.moving import Step, place_group, steps_up

NAME = "filter-early"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        if node.op == "filter" and len(node.inputs) == 1:
            yield from _move_up(node, context)


def _move_up(node: Node, context: RuleContext) -> Iterator[Rewrite | Silence]:
    """Moves the filter up as long as each map may be passed and does not change what the predicate reads."""
    best: tuple[Step, OnInput] | None = None
    stopped: tuple[Node, str] | None = None
    for step in steps_up(context, node):
        if not isinstance(step, Step):
            stopped = step.node, step.why
            break
        if step.passed.op != "map":
            continue
        why, answer = _says_the_same(node, passed=len(step.maps))
        if answer is None:
            stopped = step.passed, why
            break
        best = step, answer
    if best is not None:
        yield _rewrite(node, *best)
    elif stopped is not None:
        where, why = stopped
        yield Silence(NAME, node.id, f"The filter stays behind {described(where)}: {why}.")


def _says_the_same(node: Node, *, passed: int) -> tuple[str, OnInput | None]:
    """Returns the probed predicate upstream of `passed` maps; None, and the reason, if it must not be called there."""
    if node.function is None:
        return "nothing is known about its predicate", None
    if runs_python(node):
        return "its predicate runs Python, which may depend on the order of elements", None
    if draws(node):
        return "its predicate draws random numbers", None
    state = keeps_state(node)
    if state:
        return f"its predicate {state}", None
    answers = node.function.on_inputs or ()
    if len(answers) < passed:
        return "it is not known whether the map leaves alone what its predicate reads", None
    answer = answers[passed - 1]
    return answer.why_not, None if answer.why_not else answer


def _rewrite(node: Node, step: Step, answer: OnInput) -> Rewrite:
    maps = ", ".join(described(one) for one in reversed(step.maps))
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=step.safety,
        edits=(Move(node.id, step.anchor), ReplaceFunction(node.id, FunctionForm.ON_INPUT, answer.digest)),
        summary=f"Filter before {maps}, which then computes none of what is filtered out.",
        group=place_group(node),
        notes=("What is filtered out is then never computed: an error in it no longer ends the run.",),
    )


RULE = Rule(
    name=NAME,
    summary="Moves a filter before the maps that hand on unchanged what its predicate reads.",
    legality=(
        "Only where the predicate reads nothing but components that the map hands on as it got them, and where the "
        "predicate, traced on what the map gets, is shown to compute the same from them. Both functions must depend "
        "on their element alone: never with Python, random numbers, variables, tables that can change or side "
        "effects; the map must check no values, and ignore_errors must not stand below. Only past maps and "
        "prefetch, never past shuffle, repeat, batch, cache, take, skip or another operator that counts, orders or "
        "keeps elements."
    ),
    safety="EXACT: the same elements in the same order.",
    propose=propose,
    turn=0,  # its positions are those of the original pipeline: later rules move the operators that it is placed after
)
