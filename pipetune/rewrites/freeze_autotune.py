"""`freeze-autotune`: write the values that AUTOTUNE settled on into the script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.core.edits import Edit, Insert, NoProposal, Rewrite, Safety, SetArgument
from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.core.results import BUFFER_SIZE, PARALLELISM, AutotuneValues, TunedValue
from pipetune.rewrites.parallel_reads import effective_block_length, effective_cycle_length
from pipetune.rewrites.rule import (
    Rule,
    RuleContext,
    describe_state,
    describe_training_state,
    is_stateless,
    last_active_operator,
    parallel_safety,
    runs_python,
)

NAME = "freeze-autotune"

_TUNED_ARGUMENTS = ("num_parallel_calls", "num_parallel_reads")
_GROWING_SHARE = 0.5
"""A buffer that last grew after this share of the observed time is considered to be still growing."""


@dataclass(frozen=True)
class _FrozenValues:
    """The edits at one operator, or why there are none."""

    edits: tuple[Edit, ...] = ()
    text: str = ""  # "map num_parallel_calls=2"
    safety: Safety = Safety.EXACT
    why: str = ""


def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields one rewrite with all values that AUTOTUNE settled on, and why operators are left to AUTOTUNE."""
    output = context.pipeline.output
    reading = context.autotune_reading
    if (general := _nothing_to_freeze(context, reading)) or reading is None:
        yield NoProposal(NAME, output.id, general)
        return
    found = {node.id: _freeze_at(node, reading, context) for node in context.pipeline}
    for name, one in found.items():
        if one.why:
            yield NoProposal(NAME, name, f"{context.pipeline[name].title} is left to AUTOTUNE: {one.why}.")
    frozen = [one for one in (*found.values(), _injected_prefetch(reading, context)) if one.edits]
    if not frozen:
        return
    safety = max(one.safety for one in frozen)
    yield Rewrite(
        rule=NAME,
        node=output.id,
        safety=safety,
        edits=tuple(edit for one in frozen for edit in one.edits),
        summary=f"Fix the values that AUTOTUNE settled on: {', '.join(one.text for one in frozen)}.",
        group=f"{NAME}@{output.id}",
        reproducible=safety is Safety.EXACT,
        notes=(
            f"In effect after {reading.seconds:.1f} s, with the cores of this machine.",
            "The speed that AUTOTUNE reaches is available from the first element on, and is the same in every run.",
        ),
    )


def _nothing_to_freeze(context: RuleContext, reading: AutotuneValues | None) -> str:
    if context.pipeline.options.get("autotune.enabled") is False:
        return "AUTOTUNE is switched off: the script sets every value itself."
    if reading is None:
        return "It is unknown what AUTOTUNE chose: the pipeline was not observed."
    if not any(value.tunable for value in reading.values):
        return reading.note or "There is no value for AUTOTUNE to choose."
    if context.detected_cores is not None and context.detected_cores > context.cores:
        detected = f"AUTOTUNE detected {context.detected_cores} cores, but {context.cores} are available"
        return f"{detected}: its values would suit another machine (see granted-cores)."
    if not reading.converged:
        return f"AUTOTUNE had not settled after {reading.seconds:.1f} s: its values were still changing."
    return ""


def _freeze_at(node: Node, reading: AutotuneValues, context: RuleContext) -> _FrozenValues:
    """Returns the edits at `node`; none, and no reason, if AUTOTUNE does not control it."""
    if node.op == "prefetch":
        return _buffer(node, reading) if node.argument("buffer_size") == AUTOTUNE else _FrozenValues()
    tuned = [name for name in _TUNED_ARGUMENTS if node.argument(name) == AUTOTUNE]
    value = reading.value(node.id, PARALLELISM)
    made_parallel = node.op == "map" and node.argument("num_parallel_calls") is None and bool(value and value.tunable)
    if not tuned and not made_parallel:
        return _FrozenValues()
    if operator_facts(node.op).parallel_argument != "num_parallel_calls":
        why = "its value is also the number of files that are mixed, so fixing it would change the order"
        return _FrozenValues(why=why)
    if value is None or not value.tunable:
        return _FrozenValues(why="the runtime reports no value for it")
    if forbidden := _forbidden(node):
        return _FrozenValues(why=forbidden)
    number = max(1, round(value.value))
    if node.op == "interleave":
        return _interleave(node, number, context)
    if made_parallel and not is_stateless(node):
        return _FrozenValues(why="TensorFlow made it parallel, and it is not known to be stateless")
    return _set(node, {"num_parallel_calls": number}, parallel_safety(node, context))


