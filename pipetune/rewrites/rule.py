"""What a rule is (`Rule`: texts for users and a function from facts to proposals), what it knows (`RuleContext`), and
checks of operators that several rules share. When a fact is unknown, the rewrite is refused."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pipetune.core.edits import NoProposal, Rewrite, Safety
from pipetune.core.operators import (
    CAUTIOUS,
    DIVIDED_DOWNSTREAM,
    READERS,
    OperatorFacts,
    is_dataset_kernel,
    operator_facts,
    public_name,
    runs_pass,
)
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import Diagnosis, OperatorProfile, Profile
from pipetune.core.results import AutotuneValues, ResumePoint
from pipetune.core.storage import FileUse


@dataclass(frozen=True)
class RuleContext:
    """The facts available to a rule. Rules do not use TensorFlow: they turn facts into edits.

    Without a profile or a diagnosis, a rule proposes only rewrites that need neither.
    """

    pipeline: Pipeline
    profile: Profile | None = None
    diagnosis: Diagnosis | None = None
    cores: int = 1  # available to this process
    memory_limit_bytes: float = math.inf  # upper bound for the tuned pipeline
    randomness_fixed: bool = False  # the script sets a seed or requests determinism anywhere
    built_in_loop: frozenset[str] = frozenset()  # ids; a loop builds them in each iteration
    rebuilt_operators: frozenset[str] = frozenset()  # ids; of these, what the iteration reads once
    buildable_once: frozenset[str] = frozenset()  # ids; the loop that reads the data builds them alike each time
    python_repeats: bool = False  # Python functions and generators are taken to return the same in every epoch
    read_by_others: frozenset[str] = frozenset()  # ids; other datasets of the script read these very operators, too
    partial_read: bool = False  # a consumer stops before it has read one epoch of the data
    rewritten_file: str = ""  # a file that is read and that the script may write again while it trains
    elements_read: int | None = None  # of the output, by each iterator of a loop that may leave it early; None: all
    epochs: int | None = None  # total on this dataset; None: the script does not say, or may train again
    epochs_in_loop: int | None = None  # of `fit` in an iteration of a loop, which reads what the iteration has built
    steps_per_epoch: int | None = None  # output elements that the script requests per epoch
    fingerprint: str = ""  # of the original pipeline; "": use `pipeline.fingerprint`
    serial_cycle_length: int | None = None  # default cycle length of a serial interleave on this machine; None: `cores`
    detected_cores: int | None = None  # number of cores that AUTOTUNE detects; None: `cores`
    buffer_budget_bytes: int | None = None  # bytes; set if AUTOTUNE assumes more memory than is available
    autotune_reading: AutotuneValues | None = None  # values that AUTOTUNE chose for the original pipeline
    device: str = "cpu"  # used for training: "cpu", "gpu", "tpu"
    custom_training_loop: bool = False  # the script's own loop or step reads the dataset, without Keras or a strategy
    resuming: tuple[ResumePoint, ...] = ()  # how the script resumes an interrupted run
    observed_kernels: Mapping[str, str] = field(default_factory=dict)  # by node id: TensorFlow's kernel, where observed

    def measured(self, node_id: str) -> OperatorProfile | None:
        """Returns what was measured of an operator; None if nothing was."""
        return self.profile.operator(node_id) if self.profile is not None else None

    @property
    def files(self) -> FileUse | None:
        """What was measured of the files that the pipeline reads; None if nothing was."""
        return self.profile.files if self.profile is not None else None


Propose = Callable[[RuleContext], Iterator[Rewrite | NoProposal]]
ProposeAt = Callable[[Node, RuleContext], Iterator[Rewrite | NoProposal]]


@dataclass(frozen=True)
class Rule:
    """One kind of rewrite. `pipetune rules NAME` prints the name and the three texts."""

    name: str  # "parallel-map"
    summary: str  # what it does, one sentence
    legality: str  # when it is allowed, in prose
    safety: str  # the safety classes of its rewrites, in prose
    propose: Propose
    order: int = 1  # rules propose in this order, then by name; rewrites of a plan are applied in the same order


def at_each(*operators: str) -> Callable[[ProposeAt], Propose]:
    """Decorates what a rule proposes at one operator, to propose it at each operator of these kinds in turn."""

    def decorate(propose_at: ProposeAt) -> Propose:
        @functools.wraps(propose_at)
        def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
            for node in context.pipeline:
                if node.op in operators:
                    yield from propose_at(node, context)

        return propose

    return decorate


def inner_operator_facts(node: Node) -> tuple[OperatorFacts, ...]:
    """Returns facts on the datasets that an interleave or flat_map function builds, also in functions that it calls."""
    called = node.function.operations if node.function else ()
    names = dict.fromkeys((*node.inner, *filter(is_dataset_kernel, called)))
    return tuple(operator_facts(public_name(name)) for name in names)


def runs_python(node: Node) -> bool:
    """Whether the operator or its function runs Python code for each element."""
    if operator_facts(node.op).python or any(inner.python for inner in inner_operator_facts(node)):
        return True
    if node.function is None:
        return operator_facts(node.op).takes_function
    return node.function.python


def draws_random_numbers(node: Node, *, python_repeats: bool = False) -> bool:
    """Whether the operator or its function draws random numbers.

    Args:
        node: the operator.
        python_repeats: whether generators, the operator itself or inside of it, are taken to repeat what they yield.
    """
    kinds = (operator_facts(node.op), *inner_operator_facts(node))
    if any(one.random and not (one.python and python_repeats) for one in kinds):
        return True
    if node.function is None:
        return operator_facts(node.op).takes_function
    return node.function.random or node.function.random_python


def describe_state(node: Node) -> str:
    """Returns a description of the state outside the function of `node` that it reads or changes; "" if none.

    A Python function may access any state; `runs_python` covers that.
    """
    function = node.function
    if function is None:
        return "is unknown" if operator_facts(node.op).takes_function else ""
    if function.writes_variables:
        return "writes a variable"
    if function.reads_variables:
        return f"reads the variable {function.reads_variables[0]}"
    if function.mutable_tables:
        return "uses a table that can change"
    if function.side_effects:
        return f"has a side effect ({function.side_effects[0]})"
    return ""


def describe_external_dependency(node: Node) -> str:
    """Returns why the function of `node` must be called exactly as the script calls it; "" if it need not.

    The reason is Python code, or what `describe_state` names.
    """
    return "runs Python" if runs_python(node) else describe_state(node)


def is_stateless(node: Node) -> bool:
    """Whether the output of `node` depends on its input element alone, without side effects."""
    return not (runs_python(node) or draws_random_numbers(node) or describe_state(node))


def describe_training_state(node: Node) -> str:
    """Returns a description of state of the function of `node` that training may also read or write; "" if none."""
    function = node.function
    if function is None:
        return "is unknown" if operator_facts(node.op).takes_function else ""
    if function.reads_variables:
        return f"reads the variable {function.reads_variables[0]}, which training may change"
    if function.writes_variables:
        return "writes a variable that training may read"
    if function.mutable_tables:
        return "uses a table that training may write"
    return ""


def keeps_order(node: Node, context: RuleContext) -> bool:
    """Whether `node` keeps the order of elements when it runs in parallel."""
    own = node.argument("deterministic")
    return is_order_required(context) if own is None else own is True


def is_order_required(context: RuleContext) -> bool:
    """Whether the order matters: False if `options.deterministic = False` is set on the output or upstream of it."""
    settings = [context.pipeline.options.get("deterministic")]
    settings += [node.argument("deterministic") for node in context.pipeline if node.op == "with_options"]
    return False not in settings


def requests_parallelism(node: Node) -> bool:
    """Whether the script requests parallel calls or reads at `node`."""
    if node.op in READERS:
        return node.argument("num_parallel_reads") is not None
    name = operator_facts(node.op).parallel_argument
    return bool(name) and node.argument(name) is not None


def runs_ahead(node: Node) -> bool:
    """Whether the operator computes elements before they are requested."""
    return node.op == "prefetch" or requests_parallelism(node)


def tensorflow_parallelizes(node: Node, context: RuleContext) -> bool:
    """Whether TensorFlow's default optimizations turn this operator, a serial map, into an autotuned parallel one."""
    written = node.argument("num_parallel_calls") is not None or node.argument("synchronous") is True
    if node.op != "map" or written:
        return False
    if node.id in context.observed_kernels:
        kernel = context.observed_kernels[node.id]
        return kernel.startswith("ParallelMap") or (kernel == "MapAndBatch" and is_stateless(node))
    options = context.pipeline.options
    autotuned = options.get("autotune.enabled") is not False
    return is_stateless(node) and autotuned and runs_pass(options, "map_parallelization")


