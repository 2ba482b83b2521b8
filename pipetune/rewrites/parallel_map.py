"""`parallel-map` and `serial-map`: how many calls of a map function run at once; advice on Python code."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pipetune.core.edits import Consent, NoProposal, Rewrite, Safety, SetArgument, SetOption
from pipetune.core.functions import PYTHON_CALLS
from pipetune.core.measurement import percent
from pipetune.core.operators import FLATTENING, OPTION
from pipetune.core.pipeline import AUTOTUNE, INFINITE, Node
from pipetune.core.profile import Finding, finding_at
from pipetune.rewrites.cache_places import MIN_EPOCHS, available_cache_bytes
from pipetune.rewrites.pricing import buffer_bytes, bytes_per_element, element_count, format_bytes, format_seconds
from pipetune.rewrites.rule import (
    Rule,
    RuleContext,
    at_each,
    describe_operator,
    describe_state,
    draws_random_numbers,
    is_stateless,
    keeps_order,
    parallel_safety,
    runs_python,
    tensorflow_parallelizes,
)

PARALLEL_MAP = "parallel-map"


@at_each("map")
def propose_parallel_map(node: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the numbers of parallel calls to try for a map, or why there is none."""
    if why := _forbidden(node):
        yield NoProposal(PARALLEL_MAP, node.id, f"Not run in parallel: {why}.")
        return
    if node.argument("num_parallel_calls") is not None and _is_bound_by_python(node, context):
        why = f"{_describe_throughput(node, context)} {_PYTHON_ALTERNATIVES}"
        yield NoProposal(PARALLEL_MAP, node.id, f"No other number of calls: {why}")
        return
    for number in dict.fromkeys((AUTOTUNE, 2, max(2, context.cores))):
        if number == AUTOTUNE and tensorflow_parallelizes(node, context):
            yield NoProposal(PARALLEL_MAP, node.id, "TensorFlow already runs this map in parallel, with AUTOTUNE.")
        elif number != node.argument("num_parallel_calls"):
            yield _rewrite(node, context, number)


def _forbidden(node: Node) -> str:
    if node.argument("synchronous") is True:
        return "the script requests a synchronous map"
    if node.function is None:
        return "nothing is known about its function"
    state = describe_state(node)
    return f"its function {state}, which parallel calls would share" if state else ""


def _rewrite(node: Node, context: RuleContext, number: int) -> Rewrite:
    python = runs_python(node)
    safety = max(parallel_safety(node, context), Safety.STATISTICAL if python else Safety.EXACT)
    notes = []
    if draws_random_numbers(node):
        notes.append("Parallel calls draw random numbers in the order in which they happen to run.")
    if python:
        notes.append("Its function runs Python: it must be thread-safe, and gains only where it releases the GIL.")
    if not keeps_order(node, context):
        notes.append("`deterministic=False` is set: elements may overtake each other.")
    calls = "as many calls as AUTOTUNE finds useful" if number == AUTOTUNE else f"{number} calls"
    return Rewrite(
        rule=PARALLEL_MAP,
        node=node.id,
        safety=safety,
        edits=(SetArgument(node.id, "num_parallel_calls", number),),
        summary=f"Run the map function in {calls} at a time.",
        needs=frozenset({Consent.PYTHON_PARALLEL}) if python else frozenset(),
        group=f"{PARALLEL_MAP}@{node.id}",
        reproducible=safety is Safety.EXACT,
        notes=tuple(notes),
        predicted_bytes=buffer_bytes(context, node.id, context.cores if number == AUTOTUNE else number),
    )


PARALLEL_MAP_RULE = Rule(
    name=PARALLEL_MAP,
    summary="Runs a map function for several elements at once: AUTOTUNE, two, or one call per available core.",
    legality=(
        "Allowed if the function depends on its element alone, or draws random numbers. Never if it reads or writes a "
        "variable, uses a mutable table, prints, writes a file or has another side effect, if nothing is known about "
        "it, or if the script sets `synchronous=True`; nor behind a map that reads what training may change, unless "
        "TensorFlow already runs it in parallel. A function that runs Python (py_function, numpy_function) needs "
        "--allow python-parallel; once its calls run in parallel, their number is left alone if they are measured to "
        "work more than they wait. AUTOTUNE is not proposed if TensorFlow's defaults already apply it."
    ),
    safety=(
        "EXACT for a function without randomness: elements keep their order. STATISTICAL for a random or "
        "Python function: which draw meets which element depends on timing, so results differ from run to run; "
        "and for a serial map of a script that sets `options.deterministic=False`, whose elements may then "
        "overtake each other. REORDERS if a serial map sets `deterministic=False` itself."
    ),
    propose=propose_parallel_map,
)


