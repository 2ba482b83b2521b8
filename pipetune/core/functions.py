"""Facts about a function passed to map, filter, interleave and similar operators."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


class FunctionVariant(enum.StrEnum):
    """How a function is called, if an edit changes that."""

    AS_TRACED = "as traced"
    ON_BATCHES = "on batches"  # retraced for whole batches
    VECTORIZED = "vectorized"  # on whole batches, through `tf.vectorized_map`
    PARSING = "on batches with parse_example"  # on whole batches, not `parse_single_example`
    GATHERING = "gathering rows"  # pipetune's own: gathers rows of the source's arrays by index
    ON_INPUT = "on what the map gets"  # a predicate, retraced to run upstream of the map that preceded it
    FUSED = "on what the functions of the maps above give"  # it calls the functions of the upstream maps itself
    DECODE_AND_CROP = "decoding only what it crops"  # decodes the crop window of a JPEG instead of the whole image
    BRANCHING = "computing only what it selects"  # `tf.cond` instead of `tf.where`
    ARRAYS = "with arrays instead of eager tensors"  # `tf.numpy_function` instead of `tf.py_function`
    HEAD = "its first part alone"  # of a function that was split in two
    TAIL = "its second part alone"


PYTHON_CALLS = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
"""Ops that call a function of Python: `tf.py_function` and `tf.numpy_function`."""

_ON_BATCHES = frozenset(
    {FunctionVariant.ON_BATCHES, FunctionVariant.VECTORIZED, FunctionVariant.PARSING, FunctionVariant.GATHERING}
)


@dataclass(frozen=True)
class GraphEdit:
    """What there is to know of a variant that replaces ops of the traced function.

    Three modules have its name: the rule is in `rewrites`, the function that edits the graph in `pipelines`, and the
    one that changes the text of the script in `source`. The text needs other ops than the edited graph.
    """

    module: str
    probed: str  # the field of `FunctionFacts` that says whether a function has the variant
    new_ops: frozenset[str]  # one of them is in a function whose text has been changed
    otherwise: str  # what a function does whose text was not changed, as a predicate


GRAPH_EDITS: Mapping[FunctionVariant, GraphEdit] = {
    FunctionVariant.DECODE_AND_CROP: GraphEdit(
        "decode_and_crop", "cropping", frozenset({"DecodeAndCropJpeg"}), otherwise="decodes whole images"
    ),
    FunctionVariant.BRANCHING: GraphEdit(
        "where_to_cond", "branching", frozenset({"If", "StatelessIf"}), otherwise="computes both sides of tf.where"
    ),
    FunctionVariant.ARRAYS: GraphEdit(
        "numpy_function", "arrays", frozenset({"PyFunc"}), otherwise="calls tf.py_function"
    ),
}
"""The variants that replace ops of the traced function. They are probed in this order."""


@dataclass(frozen=True)
class ProbeResult:
    """Whether a function has a variant that a rewrite needs, proven to return the same."""

    why_not: str = ""  # why it has none, as the end of a sentence; "" if it has one
    digest: str = ""  # of the function traced in that variant


@dataclass(frozen=True)
class BatchedCall(ProbeResult):
    """Whether a function can be called once per batch instead of per element (`probes/batches.py`)."""

    form: FunctionVariant = FunctionVariant.ON_BATCHES  # the variant in which it must be called
    inexact: tuple[str, ...] = ()  # ops whose least significant bits depend on the number of rows
    zero_signs: bool = False  # the sign of zeros and the handling of denormals may differ as well
    cut: FunctionSplit | None = None  # split first: the head is called on batches as it is, the tail in `form`


@dataclass(frozen=True)
class RowWindows:
    """Full windows of rows: each has the rows `start`, `start + stride`, ..., and `start` advances by `shift`."""

    size: int  # rows per window
    shift: int
    stride: int
    length_known: bool = True  # whether the window length is part of the static shape

    def window_starts(self, rows: int) -> range:
        return range(0, max(0, rows - self.span), self.shift)

    @property
    def span(self) -> int:
        """Distance in rows from the first row of a window to the last."""
        return (self.size - 1) * self.stride


@dataclass(frozen=True)
class RowGathering(ProbeResult):
    """How a function gathers a batch of rows of in-memory arrays by their indices (`pipelines/gathering.py`)."""

    windows: RowWindows | None = None  # windows formed of the rows before batching; None: no windows
    singly: bool = False  # its output is windows that upstream functions gather one at a time


@dataclass(frozen=True)
class PredicatePushdown(ProbeResult):
    """Whether a predicate can be evaluated on the input of an upstream map (`probes/batches.py`)."""


@dataclass(frozen=True)
class MapFusion(ProbeResult):
    """Whether one function can call the functions of consecutive maps in turn (`pipelines/replay.py`)."""

    first: tuple[str, ...] = ()  # ids of the upstream maps, most upstream first


@dataclass(frozen=True)
class CropDecoding(ProbeResult):
    """Whether a function that decodes JPEGs could decode only the window it keeps (`probes/edited_graphs.py`)."""

    seen: str = ""  # the examined elements, all JPEGs: "48 elements, start, middle and end"


@dataclass(frozen=True)
class Padding(ProbeResult):
    """Whether a function only fills components up to fixed sizes, as a batch could (`probes/pad_batches.py`)."""

    shapes: str = ""  # of the components behind it, as source text in the structure of the elements


class SplitPosition(enum.StrEnum):
    BEFORE_DRAWS = "in front of its first random draw"
    BEFORE_PYTHON = "in front of its first call of Python"
    AFTER_PARSING = "behind what takes its text apart"  # `tf.vectorized_map` has no converter for these ops


@dataclass(frozen=True)
class FunctionSplit:
    """How a function is split in two; the first returns the second's input (`probes/function_splitting.py`)."""

    kind: SplitPosition
    why_not: str = ""  # why it cannot be split there, as the end of a sentence
    position: int = 0  # number of ops in the first part, counted in tracing order
    spec: str = ""  # element spec of the values passed between the parts, as text
    element_bytes: float | None = None  # size of these values; None if unknown
    head: str = ""  # digest of the first part
    tail: str = ""  # digest of the second part
    statement: int | None = None  # first statement of the second part; None: the split is inside an expression
    call: str = ""  # function whose call in the statement ends the first part; "": it ends before the statement
    handed: int = 0  # number of tensors passed between the parts
    taken: tuple[int, ...] = ()  # indices of the input components that are passed through unchanged
    components: int = 0  # number of components of its input
    parses_examples: bool = False  # the first part calls `tf.io.parse_single_example`

    @property
    def head_on_batches(self) -> FunctionVariant:
        """How the first part is called on batches."""
        return FunctionVariant.PARSING if self.parses_examples else FunctionVariant.ON_BATCHES