def runs_in_parallel(node: Node, context: RuleContext) -> bool:
    """Whether several calls of the operator run at once: as the script requests it, or by TensorFlow's own passes."""
    return requests_parallelism(node) or tensorflow_parallelizes(node, context)


def parallel_safety(node: Node, context: RuleContext) -> Safety:
    """Returns the safety class of changing only the parallelism of `node`.

    If the script gave up the order (`deterministic=False`) of a parallel operator, elements overtake each other before
    and after the rewrite, which is judged, and compared, as if none did. If they begin to overtake, the result is one
    of the orders that the script allows, if the option is set for the whole pipeline (STATISTICAL). As an argument of a
    serial call the option has no effect in the original, so it allows nothing (REORDERS).
    """
    drawn = Safety.STATISTICAL if draws_random_numbers(node) else Safety.EXACT
    if keeps_order(node, context) or requests_parallelism(node):
        return drawn
    return Safety.STATISTICAL if node.argument("deterministic") is None else Safety.REORDERS


def short_batch_may_overtake(batch: Node, maps: Iterable[Node], context: RuleContext) -> bool:
    """Whether the last batch of an epoch, which may be smaller, could overtake others if `maps` run after `batch`."""
    if batch.argument("drop_remainder"):
        return False
    return any(not keeps_order(node, context) for node in maps)  # TensorFlow parallelizes serial maps


