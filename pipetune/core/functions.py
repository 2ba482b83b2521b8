"""What is known about a function given to map, filter, interleave and the like."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class FunctionForm(enum.StrEnum):
    """How a function is called, where an edit changes that."""

    AS_TRACED = "as traced"
    ON_BATCHES = "on batches"  # traced again, on whole batches
    VECTORIZED = "vectorized"  # on whole batches, through `tf.vectorized_map`
    PARSING = "on batches with parse_example"  # on whole batches, `tf.io.parse_example` in place of the single form
    GATHERING = "gathering rows"  # pipetune's own: takes rows of the arrays of the source above by their numbers
    ON_INPUT = "on what the map gets"  # a predicate, traced again above the map that it stood below
    FUSED = "on what the functions of the maps above give"  # which it calls itself
    DECODE_AND_CROP = "decoding only what it crops"  # the window of a JPEG in place of the whole image
    HEAD = "its first part alone"  # of a function cut in two
    TAIL = "its second part alone"
    TAIL_ON_BATCHES = "its second part alone, on batches"


_ON_BATCHES = frozenset(
    {FunctionForm.ON_BATCHES, FunctionForm.VECTORIZED, FunctionForm.PARSING, FunctionForm.GATHERING,
     FunctionForm.TAIL_ON_BATCHES}
)  # fmt: skip


@dataclass(frozen=True)
class OnBatches:
    """What a function does when it is called once with a whole batch (`tf/pipelines/on_batches.py`)."""

    why_not: str = ""  # why its rows are not what it gives for each element alone, as the end of a sentence
    form: FunctionForm = FunctionForm.ON_BATCHES  # how it has to be called there
    digest: str = ""  # of the function traced in that form
    inexact: tuple[str, ...] = ()  # ops whose last bits depend on how many rows there are
    zero_signs: bool = False  # besides, the sign of a zero may differ, and what becomes of a denormal
    cut: Cut | None = None  # where it is cut first: its beginning is called on batches as it is, the rest in `form`


@dataclass(frozen=True)
class Windows:
    """Windows of rows, each whole: the rows `start`, `start + stride`... of a `start` that grows by `shift`."""

    size: int  # rows of a window
    shift: int
    stride: int
    length_known: bool = True  # whether the number of rows is in the static shape

    def starts(self, rows: int) -> range:
        """The first row of every window of so many rows."""
        return range(0, max(0, rows - self.reach), self.shift)

    @property
    def reach(self) -> int:
        """Rows from the first of a window to the last."""
        return (self.size - 1) * self.stride


@dataclass(frozen=True)
class Gathering:
    """How a batch of the rows of arrays in memory is taken by their numbers (`tf/pipelines/gathering.py`)."""

    why_not: str = ""  # why it cannot be, as the end of a sentence
    digest: str = ""  # of the function that takes a batch of numbers and gives the rows
    windows: Windows | None = None  # what is made of the rows before they are batched; None: nothing
    singly: bool = False  # the operator puts out windows that functions above it take by their numbers, one at a time


@dataclass(frozen=True)
class OnInput:
    """What a predicate does when it is called on what a map above it gets (`tf/pipelines/on_inputs.py`)."""

    why_not: str = ""  # why it does not say the same there, as the end of a sentence
    digest: str = ""  # of the predicate traced there


@dataclass(frozen=True)
class Fused:
    """What one function does that calls those of a run of maps one after another (`tf/pipelines/fusion.py`)."""

    first: tuple[str, ...]  # the maps above, the uppermost first
    why_not: str = ""  # why it does not give what the maps give, as the end of a sentence
    digest: str = ""  # of that function


@dataclass(frozen=True)
class Cropping:
    """Whether a function that decodes JPEGs could decode only the window it keeps (`tf/pipelines/cropping.py`)."""

    why_not: str = ""  # why it needs the whole image, as the end of a sentence
    digest: str = ""  # of the function in that form
    seen: str = ""  # the elements that were looked at and are JPEGs: "48 elements, start, middle and end"


class CutKind(enum.StrEnum):
    """Where a function is cut in two."""

    BEFORE_DRAWS = "in front of its first random draw"
    BEFORE_EACH_NUMBER = "in front of ops that treat every number by itself"  # to its end
    BEHIND_PARSING = "behind what takes its text apart"  # which tf.vectorized_map has no form for


@dataclass(frozen=True)
class Cut:
    """How a function is cut in two; the second part goes on from what the first gives (`tf/pipelines/cutting.py`)."""

    kind: CutKind
    why_not: str = ""  # why it cannot be cut there, as the end of a sentence
    position: int = 0  # ops of its graph, in the order they were traced, that the first part has
    spec: str = ""  # of what is handed from one to the other, as text
    element_bytes: float | None = None  # of that; None where it is not known
    head: str = ""  # digest of the first part
    tail: str = ""  # digest of the second part
    inexact: tuple[str, ...] = ()  # ops of the second part, as in `OnBatches`
    zero_signs: bool = False
    statement: int | None = None  # of its body, the first of the second part; None: it is cut inside a statement
    handed: int = 0  # tensors that are handed on
    taken: tuple[int, ...] = ()  # those of them that the function gets, by their places in its input
    components: int = 0  # of its input


@dataclass(frozen=True)
class Shrinking:
    """Whether a function that decodes JPEGs could decode them at a smaller scale (`tf/pipelines/shrinking.py`)."""

    why_not: str = ""  # why it needs them at full scale, as the end of a sentence
    ratio: int = 2  # of its sides to those of the smallest scale that is large enough: 2, 4 or 8
    seen: str = ""  # the elements that were looked at: "48 elements: start, middle and end"
    most_apart: float = 0.0  # greatest difference of a pixel that is resized to, as a share of the greatest value
    mean_apart: float = 0.0  # the same, on average


@dataclass(frozen=True)
class FunctionFacts:
    """Facts read from a traced function, those of every function it calls included.

    Every flag is True when in doubt: a rule that stays silent for nothing costs less than a wrong rewrite.
    """

    name: str
    digest: str  # hash of the normalised graph; tokens, seeds, file names, constants over 1 kB left out
    operations: tuple[str, ...] = ()  # TensorFlow op types, sorted, each once
    size: int = 0  # nodes of the graph, those of every function it calls included
    random: bool = False  # holds a random op whose draws differ from call to call
    seeded: bool = False  # every random op of it carries a seed
    random_python: bool = False  # draws nobody can pin: Python, tf.random.Generator, Keras SeedGenerator
    python: bool = False  # py_function, numpy_function, a generator: runs under the GIL
    reads_variables: tuple[str, ...] = ()  # names of the variables it reads
    writes_variables: bool = False
    mutable_tables: bool = False
    side_effects: tuple[str, ...] = ()  # op types with effects outside: Print, WriteFile, ...
    reads_files: bool = False
    can_raise: bool = False  # an assertion or a check on values
    hands_on: tuple[int, ...] = ()  # per component it gives, which of its input it is unchanged; -1 for what it makes
    on_batches: OnBatches | None = None  # None: nobody asked
    on_inputs: tuple[OnInput, ...] | None = None  # of a predicate: per map above it, the nearest first
    fused: Fused | None = None  # of the lowest of a run of maps; None: nobody asked
    cropping: Cropping | None = None  # None: nobody asked, or it decodes no JPEG
    cuts: tuple[Cut, ...] | None = None  # at most one of a kind; None: nobody asked
    shrinking: Shrinking | None = None  # None: nobody asked, or it decodes no JPEG
    form: FunctionForm = FunctionForm.AS_TRACED
    first: tuple[str, ...] = ()  # operators whose functions it calls before its own
    part_of: str = ""  # the operator whose function it is a part of
    cut: Cut | None = None  # the cut that made it a part

    @property
    def called_on_batches(self) -> bool:
        """Whether an edit has it called on batches, in whichever form."""
        return self.form in _ON_BATCHES

    @property
    def stateless(self) -> bool:
        """Whether a call's result depends on its arguments alone and leaves nothing behind."""
        return not (self.random or self.reads_variables or self.leaves_traces)

    @property
    def leaves_traces(self) -> bool:
        """Whether a call may change what the script holds."""
        return bool(self.python or self.writes_variables or self.mutable_tables or self.side_effects)
