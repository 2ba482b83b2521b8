"""`parallel-map`: set how many calls of a map function run at once."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Consent, Rewrite, Safety, SetArgument, Silence
from pipetune.core.pipeline import AUTOTUNE, Node, Value
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import (
    deterministic,
    draws,
    keeps_state,
    parallel_safety,
    runs_python,
    stateless,
)
from pipetune.rules.pricing import buffer_bytes
from pipetune.rules.python_ceiling import ceiling, works_in_python

NAME = "parallel-map"


def candidate_numbers(cores: int) -> tuple[int, ...]:
    """Returns the parallel calls to try: AUTOTUNE, two, and one call per available core."""
    return tuple(dict.fromkeys((AUTOTUNE, 2, max(2, cores))))


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        if node.op != "map":
            continue
        why = _forbidden(node)
        if why:
            yield Silence(NAME, node.id, f"Not run in parallel: {why}.")
            continue
        if works_in_python(node, context):
            yield Silence(NAME, node.id, f"Not run in parallel: {ceiling(node, context)}")
            continue
        for number in candidate_numbers(context.cores):
            if number == node.argument("num_parallel_calls"):
                continue
            if number == AUTOTUNE and tensorflow_does_it(node, context):
                yield Silence(NAME, node.id, "TensorFlow already runs this map in parallel, with AUTOTUNE.")
                continue
            yield _rewrite(node, context, number)


def tensorflow_does_it(node: Node, context: RuleContext) -> bool:
    """Whether TensorFlow's default optimizations turn this serial map into an autotuned parallel one."""
    if node.argument("num_parallel_calls") is not None:
        return False
    if node.id in context.fused:
        kernel = context.fused[node.id]
        return kernel.startswith("ParallelMap") or (kernel == "MapAndBatch" and stateless(node))
    options: dict[str, Value] = dict(context.pipeline.options)
    prefix = "experimental_optimization."
    switched_off = (
        options.get(prefix + "apply_default_optimizations") is False
        or options.get(prefix + "map_parallelization") is False
        or options.get("autotune.enabled") is False
    )
    return stateless(node) and not switched_off


def _forbidden(node: Node) -> str:
    if node.argument("synchronous") is True:
        return "the script asks for a synchronous map"
    if node.function is None:
        return "nothing is known about its function"
    state = keeps_state(node)
    return f"its function {state}, and calls side by side would meet there" if state else ""


def _rewrite(node: Node, context: RuleContext, number: int) -> Rewrite:
    python = runs_python(node)
    safety = max(parallel_safety(node, context), Safety.STATISTICAL if python else Safety.EXACT)
    notes = []
    if draws(node):
        notes.append("Parallel calls take their random draws in the order they happen to run.")
    if python:
        notes.append(
            "Its function runs Python: calls take turns at the interpreter lock, and it must be thread-safe."
        )
    if not deterministic(node, context):
        notes.append("`deterministic=False` is set: elements may overtake each other.")
    calls = "as many calls as AUTOTUNE finds useful" if number == AUTOTUNE else f"{number} calls"
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=safety,
        edits=(SetArgument(node.id, "num_parallel_calls", number),),
        summary=f"Run the map function in {calls} at a time.",
        needs=frozenset({Consent.PYTHON_PARALLEL}) if python else frozenset(),
        group=f"{NAME}@{node.id}",
        reproducible=safety is Safety.EXACT,
        notes=tuple(notes),
        predicted_bytes=buffer_bytes(context, node.id, context.cores if number == AUTOTUNE else number),
    )


RULE = Rule(
    name=NAME,
    summary="Runs a map function for several elements at once: AUTOTUNE, two, or one call per core granted.",
    legality=(
        "Allowed where the function depends on its element alone, or draws random numbers. Never where it "
        "reads or writes a variable, uses a table that can change, prints, writes a file or has another side "
        "effect, where nothing is known about it, or where the script asks for `synchronous=True`. A "
        "function that runs Python (py_function, numpy_function) needs --allow python-parallel, and is left alone "
        "where it is measured to work more than it waits: its calls hold the interpreter's lock in turn, and the "
        "most it can give is said. AUTOTUNE is not proposed where TensorFlow's defaults do it already."
    ),
    safety=(
        "EXACT for a function without randomness: elements keep their order. STATISTICAL for a random or "
        "Python function: which draw meets which element depends on timing, so the result no longer repeats "
        "from run to run; and for a serial map of a script that sets `options.deterministic=False`, whose elements "
        "may then overtake each other. REORDERS where a serial map says `deterministic=False` itself."
    ),
    propose=propose,
)