@dataclass(frozen=True)
class ScaledDecoding(ProbeResult):
    """Whether a function that decodes JPEGs could decode them at a smaller scale (`probes/edited_graphs.py`)."""

    ratio: int = 2  # full side length over that of the smallest sufficient scale: 2, 4 or 8
    seen: str = ""  # the examined elements: "48 elements: start, middle and end"
    most_apart: float = 0.0  # maximum difference of a resized pixel, as a share of the maximum value
    mean_apart: float = 0.0  # mean difference, as a share of the maximum value


@dataclass(frozen=True)
class ArraySelection:
    """A statement that chooses between two whole arrays by a single condition, with `tf.where`."""

    file: str
    line: int
    elements: int | None = None  # numbers in the largest array; None: a shape is not fully known
    why_not: str = ""  # why it cannot compute only one of them, as the end of a sentence; "" if it can
    kept_lines: tuple[int, ...] = ()  # other lines of the function with code that must not move into a branch
    moved_lines: tuple[int, ...] = ()  # other lines of the function with ops that move into a branch


@dataclass(frozen=True)
class FunctionFacts:
    """Facts read from a traced function, including every function it calls.

    A flag is True when in doubt: a missed rewrite costs less than a wrong one.
    """

    name: str
    digest: str  # hash of the normalized graph without tokens, seeds, file names, constants over 1 kB
    operations: tuple[str, ...] = ()  # TensorFlow op types, sorted, without duplicates
    size: int = 0  # number of graph nodes, including every function it calls
    random: bool = False  # contains a random op whose draws differ from call to call
    seeded: bool = False  # all of its random ops have a seed
    random_python: bool = False  # random numbers that cannot be fixed: Python, tf.random.Generator, Keras SeedGenerator
    python: bool = False  # py_function, numpy_function, a generator: runs under the GIL
    reads_variables: tuple[str, ...] = ()  # names of the variables it reads
    writes_variables: bool = False
    mutable_tables: bool = False
    side_effects: tuple[str, ...] = ()  # op types with external effects: Print, WriteFile, ...
    reads_files: bool = False
    can_raise: bool = False  # contains an assertion or a check of values
    unordered: bool = False  # a dataset in it lets elements overtake each other (`deterministic=False`)
    selections: tuple[ArraySelection, ...] = ()  # between large arrays, in the script's own code
    hands_on: tuple[int, ...] = ()  # per output component: index of the input passed through unchanged, or -1
    on_batches: BatchedCall | None = None  # None: not probed
    on_inputs: tuple[PredicatePushdown, ...] | None = None  # of a predicate: one per upstream map, the nearest first
    fused: MapFusion | None = None  # of the last of consecutive maps; None: not probed
    cropping: CropDecoding | None = None  # None: not probed, or it decodes no JPEG
    before_draws: FunctionSplit | None = None  # its split before the first draw or call of Python; None: not probed
    arrays: ProbeResult | None = None  # None: not probed, or it calls no `tf.py_function`
    branching: ProbeResult | None = None  # None: not probed, or it selects no large arrays
    padding: Padding | None = None  # None: not probed, or it pads nothing
    shrinking: ScaledDecoding | None = None  # None: not probed, or it decodes no JPEG
    form: FunctionVariant = FunctionVariant.AS_TRACED
    first: tuple[str, ...] = ()  # ids of operators whose functions it calls before its own
    called_forms: tuple[FunctionVariant, ...] = ()  # with `first`: the variants of these functions, then of its own
    part_of: str = ""  # id of the operator whose function was split, if this is a part of it
    cut: FunctionSplit | None = None  # the split that produced this part

    @property
    def called_on_batches(self) -> bool:
        """Whether an edit calls it on batches, in any variant."""
        return self.form in _ON_BATCHES

    @property
    def edited_forms(self) -> frozenset[FunctionVariant]:
        """The variants `GRAPH_EDITS` that an edit chose, for it or for a function that it calls."""
        return frozenset((self.form, *self.called_forms)).intersection(GRAPH_EDITS)

    @property
    def stateless(self) -> bool:
        """Whether the result of a call depends only on its arguments and the call has no side effects."""
        return not (self.random or self.reads_variables or self.may_change_state)

    @property
    def only_draws(self) -> bool:
        """Whether the result of a call depends only on its arguments and random draws, without other side effects."""
        return not (self.random_python or self.reads_variables or self.may_change_state)

    @property
    def may_change_state(self) -> bool:
        return bool(self.python or self.writes_variables or self.mutable_tables or self.side_effects)


def with_effects_of(function: FunctionFacts, others: Iterable[FunctionFacts]) -> FunctionFacts:
    """Returns the facts of a function with all that others do added: their ops, draws, state and errors."""
    parts = (function, *others)
    return replace(
        function,
        operations=tuple(sorted({kind for part in parts for kind in part.operations})),
        size=sum(part.size for part in parts),
        random=any(part.random for part in parts),
        seeded=any(part.seeded for part in parts) and all(part.seeded for part in parts if part.random),
        random_python=any(part.random_python for part in parts),
        python=any(part.python for part in parts),
        reads_variables=tuple(sorted({name for part in parts for name in part.reads_variables})),
        writes_variables=any(part.writes_variables for part in parts),
        mutable_tables=any(part.mutable_tables for part in parts),
        side_effects=tuple(sorted({kind for part in parts for kind in part.side_effects})),
        reads_files=any(part.reads_files for part in parts),
        can_raise=any(part.can_raise for part in parts),
        unordered=any(part.unordered for part in parts),
    )
