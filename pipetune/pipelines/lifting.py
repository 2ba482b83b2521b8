"""Proves that a function traced on batches computes for each row what the function computes for a single element.

The function on batches is read as terms of one row: its inputs are stacks of rows, and each op is *lowered* to the op
that computes one row of its result from one row of its inputs. If an op has no such rule, or takes an axis, an index or
a shape that concerns the stack itself, the rows would mix and nothing is proven. The results are terms over one
element, which must equal the terms of the function on single elements, including constants and attributes.

The rules hold for stacks of any number of rows. They apply to the function of single elements as well: `ExpandDims`
before an op for batches and `Squeeze` after it make a stack of one row, which `terms` moves outwards by these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipetune import tensorflow_private
from pipetune.pipelines import value_ranges
from pipetune.pipelines.graphs import ELEMENTWISE, ELEMENTWISE_EXACT, ELEMENTWISE_INEXACT, IDENTITIES, REDUCTIONS
from pipetune.pipelines.normal_forms import UNKNOWN_ROWS, normalize, stack_rows, unwrap_rows
from pipetune.pipelines.terms import ROWS, Call, CannotProve, Shape, Term, constant, input_terms, terms_of

PART = "Part"
"""The op of a term that is one tensor of a sparse or ragged batch; its input is the same tensor for one row."""


@dataclass(frozen=True)
class BatchProperties:
    """Numerical properties of a function on batches that was proven to treat each row as an element."""

    inexact: tuple[str, ...] = ()  # types of ops whose last bits depend on the number of rows
    zero_signs: bool = False  # the sign of a zero and the result for a denormal may differ as well


def prove_rows(single: Any, batched: Any, read: Collection[int] | None = None) -> BatchProperties:
    """Proves that `batched` computes for every row what `single` computes for an element; returns its properties.

    Args:
        single: a concrete function, traced on one element.
        batched: a concrete function, traced on a batch: each flat input has an additional first axis.
        read: as in `rounding_properties`.

    Raises:
        CannotProve: it is not proven; the message continues a sentence that begins with "its function".
    """
    elements = input_terms(single)
    expected = output_terms(single, elements)
    counts = {tensor.shape[0] for tensor in batched.graph.inputs[: len(elements)] if tensor.shape.rank}
    count = next(iter(counts)) if len(counts) == 1 else None
    results = terms_of(batched, [stack_rows(term, count) for term in elements], apply_op)
    for result, target in zip(results, expected, strict=True):
        if result.op not in (ROWS, PART):
            raise CannotProve(
                "returns something that does not depend on the element and would be produced only once per batch"
            )
        if unwrap_rows(result.inputs[0]) != target:
            raise CannotProve("computes something different when it is traced on batches")
    return rounding_properties(expected, read)


def rounding_properties(results: Sequence[Term], read: Collection[int] | None = None) -> BatchProperties:
    """Returns how the bits of a function's results may depend on the number of rows it is called with.

    Args:
        results: its flat results.
        read: indices of those that anything reads; None: all.

    Raises:
        CannotProve: more than rounding may differ: a value that may not fit is cast, or a rounded one decides a choice.
    """
    results = [result for index, result in enumerate(results) if read is None or index in read]
    terms = {term.key: term for result in results for term in result.ancestors()}.values()
    ranges = value_ranges.IntervalAnalysis()
    rounded = {term for term in terms if _is_inexact(term) or _may_be_reassociated(term)}
    for term in terms if rounded else ():
        source = next((one.op for read in _discretized_inputs(term) for one in read.ancestors() if one in rounded), "")
        if source:
            raise CannotProve(f"depends in {term.op} on the result of {source}, whose last bits may differ on a batch")
    for term in terms:
        if term.op == "Cast" and not ranges.cast_fits(term):
            kinds = f"{term.inputs[0].dtype.name} to {term.dtype.name}"
            raise CannotProve(
                f"casts values that may not fit ({kinds}), and the result on a batch may differ from that on "
                "single elements"
            )
    inexact = {term.op for term in terms if term in rounded or _reads_zero_sign(term)}
    return BatchProperties(tuple(sorted(inexact)), zero_signs=any(map(_zero_sign_varies, terms)))


def output_terms(
    function: Any, given: Sequence[Term] | None = None, *, draws: Iterator[int] | None = None
) -> list[Term]:
    """Returns the flat outputs of a traced function as terms over `given`, or over its own inputs.

    Args:
        function: a concrete function.
        given: terms of its flat inputs; None for terms by their indices.
        draws: as in `terms_of`.

    Raises:
        CannotProve: terms cannot express them.
    """
    results = terms_of(function, input_terms(function) if given is None else given, apply_op, draws=draws)
    return [unwrap_rows(term) for term in results]


def is_elementwise(op: Any) -> bool:
    """Whether an op of a graph, with its other inputs as they are, treats every value of the element independently."""
    return op.type in ELEMENTWISE | IDENTITIES | {"DecodeRaw"} or (op.type == "OneHot" and op.get_attr("axis") == -1)


def apply_op(call: Call) -> list[Term]:
    """Returns the results of an op in normal form, with stacks of rows outermost.

    Raises:
        CannotProve: the op would mix the rows of a stack.
    """
    try:
        form = normalize(call)
    except CannotProve:
        if not all(map(_is_single, call.inputs)):
            raise
        form = replace(call, inputs=tuple(map(unwrap_rows, call.inputs)))  # kept as it is: its meaning does not matter
    return form if isinstance(form, list) else _apply_to_rows(form)


def _is_single(term: Term) -> bool:
    """Whether a term belongs to one element: it is not a stack of several rows and does not hold their number."""
    return term.op not in (ROWS, PART, "Sizes") or (term.op == ROWS and term.attribute("count") == 1)


def _apply_to_rows(call: Call) -> list[Term]:
    """Returns the results of a call in normal form; an op that treats rows independently is moved inside the stacks."""
    stacked = [term.op == ROWS for term in call.inputs]
    parts = any(term.op == PART for term in call.inputs)
    sized = any(size == UNKNOWN_ROWS for size in call.attribute("sizes") or ())
    if tensorflow_private.op_is_stateful(call.op) and call.op not in _READ_ONLY:
        raise CannotProve(f"keeps state ({call.op})")
    if not (any(stacked) or parts or sized):
        return _unstacked_results(call)
    try:
        if parts:
            return [_of_parts(call)]
        rule = _RULES.get(call.op)
        if rule is None:
            raise CannotProve(f"has an op that is not known to treat the rows of a batch independently ({call.op})")
        lowered = rule(call, stacked)
        if lowered is None:
            raise CannotProve(f"would mix the rows of a batch ({call.op})")
    except CannotProve:
        if sized or not all(map(_is_single, call.inputs)):
            raise
        return _unstacked_results(replace(call, inputs=tuple(map(unwrap_rows, call.inputs))))
    counts = {term.attribute("count") for term in call.inputs if term.op == ROWS} - {1}
    if len(counts) > 1:
        raise CannotProve(f"would mix the rows of a batch ({call.op})")
    count = counts.pop() if counts else None if sized else 1
    results = _apply_to_rows(lowered)
    if call.op == "ParseExampleV2":
        return _parsed_terms(call, results, count)
    return [stack_rows(term, count) for term in results]


def _unstacked_results(call: Call) -> list[Term]:
    """Returns the results of a call without stacked inputs; `ZerosLike` and `OnesLike` of known shape are constants."""
    number, shape = _FILL_VALUES.get(call.op), call.inputs[0].shape if call.inputs else None
    if number is None or shape is None or None in shape or not (_is_float(call.inputs[0]) or call.dtypes[0].is_integer):
        return call.results()
    return [constant(np.full([size or 0 for size in shape], number, call.dtypes[0].as_numpy_dtype), call.dtypes[0])]


_FILL_VALUES = {"ZerosLike": 0, "OnesLike": 1}

_READ_ONLY = frozenset({"LookupTableFindV2"})
"""Ops that TensorFlow registers as stateful although they change no state."""


# -- rules: what an op does with one row


def _lowered(call: Call, stacked: Sequence[bool], **attributes: object) -> Call:
    """Returns the call on one row of each stack, with `attributes` replaced."""
    return replace(
        call,
        inputs=tuple(term.inputs[0] if is_stack else term for term, is_stack in zip(call.inputs, stacked, strict=True)),
        attributes=tuple(sorted({**dict(call.attributes), **attributes}.items())),
        shapes=tuple(None if shape is None else shape[1:] for shape in call.shapes),
    )


Rule = Callable[[Call, Sequence[bool]], Call | None]
"""A function that returns the call that computes one row of the result, or None if the rows would mix.

