"""`freeze-autotune`: write the values that AUTOTUNE settled on into the script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.core.autotuned import BUFFER_SIZE, PARALLELISM, AutotuneReading, TunedValue
from pipetune.core.edits import Edit, Insert, Rewrite, Safety, SetArgument, Silence
from pipetune.core.operators import facts
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import (
    keeps_state,
    last_working,
    parallel_safety,
    runs_python,
    stateless,
    trained_state,
)
from pipetune.rules.parallel_interleave import block_length_in_force, cycle_length_in_force

NAME = "freeze-autotune"

_TUNED_ARGUMENTS = ("num_parallel_calls", "num_parallel_reads")
_GROWING_SHARE = 0.5
"""A buffer that last grew after this share of the observed time is considered to be still growing."""


@dataclass(frozen=True)
class _Frozen:
    """The edits at one operator, or why there are none."""

    edits: tuple[Edit, ...] = ()
    words: str = ""  # "map num_parallel_calls=2"
    safety: Safety = Safety.EXACT
    why: str = ""


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    output = context.pipeline.output
    reading = context.autotuned
    general = _nothing_to_freeze(context, reading)
    if general or reading is None:
        yield Silence(NAME, output.id, general)
        return
    frozen: list[_Frozen] = []
    for node in context.pipeline:
        found = _at(node, reading, context)
        if found.why:
            yield Silence(NAME, node.id, f"{node.title} is left to AUTOTUNE: {found.why}.")
        if found.edits:
            frozen.append(found)
    ending = _injected_prefetch(reading, context)
    if ending.edits:
        frozen.append(ending)
    if not frozen:
        return
    safety = max(one.safety for one in frozen)
    yield Rewrite(
        rule=NAME,
        node=output.id,
        safety=safety,
        edits=tuple(edit for one in frozen for edit in one.edits),
        summary=f"Write down what AUTOTUNE settled on: {', '.join(one.words for one in frozen)}.",
        group=f"{NAME}@{output.id}",
        reproducible=safety is Safety.EXACT,
        notes=(
            f"Seen in force after {reading.seconds:.1f} s, with the cores of this machine.",
            "The speed is that of AUTOTUNE from the first element on, and the same in every run.",
        ),
        equal_is_enough=True,
    )


def _nothing_to_freeze(context: RuleContext, reading: AutotuneReading | None) -> str:
    if context.pipeline.options.get("autotune.enabled") is False:
        return "AUTOTUNE is switched off: every number is the script's own."
    if reading is None:
        return "It is not known what AUTOTUNE chose: the pipeline was not watched."
    if not any(value.tunable for value in reading.values):
        return reading.note or "There is no number that AUTOTUNE chooses."
    if context.cores_believed is not None and context.cores_believed > context.cores:
        return (
            f"AUTOTUNE counted on {context.cores_believed} cores where {context.cores} are granted: its numbers are "
            "those of another machine (see granted-cores)."
        )
    if not reading.converged:
        return f"AUTOTUNE had not settled after {reading.seconds:.1f} s: its numbers still moved."
    return ""


def _at(node: Node, reading: AutotuneReading, context: RuleContext) -> _Frozen:
    """Returns the edits at `node`; none, and no reason, if AUTOTUNE does not control it."""
    if node.op == "prefetch":
        return _buffer(node, reading) if node.argument("buffer_size") == AUTOTUNE else _Frozen()
    asked = [name for name in _TUNED_ARGUMENTS if node.argument(name) == AUTOTUNE]
    value = reading.value(node.id, PARALLELISM)
    made_parallel = node.op == "map" and node.argument("num_parallel_calls") is None and bool(value and value.tunable)
    if not asked and not made_parallel:
        return _Frozen()
    if node.op == "TFRecordDataset" or facts(node.op).parallel_argument != "num_parallel_calls":
        return _Frozen(why="a number there is also how many files are mixed, so it would change the order")
    if value is None or not value.tunable:
        return _Frozen(why="the runtime shows no number for it")
    forbidden = _forbidden(node)
    if forbidden:
        return _Frozen(why=forbidden)
    number = max(1, round(value.value))
    if node.op == "interleave":
        return _interleave(node, number, context)
    if made_parallel and not stateless(node):
        return _Frozen(why="TensorFlow made it parallel, and it is not known to be stateless")
    safety = parallel_safety(node, context)
    return _set(node, {"num_parallel_calls": number}, safety)


def _forbidden(node: Node) -> str:
    if node.function is None and facts(node.op).takes_function:
        return "nothing is known about its function"
    if runs_python(node):
        return "its function runs Python, which no number of calls makes parallel"
    state = keeps_state(node)
    return f"its function {state}" if state else ""


def _interleave(node: Node, number: int, context: RuleContext) -> _Frozen:
    """Sets the cycle length together with the calls: its default depends on them, and the order depends on it."""
    length = cycle_length_in_force(node, context)
    if number > length:
        return _Frozen(why=f"{number} calls exceed its cycle length of {length}, which would change the order")
    wanted = {"cycle_length": length, "block_length": block_length_in_force(node), "num_parallel_calls": number}
    changed = {name: value for name, value in wanted.items() if node.argument(name) != value}
    return _set(node, changed, parallel_safety(node, context))


def _buffer(node: Node, reading: AutotuneReading) -> _Frozen:
    value = reading.value(node.id, BUFFER_SIZE)
    if value is None or not value.tunable:
        return _Frozen(why="the runtime shows no number for it")
    why = _unsettled(value, reading)
    return _Frozen(why=why) if why else _set(node, {"buffer_size": round(value.value)}, Safety.EXACT)


def _injected_prefetch(reading: AutotuneReading, context: RuleContext) -> _Frozen:
    """Adds the prefetch that TensorFlow injects at the end to the script."""
    if last_working(context.pipeline).op == "prefetch":
        return _Frozen()
    value = next((one for one in reading.added if one.kernel == "Prefetch" and one.parameter == BUFFER_SIZE), None)
    if value is None or not value.tunable or _unsettled(value, reading):
        return _Frozen()
    if any(trained_state(node, context) for node in context.pipeline):
        return _Frozen()  # TensorFlow prefetches anyway; the script need not request it
    output, size = context.pipeline.output.id, round(value.value)
    edit = Insert(output, "prefetch", f"prefetch@{output}", {"buffer_size": size})
    return _Frozen((edit,), f"prefetch({size}) at the end")


def _unsettled(value: TunedValue, reading: AutotuneReading) -> str:
    if round(value.value) < 1:
        return "its buffer was never filled, so there is no size to write"
    if value.moved_seconds is not None and value.moved_seconds > _GROWING_SHARE * reading.seconds:
        return f"its buffer still grew after {value.moved_seconds:.1f} s"
    return ""


def _set(node: Node, values: dict[str, int], safety: Safety) -> _Frozen:
    words = f"{node.title} {', '.join(f'{name}={value}' for name, value in values.items())}"
    return _Frozen(tuple(SetArgument(node.id, name, value) for name, value in values.items()), words, safety)


RULE = Rule(
    name=NAME,
    summary="Writes the numbers AUTOTUNE settled on into the script, in AUTOTUNE's place.",
    legality=(
        "Only where AUTOTUNE's numbers stood still while the pipeline was watched. Written are the parallel calls of "
        "`map`, `batch` and `interleave`, the size of `prefetch`, and the parallel calls and the prefetch that "
        "TensorFlow's default passes add. An `interleave` gets its cycle and block length in force written out, or "
        "its order would change. Left to AUTOTUNE: functions that run Python, use a variable, a table that can "
        "change or a side effect, functions nothing is known about, readers whose number of parallel reads is also "
        "how many files they mix, buffers that still grow. It enters the plan only where it is proven faster by "
        "itself; measured not slower it is offered: the speed of AUTOTUNE without its warm-up, the same in every run."
    ),
    safety=(
        "EXACT: numbers only. STATISTICAL where one is the number of calls of a random function, which is parallel "
        "already: which draw meets which element depends on timing, before and after."
    ),
    propose=propose,
    turn=2,  # after the rules that move operators: the values belong to the original pipeline
)
