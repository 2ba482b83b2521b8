"""Probes what functions of maps upstream of a batch do on batches: as they are, in two parts, or vectorized."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import (
    BatchedCall,
    FunctionFacts,
    FunctionSplit,
    FunctionVariant,
    PredicatePushdown,
    SplitPosition,
)
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import functions, lifting, live, replay
from pipetune.pipelines.errors import unknown_on_error
from pipetune.pipelines.function_splitting import CannotSplit, SplittableFunction, statement_indices
from pipetune.pipelines.gathering import receives_windows
from pipetune.pipelines.graphs import ELEMENTWISE, reachable
from pipetune.pipelines.lifting import BatchProperties, is_elementwise, output_terms, rounding_properties
from pipetune.pipelines.terms import BRANCHES, CannotProve, input_term, input_terms, needed_ops

_DECODER = "DecodeRaw"  # fails on a batch of strings of several lengths; tf.io.decode_raw(fixed_length=) is another op


def check_lengths(graph: Any) -> None:
    """Refuses a function that may decode strings of several lengths.

    They have one length if the decoded values are returned unchanged (a batch holds elements of one shape), or if the
    function takes them apart into pieces of fixed sizes, which determine the length.

    Args:
        graph: of the function traced on single elements.

    Raises:
        CannotProve: nothing shows that they have one length.
    """
    ends = [tensor.op for tensor in graph.outputs]
    reached = reachable(ends, lambda op: [*(tensor.op for tensor in op.inputs), *op.control_inputs])
    needed = set(map(id, reached))  # other ops do not run
    given = {id(tensor) for tensor in graph.outputs}
    for op in graph.get_operations():
        if op.type != _DECODER or id(op) not in needed:
            continue
        if not any(id(one) in given or _fixes_length(one, needed) for one in _tensors_of_same_length(op.outputs[0])):
            raise CannotProve(
                "decodes strings that may differ in length, and those of a batch must have the same length"
            )


def _tensors_of_same_length(tensor: Any) -> Iterator[Any]:
    """Yields the tensor and all tensors that elementwise ops compute from it, which have the same length."""
    yield tensor
    for reader in tensor.consumers():
        others = [one for one in reader.inputs if one is not tensor]
        if is_elementwise(reader) and reader.type != _DECODER and all(one.shape.rank == 0 for one in others):
            yield from _tensors_of_same_length(reader.outputs[0])


def _fixes_length(tensor: Any, needed: set[int]) -> bool:
    """Whether an op that runs reads `tensor` and accepts only one length of it."""
    return any(id(op) in needed and op.inputs[0] is tensor and _accepts_one_length(op) for op in tensor.consumers())


def _accepts_one_length(op: Any) -> bool:
    if op.type == "EnsureShape":
        return bool(op.outputs[0].shape.is_fully_defined())
    if op.type not in ("Reshape", "SplitV"):
        return False
    sizes = tf.get_static_value(op.inputs[1])
    return sizes is not None and bool((sizes >= 0).all())


def check_converters(single: Any, vectorized: Any, read: Collection[int] | None = None) -> BatchProperties:
    """Returns the numerical properties of the rows of a function called through `tf.vectorized_map`.

    Args:
        single: the concrete function, traced on one element.
        vectorized: the concrete function of the map that calls it, traced on batches.
        read: as in `rounding_properties`.

    Raises:
        CannotProve: it has an op whose conversion is not proven correct, or would process the rows in a loop.
    """
    loop = next((op.type for op in needed_ops(vectorized.graph) if op.type in _CONTROL_FLOW), None)
    if loop is not None:
        raise CannotProve(f"would run a loop, or one branch for all rows ({loop})")
    alike = set[Any]()  # ops that compute the same for all rows: once, and without a converter
    for op in needed_ops(single.graph):
        if op.type in BRANCHES:
            _check_branch(op)
        elif op.type != "Placeholder" and not op.op_def.is_stateful and all(one.op in alike for one in op.inputs):
            alike.add(op)
        elif not _is_proven(op):
            raise CannotProve(f"has an op that tf.vectorized_map is not proven to convert correctly ({op.type})")
        elif op.type == _PARSER and (why_not := _uneven_features(op)):
            raise CannotProve(why_not)
    return rounding_properties(output_terms(single, draws=count()), read)


def _check_branch(op: Any) -> None:
    """Refuses a branch (`tf.cond`) whose sides are not proven to work on the rows that take them.

    `tf.vectorized_map` computes each side for the rows that take it, maybe for none, and joins the results, which must
    have one shape.
    """
    condition = op.inputs[0]
    if condition.dtype != tf.bool or condition.shape.rank != 0:  # the converter casts it to an integer
        raise CannotProve("has a branch whose condition is not a single truth value")
    if not all(one.shape.is_fully_defined() for one in op.outputs):
        raise CannotProve("has a branch whose sides may return different shapes")
    for side in ("then_branch", "else_branch"):
        graph = tensorflow_private.called_graph(op, side)
        if graph is None:
            raise CannotProve(f"calls other functions ({op.type})")
        for inner in needed_ops(graph):
            if inner.type in BRANCHES:
                _check_branch(inner)
            elif inner.type not in PROVEN_FOR_NO_ROWS:
                raise CannotProve(f"has a branch with an op that is not proven to work for no rows ({inner.type})")


def _uneven_features(parser: Any) -> str:
    """Returns why what an op parses of several examples does not stack up; "" if it does."""
    if parser.get_attr("num_sparse") or parser.get_attr("ragged_value_types"):
        return "has sparse or ragged features, whose rows tf.vectorized_map does not keep separate"
    if not all(one.shape.is_fully_defined() for one in parser.outputs):
        return "parses sequences of variable length, which cannot be batched, or only with padding"
    return ""


def _is_proven(op: Any) -> bool:
    """Whether the converter of an op gives each row the same result as an element."""
    if op.type == "Squeeze" and not op.get_attr("squeeze_dims"):  # it would squeeze a batch of one row
        return False
    if op.type == "Roll":  # of axes counted from the end, the last one would become that of the rows
        shift, axes = map(tf.get_static_value, op.inputs[1:])
        if shift is None or axes is None or (axes < 0).any():
            return False
    return op.type in PROVEN_OPS or op.type in PROVEN_DRAWS


_CONTROL_FLOW = BRANCHES | frozenset({"While", "StatelessWhile", "Case", "StatelessCase"})
PROVEN_OPS = frozenset(
    {"Abs", "Acos", "Acosh", "AddN", "AddV2", "AdjustContrastv2", "AdjustHue", "AdjustSaturation", "All", "Any",
     "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "AvgPool", "BatchMatMulV2", "BiasAdd", "BitwiseAnd",
     "BitwiseOr", "BitwiseXor", "BroadcastTo", "Bucketize", "Cast", "Ceil", "ClipByValue", "Complex", "ComplexAbs",
     "ConcatV2", "Const", "Conv2D", "Cos", "Cosh", "Cumprod", "Cumsum", "DecodeCSV", "Digamma", "DivNoNan", "Einsum",
     "Elu", "Equal", "Erf", "Erfc", "Exp", "ExpandDims", "Expm1", "Fill", "Floor", "FloorDiv", "FloorMod", "GatherNd",
     "GatherV2", "Greater", "GreaterEqual", "Identity", "IdentityN", "Invert", "IsFinite", "IsInf", "IsNan",
     "LeakyRelu", "LeftShift", "Less", "LessEqual", "Lgamma", "Log", "Log1p", "LogSoftmax", "LogicalAnd", "LogicalNot",
     "LogicalOr", "LowerBound", "MatMul", "MatrixBandPart", "MatrixDiagPartV3", "MatrixDiagV3", "Max", "MaxPool",
     "Maximum", "Mean", "Min", "Minimum", "Mul", "Neg", "NoOp", "NotEqual", "OneHot", "Pack", "Pad", "ParseExampleV2",
     "Placeholder", "Pow", "Prod", "RFFT", "Range", "RealDiv", "Reciprocal", "Relu", "Relu6", "Reshape", "ReverseV2",
     "RightShift", "Rint", "Roll", "Round", "Rsqrt", "Select", "SelectV2", "Selu", "Shape", "Sigmoid", "Sign", "Sin",
     "Sinh", "Slice", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Split", "SplitV", "Sqrt", "Square",
     "SquaredDifference", "Squeeze", "StopGradient", "StridedSlice", "Sub", "Sum", "Tan", "Tanh",
     "TensorScatterUpdate", "Tile", "TopKV2", "Transpose", "TruncateDiv", "TruncateMod", "Unpack",
     "UnsortedSegmentSum", "Xdivy", "Xlogy"}
)  # fmt: skip
"""Ops whose converters gave each row the same result as an element, on every function of
`tests/rewrites/on_data/op_cases.py`; `Squeeze` and `Roll` only with some arguments.