def _forbidden(node: Node) -> str:
    if node.function is None and operator_facts(node.op).takes_function:
        return "nothing is known about its function"
    if runs_python(node):
        return "its function runs Python, which more calls do not make parallel"
    state = describe_state(node)
    return f"its function {state}" if state else ""


def _interleave(node: Node, number: int, context: RuleContext) -> _FrozenValues:
    """Sets the cycle length together with the calls: its default depends on them, and the order depends on it."""
    length = effective_cycle_length(node, context)
    if number > length:
        return _FrozenValues(why=f"{number} calls exceed its cycle length of {length}, which would change the order")
    values = {"cycle_length": length, "block_length": effective_block_length(node), "num_parallel_calls": number}
    changed = {name: value for name, value in values.items() if node.argument(name) != value}
    return _set(node, changed, parallel_safety(node, context))


def _buffer(node: Node, reading: AutotuneValues) -> _FrozenValues:
    value = reading.value(node.id, BUFFER_SIZE)
    if value is None or not value.tunable:
        return _FrozenValues(why="the runtime reports no value for it")
    why = _unsettled(value, reading)
    return _FrozenValues(why=why) if why else _set(node, {"buffer_size": round(value.value)}, Safety.EXACT)


def _injected_prefetch(reading: AutotuneValues, context: RuleContext) -> _FrozenValues:
    """Adds the prefetch that TensorFlow injects at the end to the script."""
    if last_active_operator(context.pipeline).op == "prefetch":
        return _FrozenValues()
    value = next((one for one in reading.added if one.kernel == "Prefetch" and one.parameter == BUFFER_SIZE), None)
    if value is None or not value.tunable or _unsettled(value, reading):
        return _FrozenValues()
    if any(map(describe_training_state, context.pipeline)):
        return _FrozenValues()  # TensorFlow prefetches anyway; the script need not request it
    output, size = context.pipeline.output.id, round(value.value)
    edit = Insert(output, "prefetch", f"prefetch@{output}", {"buffer_size": size})
    return _FrozenValues((edit,), f"prefetch({size}) at the end")


def _unsettled(value: TunedValue, reading: AutotuneValues) -> str:
    if round(value.value) < 1:
        return "its buffer was never filled, so there is no size to write"
    if value.moved_seconds is not None and value.moved_seconds > _GROWING_SHARE * reading.seconds:
        return f"its buffer was still growing after {value.moved_seconds:.1f} s"
    return ""


def _set(node: Node, values: dict[str, int], safety: Safety) -> _FrozenValues:
    words = f"{node.title} {', '.join(f'{name}={value}' for name, value in values.items())}"
    return _FrozenValues(tuple(SetArgument(node.id, name, value) for name, value in values.items()), words, safety)


RULE = Rule(
    name=NAME,
    summary="Replaces AUTOTUNE in the script by the values that it settled on.",
    legality=(
        "Only if AUTOTUNE's values were stable while the pipeline was observed. Written are the parallel calls "
        "of `map`, `batch` and `interleave`, the size of `prefetch`, and the parallel calls and the prefetch "
        "that TensorFlow's default passes add. For an `interleave`, the effective cycle and block length are "
        "written as well, because its order would change otherwise. Left to AUTOTUNE: functions that run "
        "Python, use a variable, a mutable table or a side effect, functions about which nothing is known, "
        "readers whose number of parallel reads is also the number of files that they mix, and buffers that "
        "are still growing. It enters the plan only if it is proven faster by itself."
    ),
    safety=(
        "EXACT: only numeric settings change. STATISTICAL if one is the number of calls of a random function "
        "that is already parallel: which draw meets which element depends on timing, before and after."
    ),
    propose=propose,
    order=2,  # after the rules that move operators: the values belong to the original pipeline
)