SERIAL_MAP = "serial-map"

_OPTION = f"{OPTION}map_parallelization"

_LONGEST_SECONDS = 30e-6
"""CPU seconds of a call up to which handing it to another thread may cost more than running it.

Measured on two cores: the function of 3.4 us that `sample_from_datasets` maps costs 73 us of CPU time per element in
TensorFlow's own parallel map, 14 us in a serial one.
"""


def propose_serial_map(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the option that turns TensorFlow's own parallel maps off, with and without maps that the script runs so.

    Yields the reason instead where one of TensorFlow's own parallel maps has a function that is too long for that.
    """
    automatic = [node for node in context.pipeline if tensorflow_parallelizes(node, context)]
    for node in automatic:
        seconds = _cpu_seconds(node, context)
        if seconds is None:
            return
        if seconds > _LONGEST_SECONDS:
            suits = f"which suits calls of {format_seconds(seconds)}"
            why = f"TensorFlow runs {describe_operator(node)} in parallel, {suits}."
            yield NoProposal(SERIAL_MAP, context.pipeline.output.id, why)
            return
    explicit = [node for node in context.pipeline if _is_short_in_parallel(node, context)]
    if automatic:
        yield _serial_rewrite(context, automatic, ())
    if explicit:
        yield _serial_rewrite(context, automatic, explicit)


def _is_short_in_parallel(node: Node, context: RuleContext) -> bool:
    """Whether the script asks for parallel calls of a short function, and for nothing but its order."""
    if node.op != "map" or node.argument("num_parallel_calls") in (None, 1) or not is_stateless(node):
        return False
    seconds = _cpu_seconds(node, context)
    return node.argument("deterministic") is None and seconds is not None and seconds <= _LONGEST_SECONDS


def _cpu_seconds(node: Node, context: RuleContext) -> float | None:
    measured = context.measured(node.id)
    return measured.cpu_seconds if measured is not None else None


def _serial_rewrite(context: RuleContext, automatic: Sequence[Node], explicit: Sequence[Node]) -> Rewrite:
    output = context.pipeline.output
    names = ", ".join(describe_operator(node) for node in (*automatic, *explicit))
    by_itself = "" if explicit else ", by itself"
    return Rewrite(
        rule=SERIAL_MAP,
        node=output.id,
        safety=Safety.EXACT,
        edits=(*(SetArgument(node.id, "num_parallel_calls", None) for node in explicit), SetOption(_OPTION, False)),
        summary=f"Run {names} in one thread: TensorFlow hands each of these short calls to another thread{by_itself}.",
        group=f"{SERIAL_MAP}@{output.id}",
    )


SERIAL_MAP_RULE = Rule(
    name=SERIAL_MAP,
    summary="Runs short map functions in one thread, where TensorFlow or the script runs them in parallel.",
    legality=(
        "Only where TensorFlow's default optimizations run a map without num_parallel_calls in parallel, and only if "
        f"every such function takes {format_seconds(_LONGEST_SECONDS)} of CPU time at most. Maps that TensorFlow's "
        "functions make count, too: sample_from_datasets has one, called once for each element. A map with "
        "num_parallel_calls loses it in a second proposal if its function is as short and stateless, and the map does "
        "not set deterministic."
    ),
    safety="EXACT: the same calls on the same elements in the same order.",
    propose=propose_serial_map,
)


_MAX_BLOCKED_SHARE = 0.5
"""Maximum blocked share of time of Python code that counts as working: while blocked, others can hold the GIL."""

_MIN_INPUT_SHARE = 0.1
"""Minimum share of the input's time for Python code to be worth rewriting: the same as for Keras layers in maps."""

_PYTHON_ALTERNATIVES = (
    "What can help: implement it with TensorFlow ops (tf.io.read_file, tf.io.decode_*, tf.image), or use "
    "several processes (a tf.data service, or multiprocessing that writes TFRecords once)."
)


_GENERATOR_ALTERNATIVES = (
    "A generator that iterates over lists and loads each item can be replaced by a source and a map: "
    "`tf.data.Dataset.from_tensor_slices((paths, labels)).map(load, num_parallel_calls=tf.data.AUTOTUNE)`, "
    "where `load(path, label)` uses TensorFlow ops (tf.io.read_file, tf.io.decode_jpeg, tf.image). If it needs "
    "Python: use several processes (a tf.data service), or write its elements to TFRecords once and read those."
)


def suggest_python_alternatives(context: RuleContext, *, cached: Collection[str] = ()) -> Iterator[Finding]:
    """Yields advice on generators and maps whose Python code takes a large share of the input's time.

    It makes no edit: what Python code does cannot be proven, so pipetune never rewrites it. Operators upstream of a
    cache in the plan, `cached`, need no advice.
    """
    seconds = context.profile.input_wall_seconds if context.profile is not None else None
    for node in context.pipeline:
        measured = context.measured(node.id)
        if measured is None or not measured.wall_seconds or not measured.visits:
            continue
        if not seconds or measured.wall_seconds * measured.visits < _MIN_INPUT_SHARE * seconds or node.id in cached:
            continue
        if _starts_generators(node):
            why = _describe_throughput(node, context)
            hint = f"{_GENERATOR_ALTERNATIVES}{_cache_to_approve(node, context)}"
            yield finding_at("python-generator", node, why, hint=hint)
        elif node.op == "map" and _is_bound_by_python(node, context):
            hint = f"{_PYTHON_ALTERNATIVES}{_cache_to_approve(node, context)}"
            yield finding_at("python-map", node, _describe_throughput(node, context), hint=hint)


def _starts_generators(node: Node) -> bool:
    """Whether Python generators yield the elements: its own, or one for each element of its input."""
    operations = frozenset(node.function.operations if node.function is not None else ())
    # A generator with arguments also calls Python itself.
    makes = "GeneratorDataset" in operations or operations.isdisjoint(PYTHON_CALLS)
    return node.op == "from_generator" or (node.op in FLATTENING and runs_python(node) and makes)


def _cache_to_approve(node: Node, context: RuleContext) -> str:
    """Returns the sentence on a cache after Python code, which needs approval; "" if it would not help."""
    elements, size = element_count(context, node.id), bytes_per_element(context, node.id)
    above, below = context.pipeline.upstream(node.id), context.pipeline.downstream(node.id)
    read_once = context.partial_read or (context.epochs is not None and context.epochs < MIN_EPOCHS)
    cached = any(one.op in ("cache", "repeat") for one in above) or any(one.op == "cache" for one in below)
    if elements == INFINITE or size is None or read_once or cached:
        return ""
    if elements is not None and elements * size > available_cache_bytes(context):
        return ""
    measured = context.measured(node.id)
    if measured is not None and measured.varies:
        return " It gave other elements when it was read again: a cache would give every epoch those of the first."
    count = elements if elements is not None else 1000
    shuffled = any(one.op == "shuffle" for one in above)
    where = "put it in front of shuffle(), with a cache() between the two" if shuffled else "put a cache() after it"
    return (
        " If it returns the same for the same element in every epoch, which pipetune cannot prove of Python code, "
        f"{where}: {count:,} elements take {format_bytes(count * size)} of memory. --allow python-cache measures it."
    )


def _is_bound_by_python(node: Node, context: RuleContext) -> bool:
    """Whether the operator runs Python measured to work more than it waits; False if waiting was not measured."""
    measured = context.measured(node.id)
    if measured is None or measured.waiting_seconds is None or not measured.wall_seconds or not runs_python(node):
        return False
    return measured.waiting_seconds <= _MAX_BLOCKED_SHARE * measured.wall_seconds


def _describe_throughput(node: Node, context: RuleContext) -> str:
    """Returns the maximum throughput of the Python code, compared with a training step, in words."""
    held = f"{describe_operator(node)} runs Python, whose calls take turns wherever they hold the GIL."
    measured = context.measured(node.id)
    if measured is None or not measured.wall_seconds:
        return held
    seconds = measured.wall_seconds
    waiting = (measured.waiting_seconds or 0.0) / seconds
    text = f"{held} One after another, they give at most {1 / seconds:,.0f} elements/s ({format_seconds(seconds)} each"
    text += f", {percent(waiting)} of that waiting)." if waiting >= 0.05 else ")."
    step = context.profile.consumer.bound_seconds if context.profile is not None else None
    if measured.visits is not None and step:
        needed = measured.visits * seconds
        many = f"{percent(needed / step)} of" if needed / step < 2 else f"{needed / step:,.1f} times"
        text += f" Per training step, that is {format_seconds(needed)}, {many} what the model needs."
    return text