Not among them: `PadV2`, whose converter pads with zeros whatever the pad value.
"""

PROVEN_FOR_NO_ROWS = PROVEN_OPS & ELEMENTWISE | frozenset(
    {"AdjustContrastv2", "AdjustSaturation", "All", "Any", "ArgMax", "ArgMin", "ConcatV2", "Const", "Cumprod", "Cumsum",
     "ExpandDims", "Fill", "GatherV2", "Identity", "IdentityN", "Max", "Mean", "Min", "NoOp", "OneHot", "Pack", "Pad",
     "Placeholder", "Prod", "Range", "Reshape", "ReverseV2", "Shape", "Slice", "Softmax", "Split", "SplitV",
     "StopGradient", "StridedSlice", "Sum", "Tile", "TopKV2", "Transpose", "Unpack"}
)  # fmt: skip
"""Ops among them whose converters work for no rows, too, on every function of the same file: they may stand in a branch
that no row of a batch takes.

Not among them: `Conv2D`, `MatMul`, `Select` and `Squeeze`, which lose an axis or fail there.
"""

PROVEN_DRAWS = frozenset({"RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal"})
"""Ops whose converters draw each row by itself, from the same distribution as for an element: they add the number of
rows in front of the shape (`_convert_random` in parallel_for/pfor.py), and refuse one that depends on the element.
"""


def probe_two_parts(source: live.LivePipeline, node: Node, batch: Node) -> BatchedCall:
    """Returns how the function of `node`, split in two, can be called on batches, or why it cannot."""
    try:
        return _probe_cut(source, node, batch, SplittableFunction(source.datasets[node.id]._map_func))
    except CannotSplit as reason:
        return BatchedCall(why_not=str(reason))
    except CannotProve as reason:
        return BatchedCall(why_not=f"its function {reason}")
    except (tf.errors.OpError, ValueError, TypeError) as error:  # the graph cannot be rebuilt
        return BatchedCall(why_not=f"its graph cannot be cut ({type(error).__name__})")


def _probe_cut(source: live.LivePipeline, node: Node, batch: Node, whole: SplittableFunction) -> BatchedCall:
    position, statement = _place_after_parsing(whole)
    check_lengths(whole.graph)
    above, original = source.datasets[node.inputs[0]], source.datasets[node.id]
    head, tail = map_two_parts(batched(above, batch), whole, position)
    if tail.element_spec != batched(original, batch).element_spec:
        raise CannotSplit("its shapes would not be known any more")
    parts = [functions.read_facts(made._map_func) for made in (head, tail)]
    if any(not part.stateless or part.can_raise for part in parts):
        raise CannotSplit("its function has state or checks values when it is traced on batches")
    check_converters(whole.tail(position).function, tail._map_func.function)
    # Of the whole: what the first part rounds may decide in the second, and sums across the cut are not reordered.
    results = output_terms(whole.traced.function, draws=count())
    rounding = rounding_properties(results, _results_read(source, node))
    specs = tuple(tf.TensorSpec(one.shape, one.dtype) for one in whole.passed_tensors(position))
    cut = FunctionSplit(
        SplitPosition.AFTER_PARSING,
        position=position,
        spec=str(specs if len(specs) > 1 else specs[0]),
        element_bytes=live.element_bytes(list(specs)),
        head=parts[0].digest,
        tail=parts[1].digest,
        statement=statement,
        handed=len(specs),
        taken=whole.passed_components(position),
        components=len(whole.arguments),
        parses_examples=any(op.type == _PARSER for op in whole.working_ops(whole.ops[:position])),
    )
    inexact, signs = rounding.inexact, rounding.zero_signs
    return BatchedCall(form=FunctionVariant.VECTORIZED, digest=cut.tail, inexact=inexact, zero_signs=signs, cut=cut)


def map_two_parts(
    batches: Any, whole: SplittableFunction, position: int, *, synchronous: bool = False
) -> tuple[Any, Any]:
    """Returns a map of the first part over `batches`, and a map of the rest after it.

    Args:
        batches: a dataset with components of shape [rows, ...].
        position: the number of ops in the first part.
        synchronous: whether both maps are forced to run synchronously, as by the argument of `map`.

    Raises:
        CannotSplit: the first part cannot be called on batches.
        ValueError: `tf.vectorized_map` has no converter for an op of the rest.
    """
    rows = tf.nest.flatten(batches.element_spec)[0].shape[0]
    first = whole.head_on_batches(position, rows)
    with tensorflow_private.reusing_traced_functions():
        head = batches.map(first, synchronous=synchronous)
    tail = whole.tail_function(position)
    rest = replay.build_variant(tail, FunctionVariant.VECTORIZED, head.element_spec, allow_loops=False)
    return head, head.map(rest, synchronous=synchronous)


def _place_after_parsing(whole: SplittableFunction) -> tuple[int, int | None]:
    """Places the cut after the last op that `tf.vectorized_map` has no converter for, between statements if possible.

    Raises:
        CannotSplit: there is no such op, or an op before the cut does not treat every value independently.
    """
    without = [place for place, op in enumerate(whole.ops) if not tensorflow_private.op_is_vectorizable(op.type)]
    lacking = [place for place in without if whole.working_ops([whole.ops[place]])]
    if not lacking:
        raise CannotSplit("tf.vectorized_map has a form for every op of it")
    first = lacking[-1] + 1
    other = next((op for op in whole.working_ops(whole.ops[:first]) if not _is_row_wise(op)), None)
    if other is not None:
        raise CannotSplit(f"its op {other.type} does not treat every number by itself")
    statements = statement_indices(tensorflow_private.python_function(whole.traced), whole.ops)
    for place in range(first, len(whole.ops)):
        if statements is not None and statements[place] > statements[place - 1]:
            return place, statements[place]
        if whole.working_ops([whole.ops[place]]) and not is_elementwise(whole.ops[place]):
            break
    return first, None


def _is_row_wise(op: Any) -> bool:
    """Whether an op does for each row of a batch what it does for an element: so does the parser of dense features."""
    return not _uneven_features(op) if op.type == _PARSER else is_elementwise(op)


def annotate_batches(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with the functions that could be called on batches annotated with what they do there."""
    facts: dict[str, FunctionFacts] = {}
    for node in pipeline:
        if node.op == "map" and node.inputs and node.function and node.function.only_draws:
            batch = downstream_batch(pipeline, node)
            if batch is not None and reaches_unjoined(pipeline, node, batch):
                facts[node.id] = replace(node.function, on_batches=probe(source, node, batch))
    return pipeline.with_functions(facts)


