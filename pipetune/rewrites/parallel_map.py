"""`parallel-map`: set how many calls of a map function run at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pipetune.core.edits import Consent, NoProposal, Rewrite, Safety, SetArgument
from pipetune.core.functions import PYTHON_CALLS
from pipetune.core.operators import FLATTENING
from pipetune.core.pipeline import AUTOTUNE, INFINITE, Node
from pipetune.core.profile import Finding, finding_at
from pipetune.rewrites.cache_places import MIN_EPOCHS, available_cache_bytes
from pipetune.rewrites.legality import (
    describe_operator,
    describe_state,
    draws_random_numbers,
    keeps_order,
    parallel_safety,
    runs_python,
    tensorflow_parallelizes,
)
from pipetune.rewrites.pricing import buffer_bytes, bytes_per_element, element_count, format_bytes, format_seconds
from pipetune.rewrites.rule import Rule, RuleContext

NAME = "parallel-map"


def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields, for every map, the numbers of parallel calls to try, or why there is none."""
    for node in context.pipeline:
        if node.op != "map":
            continue
        if why := _forbidden(node):
            yield NoProposal(NAME, node.id, f"Not run in parallel: {why}.")
            continue
        if node.argument("num_parallel_calls") is not None and _is_bound_by_python(node, context):
            why = f"{_describe_throughput(node, context)} {_PYTHON_ALTERNATIVES}"
            yield NoProposal(NAME, node.id, f"No other number of calls: {why}")
            continue
        for number in dict.fromkeys((AUTOTUNE, 2, max(2, context.cores))):
            if number == node.argument("num_parallel_calls"):
                continue
            if number == AUTOTUNE and tensorflow_parallelizes(node, context):
                yield NoProposal(NAME, node.id, "TensorFlow already runs this map in parallel, with AUTOTUNE.")
                continue
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
    propose=propose,
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
    calls = node.function is not None and PYTHON_CALLS.intersection(node.function.operations)
    return node.op == "from_generator" or (node.op in FLATTENING and runs_python(node) and not calls)


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
    text += f", {waiting:.0%} of that waiting)." if waiting >= 0.05 else ")."
    step = context.profile.consumer.bound_seconds if context.profile is not None else None
    if measured.visits is not None and step:
        needed = measured.visits * seconds
        many = f"{needed / step:.0%} of" if needed / step < 2 else f"{needed / step:,.1f} times"
        text += f" Per training step, that is {format_seconds(needed)}, {many} what the model needs."
    return text
