"""What a stand-alone module is made of: a pipeline's functions and sources as text, without live objects."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipetune.core.pipeline import Pipeline


def quoted(text: str) -> str:
    """A text literal in double quotes, where nothing in it needs escaping."""
    return repr(text) if set(text) & set("\"'\\") or not text.isprintable() else f'"{text}"'


class Delivery(enum.Enum):
    """What the pipelines that run side by side are to give, and how the module is asked for one of them."""

    PARTS = "a part each"  # dataset_fn(input_context)
    RANKS = "a part each, by rank"  # dataset_fn(steps, size=, rank=)
    WHOLE = "everything each"  # dataset_fn(input_context), the same context for all
    SERVICE = "what the dispatcher hands out"  # pipeline(), behind a tf.data service


@dataclass(frozen=True)
class BatchBytes:
    """What one element of the finished pipeline takes on the way to another process."""

    raw: int
    packed: int | None = None  # as compressed for the way; None: not measured


@dataclass(frozen=True)
class Definition:
    """A statement at module level that binds `name`: an import, a constant, a function."""

    name: str
    text: str

    @property
    def is_import(self) -> bool:
        return self.text.startswith(("import ", "from "))


@dataclass(frozen=True)
class FunctionSource:
    """A user's function as an expression, and what must be defined for it, in order of definition."""

    reference: str  # "parse", "tf.data.TFRecordDataset", "lambda x: x + 1"
    definitions: tuple[Definition, ...] = ()
    several: bool = False  # it is called with several arguments, because elements are tuples


@dataclass(frozen=True)
class SourceText:
    """The source operator of a pipeline as text.

    File names come as `pattern` or as `names`; anything else as `expression`. With `parameter` the expression
    reads the argument `source`, which the caller gives. `numbered` says that the expression gives arrays whose rows
    are numbered.
    """

    count: int  # elements; -1 infinite
    pattern: str = ""
    names: tuple[str, ...] = ()
    expression: str = ""
    parameter: bool = False
    definitions: tuple[Definition, ...] = ()
    numbered: bool = False

    @property
    def files(self) -> bool:
        """Whether its elements are names of files."""
        return bool(self.pattern or self.names)


@dataclass(frozen=True)
class StandaloneParts:
    """A pipeline, and for its operators (by node id) what only the live objects know."""

    pipeline: Pipeline
    sources: Mapping[str, SourceText]
    functions: Mapping[str, FunctionSource] = field(default_factory=dict)
    extra_arguments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # argument -> expression
    processors: int = 1  # of the machine: the default cycle length of interleave follows it

    def with_pipeline(self, pipeline: Pipeline) -> StandaloneParts:
        """The parts for an edited form of the pipeline."""
        return replace(self, pipeline=pipeline)