def downstream_batch(pipeline: Pipeline, node: Node) -> Node | None:
    """Returns the nearest batch downstream of an operator, after which its function could be called; None if none."""
    return next((below for below in pipeline.downstream(node.id) if below.op == "batch"), None)


def batched(dataset: Any, batch: Node) -> Any:
    """Returns a dataset batched as by the operator `batch`."""
    return dataset.batch(batch.argument("batch_size"), drop_remainder=bool(batch.argument("drop_remainder")))


def reaches_unjoined(pipeline: Pipeline, node: Node, batch: Node) -> bool:
    """Whether the output of `node` reaches `batch` without another input being joined to it."""
    between = takewhile(lambda below: below.id != batch.id, pipeline.downstream(node.id))
    return all(len(below.inputs) == 1 for below in between)


@unknown_on_error(BatchedCall)
def probe(source: live.LivePipeline, node: Node, batch: Node) -> BatchedCall:
    """Returns how the function of `node` can be called on the batches of `batch`, or why it cannot.

    It is called unchanged, else vectorized, else parsing, else split in two. A function that draws random numbers is
    vectorized: called in any other way, it would draw once for all rows.
    """
    components = tf.nest.flatten(source.datasets[node.inputs[0]].element_spec)
    fixed = all(isinstance(part, tf.TensorSpec) and part.shape.is_fully_defined() for part in components)
    if not fixed and not receives_windows(source, node):  # windows have one length that no static shape shows
        return BatchedCall(why_not="its input has a component without a fixed shape")
    if node.function is not None and node.function.random:
        return probe_variant(source, node, batch, FunctionVariant.VECTORIZED)
    reasons = []
    for form in _VARIANTS:
        if form is FunctionVariant.PARSING and node.function is not None and _PARSER not in node.function.operations:
            continue
        found = probe_variant(source, node, batch, form)
        if not found.why_not:
            return found
        reasons.append(found.why_not)
    found = probe_two_parts(source, node, batch)
    if not found.why_not:
        return found
    return BatchedCall(why_not=f"{reasons[0]}, and tf.vectorized_map cannot be used: {reasons[1]}")