def overtaking_safety(batch: Node, *, order_required: bool) -> Safety:
    """Returns the safety class of batches that may newly overtake each other, unless the script requires the order."""
    if order_required:
        return Safety.EXACT
    return Safety.STATISTICAL if batch.argument("drop_remainder") else Safety.REORDERS


def is_unknown(node: Node) -> bool:
    """Whether nothing is known about the operator, so that the worst is assumed."""
    return operator_facts(node.op) is CAUTIOUS


_IDLE = frozenset({"with_options", "assert_cardinality"})
"""Operators that do no work of their own."""


def last_active_operator(pipeline: Pipeline) -> Node:
    """Returns the last operator that does any work: a `prefetch` before `with_options` counts as last."""
    return pipeline.last_except(_IDLE)


def upstream_chain(pipeline: Pipeline, node: Node) -> Iterator[Node]:
    """Yields the operators upstream of `node`, nearest first, as long as each has one input and one consumer."""
    while len(node.inputs) == 1:
        node = pipeline[node.inputs[0]]
        if len(pipeline.consumers(node.id)) != 1 or len(node.inputs) != 1:
            return
        yield node


def describe_operator(node: Node) -> str:
    """Returns the name of an operator in messages: `map (train.py:12)`."""
    return f"{node.title} ({node.location})" if node.location else node.title


def errors_are_ignored(node: Node, context: RuleContext) -> bool:
    """Whether `ignore_errors` downstream drops the elements on which `node` fails."""
    return any(other.op == "ignore_errors" for other in context.pipeline.downstream(node.id))


PASS_THROUGH_OPERATORS = frozenset({"shuffle", "prefetch", "take", "skip", "shard", "repeat"})
"""Operators that never modify an element: a function may be applied before or after them."""

ROW_INDEX_OPERATORS = PASS_THROUGH_OPERATORS | {"cache", "with_options", "assert_cardinality"}
"""Operators that treat row indices the same way as rows; a cache must be in memory."""

DROPS_BY_POSITION = frozenset({"take", "skip", "shard"})
"""Operators that keep or drop an element by its position alone, whatever its value."""

POSITIONAL = DIVIDED_DOWNSTREAM - {"concatenate", "unique"}
"""Operators that output other elements, not only another order, if the order of their input changes."""


def positional_operator_after(
    node: Node, context: RuleContext, *, operators: frozenset[str] = DROPS_BY_POSITION
) -> Node | None:
    """Returns the first operator downstream that would select other elements if the order changed; None if none would.

    A skip by which a job resumes does not count, nor does a shard with one part. For random orders, in which a
    comparison does not detect other elements, pass `operators=POSITIONAL`: every operator that outputs other elements.
    """
    resumed = {one.node for one in context.resuming}
    below = context.pipeline.downstream(node.id)
    picking = (one for one in below if one.op in operators and one.argument("num_shards") != 1)
    return next((one for one in picking if one.id not in resumed), None)
