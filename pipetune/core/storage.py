"""The files a pipeline reads: which ones, how much, how fast, and how TensorFlow Datasets is configured to do so."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pipetune.core.edits import Edit, Remove, SetArgument
from pipetune.core.measurement import Interval
from pipetune.core.pipeline import AUTOTUNE, Node, Pipeline, SourceLocation, Value


@dataclass(frozen=True)
class SweepLevel:
    """Rate of a number of parallel reads."""

    parallel: int
    bytes_per_second: Interval | None = None
    elements_per_second: Interval | None = None  # of the pipeline's own source


class SweepReader(enum.StrEnum):
    FILES = "files"  # pipetune's own threads read the bytes of the files: the rate of storage
    SOURCE = "source"  # the pipeline's own source alone


@dataclass(frozen=True)
class Sweep:
    """Reads at several levels of parallelism, in interleaved rounds, and the level beyond which rates do not rise."""

    reader: SweepReader
    levels: tuple[SweepLevel, ...]
    node: str = ""  # the reading operator, if the reader is the pipeline's source
    cold: bool = False  # the page cache was dropped before each window
    knee: int | None = None  # parallel reads beyond which the rate does not rise; None: rises to the last level
    falling: bool = False  # the rate falls beyond the knee
    ceiling: float | None = None  # highest bytes per second of the curve; elements if bytes are unknown


@dataclass(frozen=True)
class PageCacheResidency:
    """How much of the files was in the page cache, and the result of dropping them from it."""

    share: float | None = None  # of the inspected pages; None: the system cannot tell
    left: float | None = None  # share after dropping them; None: not requested, or unknown
    why: str = ""  # why a share is unknown, or why pages stayed


SMALL_FILES, SMALL_FILE_BYTES = 1000, 256 << 10
"""At least this many files of at most this many bytes on average: opening them may dominate the cost of reading."""


@dataclass(frozen=True)
class SmallFileCosts:
    """Seconds per file to read a sample of files individually, and to read the same bytes from one TFRecord file."""

    files: int  # size of the sample, spread over all files
    apart_seconds: float
    together_seconds: float


@dataclass(frozen=True)
class FileUse:
    """The files one pipeline reads, and how fast.

    Bytes per element are per output element, read by system calls in later epochs.
    """

    files: int = 0  # named by the pipeline and existing
    bytes_total: int = 0  # total size
    complete: bool = True  # False: there are more than could be inspected in time
    directory: str = ""  # their common folder
    kinds: tuple[str, ...] = ()  # their suffixes, the most common first
    remote: tuple[str, ...] = ()  # schemes of names that are not local: "gs", "s3"
    remote_files: int = 0
    opened: int = 0  # files seen open during the run, in addition to those named
    filesystems: tuple[str, ...] = ()
    bytes_per_element: float | None = None
    storage_bytes_per_element: float | None = None  # the part that came from storage
    needed: float | None = None  # bytes per second that the model could consume
    reached: float | None = None  # bytes per second of the original input alone
    reached_training: float | None = None  # bytes per second while training
    cold: bool = False  # --cold: files are dropped from the page cache before each window
    residency: PageCacheResidency = PageCacheResidency()
    sweeps: tuple[Sweep, ...] = ()
    small: SmallFileCosts | None = None  # None: files are few or large, or not measured
    notes: tuple[str, ...] = ()

    @property
    def has_many_small_files(self) -> bool:
        """Whether the files are so many and so small that opening them may matter."""
        return self.files >= SMALL_FILES and self.bytes_total <= SMALL_FILE_BYTES * self.files

    @property
    def storage_bytes_per_second(self) -> float | None:
        """The highest measured rate of reading the files; None if not measured."""
        return next((sweep.ceiling for sweep in self.sweeps if sweep.reader is SweepReader.FILES), None)


LIBRARY = "tensorflow_datasets"

_INTERLEAVE = {
    "cycle_length": "interleave_cycle_length",
    "block_length": "interleave_block_length",
    "num_parallel_calls": "num_parallel_calls_for_interleave_files",
}
_SHUFFLE = {"seed": "shuffle_seed", "reshuffle_each_iteration": "shuffle_reshuffle_each_iteration"}
_DECODE = {"num_parallel_calls": "num_parallel_calls_for_decode"}
_LEFT_OUT = {"prefetch": ("skip_prefetch", True), "cache": ("try_autocache", False)}
_IGNORED_OPERATORS = frozenset({"assert_cardinality", "with_options"})  # between the interleave and the decoding


@dataclass(frozen=True)
class TfdsRead:
    """The operators of one call, by their purpose; None if the call creates none."""

    location: SourceLocation
    interleave: Node
    decode: Node | None
    shuffle: Node | None  # of the file names
    shard: Node | None  # of the file names
    operators: tuple[Node, ...]  # all operators of the call, sources first

    @property
    def call(self) -> str:
        """The call, in words that users know."""
        return "tfds.load" if self.location.method == "load" else self.location.method

    @property
    def block_length(self) -> int:
        """Number of consecutive examples that are read from one file before the next."""
        return _positive(self.interleave.argument("block_length"))

    def cycle_length(self, pipeline: Pipeline) -> int:
        """Returns the number of files that are read in turns."""
        length, files = _positive(self.interleave.argument("cycle_length")), self.files(pipeline)
        return length if files is None else min(length, files)

    def files(self, pipeline: Pipeline) -> int | None:
        """Returns the number of files that are read; None if unknown."""
        count = pipeline[self.interleave.inputs[0]].cardinality
        return count if count > 0 else None


def tfds_reads(pipeline: Pipeline) -> Iterator[TfdsRead]:
    """Yields the parts of the pipeline that TensorFlow Datasets created, one for each interleave of its readers."""
    for interleave in pipeline:
        location = interleave.location
        if interleave.op != "interleave" or location is None or location.library != LIBRARY:
            continue
        above = [node for node in pipeline.upstream(interleave.id) if node.location == location]
        below = [node for node in pipeline.downstream(interleave.id) if node.location == location]
        first = next((node for node in below if node.op not in _IGNORED_OPERATORS), None)
        yield TfdsRead(
            location,
            interleave,
            decode=first if first is not None and first.op == "map" else None,
            shuffle=next((node for node in above if node.op == "shuffle"), None),
            shard=next((node for node in above if node.op == "shard"), None),
            operators=(*above, interleave, *below),
        )


def description(pipeline: Pipeline, reading: TfdsRead) -> str:
    """Returns sentences on what is read and in which order, for the notes of a session."""
    files = reading.files(pipeline)
    counted = "its files" if files is None else f"{files} file{'s' * (files != 1)}"
    order = "in the same order every time"
    if reading.shuffle is not None:
        seeded = reading.shuffle.argument("seed") is not None
        order = "shuffled with its seed" if seeded else "in a different order every time"
    return (
        f"{reading.call} ({reading.location}) reads {counted} {order}, {reading.cycle_length(pipeline)} at a "
        f"time in turns of {reading.block_length} examples. Rewrites of these operators are written as a "
        "tfds.ReadConfig."
    )


def _positive(value: Value) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def tfds_read_of(pipeline: Pipeline, node: str) -> TfdsRead | None:
    """Returns the reading that operator `node` is part of; None if TensorFlow Datasets did not create it."""
    return next((one for one in tfds_reads(pipeline) if any(made.id == node for made in one.operators)), None)


def read_config_field(pipeline: Pipeline, edit: Edit) -> tuple[str, Value] | None:
    """Returns the field of `ReadConfig` that is equivalent to an edit, and its value; None if there is none."""
    if not isinstance(edit, SetArgument | Remove):
        return None
    reading = tfds_read_of(pipeline, edit.node)
    if reading is None:
        return None
    if isinstance(edit, Remove):
        return _LEFT_OUT.get(pipeline[edit.node].op)
    for node, names in ((reading.interleave, _INTERLEAVE), (reading.shuffle, _SHUFFLE), (reading.decode, _DECODE)):
        if node is not None and node.id == edit.node and edit.name in names:
            return names[edit.name], edit.value
    return None


def read_config_fields(pipeline: Pipeline, edits: Iterable[Edit]) -> dict[str, Value]:
    """Returns the fields of `ReadConfig` that are equivalent to these edits; edits without a field are ignored."""
    return dict(filter(None, (read_config_field(pipeline, edit) for edit in edits)))


def read_config_text(fields: Mapping[str, Value]) -> str:
    """Returns the source text of a `tfds.ReadConfig(...)` with these fields."""
    return f"tfds.ReadConfig({', '.join(f'{name}={value_text(name, value)}' for name, value in fields.items())})"


def value_text(name: str, value: Value, *, autotune: str = "tf.data.AUTOTUNE") -> str:
    """Returns the source text of a field's value."""
    return autotune if value == AUTOTUNE and name.startswith("num_parallel_calls") else repr(value)
