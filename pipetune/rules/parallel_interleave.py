"""`parallel-interleave`: read several inner datasets at once."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Consent, Edit, Rewrite, Safety, SetArgument, Silence
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import (
    described,
    deterministic,
    draws,
    keeps_state,
    parallel_safety,
    picks_by_place,
    runs_python,
)
from pipetune.rules.pricing import bytes_per_element, element_count

NAME = "parallel-interleave"

_WIDE = 16
"""A cycle length offered for storage with a high first-byte latency: the usual number of readers."""


def cycle_length_in_force(node: Node, context: RuleContext) -> int:
    """Returns the effective cycle length of `node`; TensorFlow's default depends on the cores and the parallel calls.

    Source: `ComputeCycleLength` in parallel_interleave_dataset_op.cc and `MaxParallelism` in
    interleave_dataset_op.cc (TensorFlow 2.21).
    """
    written = node.argument("cycle_length")
    if isinstance(written, int) and written > 0:
        return written
    cores = context.default_cycle_length
    calls = node.argument("num_parallel_calls")
    if calls is None:
        return cores
    if calls == AUTOTUNE:
        return -(-cores // 3)
    return min(calls, cores) if isinstance(calls, int) else cores


def block_length_in_force(node: Node) -> int:
    written = node.argument("block_length")
    return written if isinstance(written, int) and written > 0 else 1


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        if node.op == "interleave":
            yield from _at(node, context)


def _at(node: Node, context: RuleContext) -> Iterator[Rewrite | Silence]:
    if node.function is None:
        yield Silence(NAME, node.id, "Not run in parallel: nothing is known about its function.")
        return
    state = keeps_state(node)
    if state:
        yield Silence(NAME, node.id, f"Not run in parallel: its function {state}.")
        return
    inputs = element_count(context, node.inputs[0]) if node.inputs else None
    if inputs == 1:
        yield Silence(NAME, node.id, "There is one inner dataset: nothing to read side by side.")
        return
    length = cycle_length_in_force(node, context)
    for calls in _calls(length, context.cores):
        if calls != node.argument("num_parallel_calls"):
            yield _rewrite(node, context, length=length, calls=calls)
    dropped = picks_by_place(node, context)
    most = inputs if inputs is not None and inputs > 0 else _WIDE
    for longer in dict.fromkeys((min(2 * length, most), min(_WIDE, most))):
        if longer > length and dropped is not None:
            why = f"No longer cycle: {described(dropped)} would give other elements."
            yield Silence(NAME, node.id, why)
            return
        if longer > length:  # changes the order, so it is optional at best: one value is enough
            yield _rewrite(node, context, length=longer, calls=AUTOTUNE)


def _calls(cycle_length: int, cores: int) -> tuple[int, ...]:
    """Returns the candidates that the runtime accepts: at most the cycle length."""
    numbers = (n for n in (2, max(2, cores)) if n <= cycle_length)
    return tuple(dict.fromkeys((AUTOTUNE, *numbers)))


def _rewrite(node: Node, context: RuleContext, *, length: int, calls: int) -> Rewrite:
    same_order = length == cycle_length_in_force(node, context)
    in_order = deterministic(node, context)
    python, random = runs_python(node), draws(node)
    block = block_length_in_force(node)
    wanted = {"cycle_length": length, "block_length": block, "num_parallel_calls": calls}
    edits: list[Edit] = [
        SetArgument(node.id, name, value) for name, value in wanted.items() if node.argument(name) != value
    ]
    safety = in_parallel = parallel_safety(node, context)
    notes = []
    if python:
        safety = max(safety, Safety.STATISTICAL)
        notes.append("The inner datasets run Python: their code takes turns at the interpreter lock.")
    elif random:
        notes.append("Parallel readers take their random draws in the order they happen to run.")
    if not same_order:
        safety = max(safety, Safety.REORDERS)
        notes.append(
            f"The cycle length grows from {cycle_length_in_force(node, context)} to {length}: another order."
        )
    calls_text = "AUTOTUNE readers" if calls == AUTOTUNE else f"{calls} readers"
    kept = "the order stays" if same_order and in_order else "the order changes"
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=safety,
        edits=tuple(edits),
        summary=f"Read with {calls_text} at a time, cycle length {length}, block length {block}; {kept}.",
        needs=frozenset({Consent.PYTHON_PARALLEL}) if python else frozenset(),
        group=f"{NAME}@{node.id}",
        reproducible=not python and in_parallel is Safety.EXACT,
        notes=tuple(notes),
        predicted_bytes=_buffers(node, context, length=length, block=block),
    )


def _buffers(node: Node, context: RuleContext, *, length: int, block: int) -> float:
    """Returns bytes at the kernel's limit: (2 L waiting inner datasets + L in the cycle) x (2 B + 1) elements each."""
    size = bytes_per_element(context, node.id)
    return 0.0 if size is None else size * 3 * length * (2 * block + 1)


RULE = Rule(
    name=NAME,
    summary="Lets `interleave` read several of its inner datasets at once, and offers a longer cycle.",
    legality=(
        "`cycle_length` and `block_length` are always written out with the values in force, because the "
        "default depends on the cores and changes when parallel calls are added. Parallel calls never exceed "
        "the cycle length, which the runtime refuses. Never where the function uses a variable, a table that "
        "can change or a side effect, where nothing is known about it, or where there is one inner dataset. "
        "No longer cycle above a take, skip or shard, which would give other elements. "
        "Inner datasets that run Python (from_generator, py_function) need --allow python-parallel."
    ),
    safety=(
        "EXACT with the cycle and block length in force: parallel and serial interleave then agree element "
        "by element. STATISTICAL where inner datasets draw random numbers or run Python. REORDERS with a "
        "longer cycle. `deterministic=False` counts as in parallel-map."
    ),
    propose=propose,
)