_VARIANTS = (FunctionVariant.ON_BATCHES, FunctionVariant.VECTORIZED, FunctionVariant.PARSING)
_PARSER = "ParseExampleV2"


def probe_variant(source: live.LivePipeline, node: Node, batch: Node, variant: FunctionVariant) -> BatchedCall:
    """Returns how the function of `node` can be called on batches in the variant `variant`, or why it cannot.

    Args:
        source: the live pipeline.
        node: a map.
        batch: the batch downstream of it, which determines the size of the batches.
        variant: how the function is called.

    An error raised while the function is traced on batches becomes the reason.
    """
    above, original = source.datasets[node.inputs[0]], source.datasets[node.id]
    batches, called = batched(above, batch), tensorflow_private.python_function(original._map_func)
    function = replay.build_variant(called, variant, batches.element_spec, allow_loops=False)
    try:
        mapped = batches.map(function)
    except Exception as error:  # the user's function is called on inputs it was not written for
        return BatchedCall(why_not=f"its function cannot be called on batches ({type(error).__name__})")
    if mapped.element_spec != batched(original, batch).element_spec:
        return BatchedCall(why_not="its function returns different shapes or dtypes on batches")
    facts = functions.read_facts(mapped._map_func)
    drawing = node.function is not None and node.function.random
    if not facts.only_draws or facts.random != drawing or facts.can_raise:
        return BatchedCall(why_not="its function has state or checks values when it is traced on batches")
    single, on_batches = original._map_func.function, mapped._map_func.function
    try:
        if variant is FunctionVariant.VECTORIZED:
            again = above.map(called)._map_func.function
            if output_terms(again, draws=count()) != output_terms(single, draws=count()):
                raise CannotProve("computes something different each time it is traced")
            lifted = check_converters(single, on_batches, _results_read(source, node))
            if drawing and lifted.inexact:  # no safety class promises that both stay what they were
                ops = ", ".join(lifted.inexact)
                raise CannotProve(f"draws random numbers, and the last bits of {ops} may differ on a batch")
        else:
            check_lengths(single.graph)
            lifted = lifting.prove_rows(single, on_batches, _results_read(source, node))
    except CannotProve as reason:
        return BatchedCall(why_not=f"its function {reason}")
    return BatchedCall(form=variant, digest=facts.digest, inexact=lifted.inexact, zero_signs=lifted.zero_signs)


