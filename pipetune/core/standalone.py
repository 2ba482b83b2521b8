"""Parts of a generated stand-alone module: a pipeline's functions and sources as text, without live objects."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipetune.core.pipeline import Pipeline


def quoted(text: str) -> str:
    """Returns a string literal, in double quotes unless its text needs escaping."""
    return repr(text) if set(text) & set("\"'\\") or not text.isprintable() else f'"{text}"'


class Delivery(enum.Enum):
    """What each of the parallel pipelines delivers, and the function of the module that builds one."""

    PARTS = "a part each"  # dataset_fn(input_context)
    RANKS = "a part each, by rank"  # dataset_fn(steps, size=, rank=)
    WHOLE = "everything each"  # dataset_fn(input_context), the same context for all
    SERVICE = "what the dispatcher hands out"  # pipeline(), behind a tf.data service


@dataclass(frozen=True)
class BatchBytes:
    """Size of one element of the finished pipeline when it is sent to another process."""

    raw: int
    packed: int | None = None  # compressed; None: not measured


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
    """A user's function as an expression, and the definitions it needs, in order."""

    reference: str  # "parse", "tf.data.TFRecordDataset", "lambda x: x + 1"
    definitions: tuple[Definition, ...] = ()
    several: bool = False  # called with several arguments, because elements are tuples


@dataclass(frozen=True)
class SourceText:
    """The source operator of a pipeline as text.

    File names are in `pattern` or `names`, anything else is an `expression`. With `parameter`, the expression
    uses the argument `source` that the caller passes. With `numbered`, the expression evaluates to arrays whose
    rows are gathered by index.
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
        """Whether its elements are file names."""
        return bool(self.pattern or self.names)


@dataclass(frozen=True)
class StandaloneParts:
    """A pipeline and, by node id, the information about its operators that only live objects have."""

    pipeline: Pipeline
    sources: Mapping[str, SourceText]
    functions: Mapping[str, FunctionSource] = field(default_factory=dict)
    extra_arguments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # argument -> expression
    processors: int = 1  # of the machine; determines the default cycle length of interleave

    def with_pipeline(self, pipeline: Pipeline) -> StandaloneParts:
        """Returns the parts for an edited variant of the pipeline."""
        return replace(self, pipeline=pipeline)
