"""The part of a pipeline that TensorFlow Datasets creates, and its parameters as a `tfds.ReadConfig`.

`tfds.load` and `builder.as_dataset` create several operators in one call: the files, their order, the interleave of
their readers, the decoding. The script can change them only through the `ReadConfig` that it passes to the call.

Source: `_read_files` in tensorflow_datasets/core/reader.py, `_build_single_dataset` in dataset_builder.py (4.9), and
the guide "TFDS and determinism".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pipetune.core.edits import Edit, Remove, SetArgument
from pipetune.core.location import SourceLocation
from pipetune.core.pipeline import AUTOTUNE, Node, Pipeline, Value

LIBRARY = "tensorflow_datasets"

_INTERLEAVE = {
    "cycle_length": "interleave_cycle_length",
    "block_length": "interleave_block_length",
    "num_parallel_calls": "num_parallel_calls_for_interleave_files",
}
_SHUFFLE = {"seed": "shuffle_seed", "reshuffle_each_iteration": "shuffle_reshuffle_each_iteration"}
_DECODE = {"num_parallel_calls": "num_parallel_calls_for_decode"}
_LEFT_OUT = {"prefetch": ("skip_prefetch", True), "cache": ("try_autocache", False)}
_ASIDE = frozenset({"assert_cardinality", "with_options"})  # between the interleave and the decoding


@dataclass(frozen=True)
class TfdsReading:
    """The operators of one call, by their purpose; None if the call creates none."""

    location: SourceLocation
    interleave: Node
    decode: Node | None
    shuffle: Node | None  # of the file names
    shard: Node | None  # of the file names
    made: tuple[Node, ...]  # all operators of the call, sources first

    @property
    def call(self) -> str:
        """The call, in words that users know."""
        return "tfds.load" if self.location.method == "load" else self.location.method

    @property
    def in_a_row(self) -> int:
        """Number of consecutive examples that are read from one file before the next."""
        return _positive(self.interleave.argument("block_length"))

    def at_a_time(self, pipeline: Pipeline) -> int:
        """Returns the number of files that are read in turns."""
        length, files = _positive(self.interleave.argument("cycle_length")), self.files(pipeline)
        return length if files is None else min(length, files)

    def files(self, pipeline: Pipeline) -> int | None:
        """Returns the number of files that are read; None if unknown."""
        count = pipeline[self.interleave.inputs[0]].cardinality
        return count if count > 0 else None


def readings(pipeline: Pipeline) -> Iterator[TfdsReading]:
    """Yields the parts of the pipeline that TensorFlow Datasets created, one for each interleave of its readers."""
    for node in pipeline:
        if node.op == "interleave" and node.location is not None and node.location.library == LIBRARY:
            yield _reading(pipeline, node, node.location)


def _reading(pipeline: Pipeline, interleave: Node, location: SourceLocation) -> TfdsReading:
    above = [node for node in pipeline.upstream(interleave.id) if node.location == location]
    below = [node for node in pipeline.downstream(interleave.id) if node.location == location]
    first = next((node for node in below if node.op not in _ASIDE), None)
    return TfdsReading(
        location,
        interleave,
        decode=first if first is not None and first.op == "map" else None,
        shuffle=next((node for node in above if node.op == "shuffle"), None),
        shard=next((node for node in above if node.op == "shard"), None),
        made=(*above, interleave, *below),
    )


def sentence(pipeline: Pipeline, reading: TfdsReading) -> str:
    """Describes what is read and in which order, for the notes of a session."""
    files = reading.files(pipeline)
    counted = "its files" if files is None else f"{files} file{'s' * (files != 1)}"
    shuffle = reading.shuffle
    if shuffle is None:
        order = "in the same order every time"
    elif shuffle.argument("seed") is None:
        order = "in another order every time"
    else:
        order = "shuffled by the seed it is given"
    return (
        f"{reading.call} ({reading.location}) reads {counted} {order}, {reading.at_a_time(pipeline)} in turn, "
        f"{reading.in_a_row} examples of each: rewrites of that are written as a tfds.ReadConfig."
    )


def _positive(value: Value) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def reading_of(pipeline: Pipeline, node: str) -> TfdsReading | None:
    """Returns the reading that operator `node` is part of; None if TensorFlow Datasets did not create it."""
    return next((one for one in readings(pipeline) if any(made.id == node for made in one.made)), None)


def field_for(pipeline: Pipeline, edit: Edit) -> tuple[str, Value] | None:
    """Returns the field of `ReadConfig` that is equivalent to an edit, and its value; None if there is none."""
    if not isinstance(edit, SetArgument | Remove):
        return None
    reading = reading_of(pipeline, edit.node)
    if reading is None:
        return None
    if isinstance(edit, Remove):
        return _LEFT_OUT.get(pipeline[edit.node].op)
    names: Mapping[str, str] = {}
    for node, fields in ((reading.interleave, _INTERLEAVE), (reading.shuffle, _SHUFFLE), (reading.decode, _DECODE)):
        if node is not None and node.id == edit.node:
            names = fields
    name = names.get(edit.name)
    return None if name is None else (name, edit.value)


def fields_for(pipeline: Pipeline, edits: Iterable[Edit]) -> dict[str, Value]:
    """Returns the fields of `ReadConfig` that are equivalent to these edits; edits without a field are ignored."""
    found = (field_for(pipeline, edit) for edit in edits)
    return dict(field for field in found if field is not None)


def read_config_text(fields: Mapping[str, Value], *, module: str = "tfds", autotune: str = "tf.data.AUTOTUNE") -> str:
    """Returns the source text of a `tfds.ReadConfig(...)` with these fields."""
    given = ", ".join(f"{name}={value_text(name, value, autotune=autotune)}" for name, value in fields.items())
    return f"{module}.ReadConfig({given})"


def value_text(name: str, value: Value, *, autotune: str = "tf.data.AUTOTUNE") -> str:
    """Returns the source text of a field's value."""
    return autotune if value == AUTOTUNE and name.startswith("num_parallel_calls") else repr(value)