The arguments are a call in normal form, and which of its inputs are stacks of rows.
"""


def _elementwise(call: Call, stacked: Sequence[bool]) -> Call | None:
    """Elementwise ops: stacks have the rank of the result and other inputs a lower one, so only rows share axis 0."""
    ranks = [term.rank for term in call.inputs]
    if [rank == max(ranks) for rank in ranks] != list(stacked):
        return None
    lowered = _lowered(call, stacked)
    shape = _broadcast([term.shape for term in lowered.inputs])
    return replace(lowered, shapes=tuple(shape for _ in call.shapes))


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    result: list[int | None] = []
    for shape in shapes:
        if shape is None:
            return None
        longer, shorter = (result, list(shape)) if len(result) >= len(shape) else (list(shape), result)
        padded = [1] * (len(longer) - len(shorter)) + shorter
        result = [b if a == 1 else a if b == 1 or b is None else b for a, b in zip(longer, padded, strict=True)]
    return tuple(result)


def _stacked_at(*places: int) -> Rule:
    """Ops whose stacked inputs are exactly those at `places`; all other inputs are the same for all rows."""

    def rule(call: Call, stacked: Sequence[bool]) -> Call | None:
        return _lowered(call, stacked) if {place for place, one in enumerate(stacked) if one} == set(places) else None

    return rule


def _with_row_rank(least: int) -> Rule:
    """Like `_stacked_at(0)`, for rows with at least `least` axes, the last ones, which the op works on."""

    def rule(call: Call, stacked: Sequence[bool]) -> Call | None:
        return _stacked_at(0)(call, stacked) if call.inputs[0].rank > least else None

    return rule


def _by_axes(call: Call, stacked: Sequence[bool]) -> Call | None:
    """Ops along `axes`, which do not include the first; the input that has these axes is the only stack."""
    axes = call.attribute("axes")
    if not stacked[0] or any(stacked[1:]) or not axes or 0 in axes:
        return None
    return _lowered(call, stacked, axes=tuple(axis - 1 for axis in axes))


def _joined(call: Call, stacked: Sequence[bool]) -> Call | None:
    (axis,) = call.attribute("axes")
    return _lowered(call, stacked, axes=(axis - 1,)) if all(stacked) and axis > 0 else None


def _gathered(call: Call, stacked: Sequence[bool]) -> Call | None:
    (axis,), batch_dims = call.attribute("axes"), call.attribute("batch_dims")
    if list(stacked) == [False, True]:
        return _lowered(call, stacked) if axis == 0 and batch_dims == 0 else None
    if list(stacked) == [True, False]:
        return _lowered(call, stacked, axes=(axis - 1,)) if axis > 0 and batch_dims == 0 else None
    if axis == 0 or batch_dims == 0:
        return None
    return _lowered(call, stacked, axes=(axis - 1,), batch_dims=batch_dims - 1)


def _without_first(name: str, first: object) -> Rule:
    """Ops with an attribute that has one entry per axis; the entry of the first axis must be `first`."""

    def rule(call: Call, stacked: Sequence[bool]) -> Call | None:
        values = call.attribute(name)
        if not stacked[0] or any(stacked[1:]) or not values or values[0] != first:
            return None
        return _lowered(call, stacked, **{name: values[1:]})

    return rule


def _transpose_rule(call: Call, stacked: Sequence[bool]) -> Call | None:
    order = call.attribute("order")
    return _lowered(call, stacked, order=tuple(axis - 1 for axis in order[1:])) if order and order[0] == 0 else None


def _to_sizes(call: Call, stacked: Sequence[bool]) -> Call | None:
    """`Fill` with, or `BroadcastTo` to, a shape that begins with the number of rows."""
    sizes = call.attribute("sizes")
    count = next((term.attribute("count") for term in call.inputs if term.op == ROWS), None)
    if not sizes or (sizes[0] != UNKNOWN_ROWS and (count is None or sizes[0] != count)) or UNKNOWN_ROWS in sizes[1:]:
        return None
    if any(stacked) and call.inputs[0].rank != len(sizes):
        return None  # the rows would not be on the first axis of the result
    if not any(stacked) and call.inputs[0].rank >= len(sizes):
        return None
    return replace(_lowered(call, stacked, sizes=sizes[1:]), shapes=(tuple(sizes[1:]),))


def _parsing(call: Call, stacked: Sequence[bool]) -> Call | None:
    names = call.inputs[1].value
    if not stacked[0] or any(stacked[1:]) or call.inputs[0].rank != 1 or names is None or names.size:
        return None
    return _lowered(call, stacked)


def _parsed_terms(call: Call, results: list[Term], count: int | None) -> list[Term]:
    """Returns the results of `ParseExampleV2` on a batch: dense features as stacks, sparse and ragged ones as parts."""
    sparse, dense = int(call.attribute("num_sparse") or 0), len(call.inputs) - 5
    if any(None in (term.shape or ()) for term in results[3 * sparse : 3 * sparse + dense]):
        raise CannotProve("parses sequences of variable length, which cannot be batched, or only with padding")
    return [
        stack_rows(term, count) if 3 * sparse <= place < 3 * sparse + dense else Term(PART, (term,), dtype=term.dtype)
        for place, term in enumerate(results)
    ]


def _of_parts(call: Call) -> Term:
    """Returns the term of a sparse or ragged batch assembled from its parts; no other op on them is allowed."""
    if not all(term.op == PART for term in call.inputs):
        raise CannotProve(f"processes sparse or ragged features ({call.op})")
    parts = [term.inputs[0] for term in call.inputs]
    if call.op == "SerializeSparse":
        (result,) = replace(call, inputs=tuple(parts)).results()
        return Term(PART, (result,), dtype=result.dtype)
    if call.op == "RaggedTensorToVariant" and call.attribute("RAGGED_RANK") == 1 and len(parts) == 2:
        splits, values = parts
        if splits.op == values.op == "ParseExampleV2" and splits.inputs == values.inputs:
            first = 3 * int(values.attribute("num_sparse") or 0) + len(values.inputs) - 5  # the first ragged values
            keys = values.inputs[4].value
            count = keys.size if keys is not None else 0  # row splits come that many outputs after values
            if first <= values.output < first + count == splits.output - values.output + first:
                return Term(PART, (values,), dtype=values.dtype)
    raise CannotProve(f"processes sparse or ragged features ({call.op})")


# -- the ops

_RESIZES = frozenset({"ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor"})

_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(_RESIZES, _stacked_at(0)),
    **dict.fromkeys(("DecodeCSV", "DecodePaddedRaw", "DecodeRaw", "RegexReplace"), _stacked_at(0)),
    **dict.fromkeys(("AvgPool", "Conv2D", "DepthwiseConv2dNative", "ExtractImagePatches", "MaxPool"), _stacked_at(0)),
    **dict.fromkeys(("GatherNd", "LookupTableFindV2"), _stacked_at(1)),
    **dict.fromkeys(REDUCTIONS | {"ArgMax", "ArgMin", "Cumprod", "Cumsum", "OneHot"}, _by_axes),
    **dict.fromkeys(("ReverseV2", "Roll", "Split", "SplitV", "Unpack"), _by_axes),
    **dict.fromkeys(("AdjustContrastv2", "AdjustHue", "AdjustSaturation"), _with_row_rank(3)),
    **dict.fromkeys(("HSVToRGB", "RGBToHSV", "Softmax", "LogSoftmax", "TopKV2"), _with_row_rank(1)),
    **dict.fromkeys(("ConcatV2", "Pack"), _joined),
    **dict.fromkeys(("BroadcastTo", "Fill"), _to_sizes),
    **dict.fromkeys(("MirrorPad", "Pad", "PadV2"), _without_first("paddings", (0, 0))),
    "GatherV2": _gathered,
    "ParseExampleV2": _parsing,
    "Tile": _without_first("multiples", 1),
    "Transpose": _transpose_rule,
}

EXACT = {"StridedSlice"} | (
    (ELEMENTWISE_EXACT | _RESIZES | _RULES.keys() | {"Input", "Captured", "Constant", "If", "Reshape", "Slice"})
    - ELEMENTWISE_INEXACT
    - {"AdjustContrastv2", "AdjustHue", "AdjustSaturation", "AvgPool", "Conv2D", "Cumprod", "Cumsum",
       "DepthwiseConv2dNative", "EuclideanNorm", "HSVToRGB", "LogSoftmax", "Mean", "Prod", "RGBToHSV", "Softmax", "Sum"}
)  # fmt: skip
"""Ops that return the same bits for any number of rows; all others do as well if they do not return floats."""

_ZERO_SIGN = frozenset({"ClipByValue", "Maximum", "Minimum", "Relu", "Relu6", "Sign"})
"""Ops that may return +0.0 or -0.0, and a denormal or zero, depending on whether a value is in a SIMD packet."""


def _zero_sign_varies(term: Term) -> bool:
    """Whether the sign of a zero in the result may depend on the number of rows."""
    if not _is_float(term):
        return False
    if term.op in ("Max", "Min"):
        rank, axes = term.inputs[0].rank, term.attribute("axes")
        return not isinstance(axes, tuple) or axes != tuple(range(rank - len(axes), rank))
    return term.op in _ZERO_SIGN


_STEP_FUNCTIONS = frozenset(
    {"Ceil", "Floor", "FloorDiv", "FloorMod", "Mod", "Rint", "Round", "Sign", "TruncateDiv", "TruncateMod"}
)
"""Ops on floating-point values that turn a small difference into a large one."""

_IGNORES_LAST_BITS = frozenset(
    {"IsFinite", "IsInf", "IsNan", "OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"}
)
"""Ops whose results do not depend on the last bits of their inputs."""


_QUOTIENTS = frozenset({"Div", "DivNoNan", "RealDiv"})  # of complex numbers, vector code rounds otherwise


def _is_inexact(term: Term) -> bool:
    """Whether the last bits of a term may depend on the number of rows; those of constants alone never do."""
    exact = term.op in EXACT and not (term.op in _QUOTIENTS and term.dtype.is_complex)
    return not exact and _is_float(term) and any(one.op == "Input" for one in term.ancestors())


_ADDS = frozenset({"Add", "AddN", "AddV2"})
_SUMS = _ADDS | {"Sub"}  # ops that may be reassociated with each other
_PRODUCTS = frozenset({"Mul"})


def _may_be_reassociated(term: Term) -> bool:
    """Whether TensorFlow may add or multiply three numbers in one order for an element, and in another for a batch.

    Where it knows the shapes, Grappler reorders sums and products of three or more operands: constants first
    (`ConstantPushDown` in constant_folding.cc), small shapes before larger ones, and sums of one shape as one `AddN`,
    in the order of the names of its inputs (`AddOpsRewrite` and `MinimizeBroadcasts` in arithmetic_optimizer.cc). It
    does not know the number of rows of a batch.
    """
    if not _is_float(term):
        return False
    if term.op in _PRODUCTS:
        tree, leaves = _tree(term, _PRODUCTS)
        return len(tree) > 1 and (any(map(_is_constant, leaves)) or not _of_one_shape(leaves))
    if term.op in _ADDS:
        tree, leaves = _tree(term, _ADDS)
        if len(tree) > 1 and sum(not _is_zero(one) for one in leaves) > 2:  # adding zero never rounds
            return True
    if term.op in _SUMS:
        tree, leaves = _tree(term, _SUMS)
        constants = sum(map(_is_constant, leaves))
        return any(one.op == "Sub" for one in tree) and 0 < constants < len(leaves) - 1
    return False


_FUSED = frozenset(
    {("Add", "Log"), ("AddV2", "Log"), ("Exp", "Sub"), ("Softmax", "Log"), ("Sqrt", "Div"), ("Sqrt", "RealDiv")}
)
"""Ops of which Grappler makes others: `Log1p`, `Expm1`, `LogSoftmax`, `Rsqrt` and `Mul` (arithmetic_optimizer.cc)."""


def joined_op(results: Sequence[Term], handed: Collection[Term]) -> str:
    """Returns an op of one function that TensorFlow may compute together with an op of the function before it.

    In one function it then rounds otherwise than in two.

    Args:
        results: what the last function returns, in terms of the input of the first.
        handed: what the functions before it return.

    Returns:
        The type of the op; "" if there is none.
    """

    def is_joined(above: Term, term: Term) -> bool:
        alike = any({above.op, term.op} <= ops for ops in (_SUMS, _PRODUCTS))
        return (above.op, term.op) in _FUSED or (alike and _may_be_reassociated(term))

    terms = (term for result in results for term in result.ancestors())
    return next((term.op for term in terms for one in term.inputs if one in handed and is_joined(one, term)), "")


def _tree(term: Term, ops: frozenset[str]) -> tuple[list[Term], list[Term]]:
    """Returns the `ops` at the root of `term`, and their inputs that are not such ops; repeated if read repeatedly."""
    tree = [one for one in term.ancestors(through=lambda one: one.op in ops) if one.op in ops]
    read = [one for inner in tree for one in inner.inputs]
    leaves = [one for one in read if one.op not in ops]
    read_twice = len(read) - len(leaves) >= len(tree)  # otherwise every op but the root is read once
    return tree, leaves * 2 if read_twice else leaves


def _of_one_shape(terms: Sequence[Term]) -> bool:
    """Whether all have the same static shape, so that none is reordered."""
    shapes = {term.shape for term in terms}
    return len(shapes) == 1 and all(shape is not None and None not in shape for shape in shapes)


def _is_zero(term: Term) -> bool:
    return term.value is not None and not term.value.any()


def _is_constant(term: Term) -> bool:
    """Whether Grappler knows its value: it depends only on constants and static shapes."""
    made_of = term.ancestors(through=lambda one: one.op not in _IGNORES_LAST_BITS)
    return all(one.op not in ("Input", "Captured") for one in made_of)


def _discretized_inputs(term: Term) -> Sequence[Term]:
    """Returns the floating-point inputs of an op with a discrete result (integer, bool, string) or a step function."""
    if term.op in _IGNORES_LAST_BITS or (_is_float(term) and term.op not in _STEP_FUNCTIONS):
        return ()
    return [one for one in term.inputs if _is_float(one)]


def _is_float(term: Term) -> bool:
    return bool(term.dtype is not None and (term.dtype.is_floating or term.dtype.is_complex))


def _reads_zero_sign(term: Term) -> bool:
    """Whether an op distinguishes -0.0 from 0.0 other than by the sign of another zero."""
    if term.op in ("AsString", "Bitcast"):
        return _is_float(term.inputs[0])
    below = term.inputs[1] if term.op in ("Div", "RealDiv") and _is_float(term) else None
    return below is not None and any(map(_zero_sign_varies, below.ancestors()))
