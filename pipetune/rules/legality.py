"""Questions several rules ask of an operator before they touch it. In doubt the answer forbids."""

from __future__ import annotations

from collections.abc import Iterable

from pipetune.core.edits import Safety
from pipetune.core.operators import CAUTIOUS, OperatorFacts, facts, is_dataset_kernel, public_name
from pipetune.core.pipeline import Node, Pipeline
from pipetune.rules.base import RuleContext


def inner_facts(node: Node) -> tuple[OperatorFacts, ...]:
    """Facts of the operators that an interleave or flat_map function makes, in what it calls included."""
    called = node.function.operations if node.function else ()
    names = dict.fromkeys((*node.inner, *filter(is_dataset_kernel, called)))
    return tuple(facts(public_name(name)) for name in names)


def runs_python(node: Node) -> bool:
    """Whether the operator or its function runs Python code when an element passes."""
    if facts(node.op).python or any(inner.python for inner in inner_facts(node)):
        return True
    if node.function is None:
        return facts(node.op).takes_function
    return node.function.python


def draws(node: Node) -> bool:
    """Whether the operator or its function draws random numbers."""
    if facts(node.op).random or any(inner.random for inner in inner_facts(node)):
        return True
    if node.function is None:
        return facts(node.op).takes_function
    return node.function.random or node.function.random_python


def keeps_state(node: Node) -> str:
    """What the function of `node` shares with the world outside, in words; empty if nothing.

    A Python function may share anything; that is `runs_python`, not this.
    """
    function = node.function
    if function is None:
        return "has a function nothing is known about" if facts(node.op).takes_function else ""
    if function.writes_variables:
        return "writes a variable"
    if function.reads_variables:
        return f"reads the variable {function.reads_variables[0]}"
    if function.mutable_tables:
        return "uses a table that can change"
    if function.side_effects:
        return f"has a side effect ({function.side_effects[0]})"
    return ""


def reaches_outside(node: Node) -> str:
    """What keeps the function of `node` from being called otherwise than the script does, in words; empty if nothing.

    Python code, or what `keeps_state` names.
    """
    return "runs Python" if runs_python(node) else keeps_state(node)


def stateless(node: Node) -> bool:
    """Whether what `node` puts out depends on the element it gets alone, and leaves nothing behind."""
    return not (runs_python(node) or draws(node) or keeps_state(node))


def trained_state(node: Node, context: RuleContext) -> str:
    """What the function of `node` reads or writes that training may touch too, in words; empty if nothing."""
    function = node.function
    if function is None:
        return "has a function nothing is known about" if facts(node.op).takes_function else ""
    for variable in function.reads_variables:
        if context.trained_variables is None or variable in context.trained_variables:
            return f"reads the variable {variable}, which training may change"
    generator_known = function.random_python and context.trained_variables is not None
    if function.writes_variables and not generator_known:  # a generator's state is its own
        return "writes a variable that training may read"
    if function.mutable_tables:
        return "uses a table that training may write"
    return ""


def deterministic(node: Node, context: RuleContext) -> bool:
    """Whether `node` hands elements on in order when it runs in parallel."""
    own = node.argument("deterministic")
    if own is None:
        return order_asked_for(context)
    return own is True or own == "true"


def order_asked_for(context: RuleContext) -> bool:
    """False where `options.deterministic = False` is set, on the output or on the way to it."""
    said = [context.pipeline.options.get("deterministic")]
    said += [node.argument("deterministic") for node in context.pipeline if node.op == "with_options"]
    return False not in said


def runs_parallel(node: Node) -> bool:
    """Whether the user asked for parallel calls at `node`."""
    if node.op == "TFRecordDataset":
        return node.argument("num_parallel_reads") is not None
    name = facts(node.op).parallel_argument
    return bool(name) and node.argument(name) is not None


def parallel_safety(node: Node, context: RuleContext) -> Safety:
    """The class of running `node` with other parallelism, everything else kept.

    Where the script gave the order up (`deterministic=False`), elements overtake each other before and after: a
    rewrite is judged, and compared, as if none did. That they may begin to is another order of those the script
    allows, as long as it says so of the whole pipeline; an argument of a serial call changes nothing today.
    """
    drawn = Safety.STATISTICAL if draws(node) else Safety.EXACT
    if deterministic(node, context) or runs_parallel(node):
        return drawn
    return Safety.STATISTICAL if node.argument("deterministic") is None else Safety.REORDERS


def short_batch_overtakes(batch: Node, maps: Iterable[Node], context: RuleContext) -> bool:
    """Whether the last batch of an epoch, which may hold fewer elements, could come before others behind `maps`."""
    if batch.argument("drop_remainder"):
        return False
    return any(not deterministic(node, context) for node in maps)  # TensorFlow makes serial ones parallel


def class_of_overtaking(batch: Node, *, in_order: bool) -> Safety:
    """The class of batches that begin to overtake each other where the script gave the order up, and not before."""
    if in_order:
        return Safety.EXACT
    return Safety.STATISTICAL if batch.argument("drop_remainder") else Safety.REORDERS


_ASSERTIONS = frozenset({"Assert", "CheckNumerics", "CheckNumericsV2"})


def asserts(node: Node) -> bool:
    """Whether the function of `node` raises on purpose, at elements that it finds wrong."""
    return node.function is not None and not _ASSERTIONS.isdisjoint(node.function.operations)


def is_unknown(node: Node) -> bool:
    return facts(node.op) is CAUTIOUS


_IDLE = frozenset({"with_options", "assert_cardinality"})
"""Operators that do no work of their own."""


def last_working(pipeline: Pipeline) -> Node:
    """The last operator that does something to elements: `prefetch` before `with_options` is still last."""
    node = pipeline.output
    while node.op in _IDLE and len(node.inputs) == 1:
        node = pipeline[node.inputs[0]]
    return node


def described(node: Node) -> str:
    """How a sentence names an operator: `map (train.py:12)`."""
    return f"{node.title} ({node.location})" if node.location else node.title


DROPS_BY_PLACE = frozenset({"take", "skip", "shard"})
"""Operators that let an element through or not by its place alone, whatever is in it."""

POSITIONAL = DROPS_BY_PLACE | {"take_while", "zip", "enumerate", "scan", "window"}
"""Operators that give other elements, not only another order, where those above come in another order."""


def picks_by_place(node: Node, context: RuleContext, *, among: frozenset[str] = DROPS_BY_PLACE) -> Node | None:
    """The first operator below that lets other elements through where those above come in another order.

    A skip of a job that goes on is none, and a shard of one neither. For an order that a comparison does not see,
    because it is drawn, `among` is `POSITIONAL`: all that gives other elements.
    """
    resumed = {one.node for one in context.resuming}
    below = context.pipeline.downstream(node.id)
    picking = (one for one in below if one.op in among and one.argument("num_shards") != 1)
    return next((one for one in picking if one.id not in resumed), None)