_MOVED_PAST = frozenset({"prefetch", "repeat", "shuffle", "with_options"})
"""Operators that read no component of their elements, and that maps pass on their way to the batch."""


def _results_read(source: live.LivePipeline, node: Node) -> Collection[int] | None:
    """Returns the indices of the flat results of a map that the map downstream of it reads; None if all may be read.

    The map downstream moves along, or the one upstream of it could not pass it.
    """
    below = source.pipeline.consumers(node.id)
    while len(below) == 1 and below[0].op in _MOVED_PAST:
        below = source.pipeline.consumers(below[0].id)
    if [one.op for one in below] != ["map"]:
        return None
    try:
        results = output_terms(source.datasets[below[0].id]._map_func.function, draws=count())
    except CannotProve:
        return None
    given = (term for result in results for term in result.ancestors() if term.op == "Input")
    return {term.attribute("place") for term in given}


_MAP_RESULT = "Made"
"""The op of a term that is a component computed by the upstream map: the predicate must not read it."""

_PASSES_THROUGH = frozenset({"prefetch", "with_options"})


def annotate_predicates(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its predicates annotated with what they decide upstream of the maps that feed them."""
    facts = {
        node.id: replace(node.function, on_inputs=tuple(_probe(source, pipeline, node)))
        for node in pipeline
        if node.op == "filter" and node.function is not None and node.function.stateless
    }
    return pipeline.with_functions(facts)


def _probe(source: live.LivePipeline, pipeline: Pipeline, node: Node) -> Iterator[PredicatePushdown]:
    """Yields the result of the predicate of `node` on the input of each upstream map, nearest first.

    The last one may hold a reason why the filter cannot be moved.
    """
    predicate = source.datasets[node.id]._predicate
    places: Sequence[int] | None = None  # per input of the predicate, its index in the map's input, or -1
    above = pipeline[node.inputs[0]]
    while len(above.inputs) == 1 and (above.op == "map" or above.op in _PASSES_THROUGH):
        if above.op == "map":
            if above.function is None or not above.function.only_draws:
                return  # no rule would move the filter past it
            given = above.function.hands_on
            places = given if places is None else [given[place] if place >= 0 else -1 for place in places]
            answer = _probe_at(predicate, source.datasets[above.inputs[0]], places)
            yield answer
            if answer.why_not:
                return
        above = pipeline[above.inputs[0]]


@unknown_on_error(PredicatePushdown)
def _probe_at(predicate: Any, dataset: Any, places: Sequence[int]) -> PredicatePushdown:
    try:
        there = dataset.filter(tensorflow_private.python_function(predicate))._predicate
    except Exception as error:  # the user's function is called on inputs it was not written for
        return PredicatePushdown(why_not=f"its predicate cannot be called there ({type(error).__name__})")
    facts = functions.read_facts(there)
    if not facts.stateless:
        return PredicatePushdown(why_not="its predicate has state when it is traced there")
    try:
        own = input_terms(predicate.function)
        given = [
            input_term(place, dtype=term.dtype, shape=term.shape) if place >= 0 else replace(term, op=_MAP_RESULT)
            for place, term in zip(places, own, strict=True)
        ]
        here = output_terms(predicate.function, given)
        if any(term.op == _MAP_RESULT for result in here for term in result.ancestors()):
            raise CannotProve("reads a component that the map computes")
        if here != output_terms(there.function):
            return PredicatePushdown(why_not="its predicate computes something different when it is traced there")
    except CannotProve as reason:
        return PredicatePushdown(why_not=f"its predicate {reason}")
    return PredicatePushdown(digest=facts.digest)
