"""Checks of TensorFlow Datasets: subsets other than those of the split, and its own way to shard files.

Source: the guide "TFDS and determinism", section "Subsplit and example order"; `tfds.ReadConfig`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding
from pipetune.core.tfds_reading import TfdsReading, readings
from pipetune.mistakes.use import Use, repeats, said, shuffles_anew


def subsets(use: Use) -> Iterator[Finding]:
    """Reports a `take` after the reader that does not give the first examples of the split.

    Reports nothing if the files are read one after the other in their order, if there is a shuffle in between (which
    other checks report), and for `skip`, by which a job resumes.
    """
    for reading in readings(use.pipeline):
        for take in use.pipeline.downstream(reading.interleave.id):
            if take.op == "take" and take.location != reading.location and _others(use, reading, take):
                yield said("tfds-subset", take, _message(use, reading, take), _HINT.format(take.argument("count")))


def _others(use: Use, reading: TfdsReading, take: Node) -> bool:
    count, has = take.argument("count"), use.pipeline[take.inputs[0]].cardinality
    if not isinstance(count, int) or count <= 0 or 0 <= has <= count:
        return False
    between = use.between(reading.interleave.id, take.id)
    if any(repeats(node) or shuffles_anew(node) or facts(node.op).count is not Count.ONE_TO_ONE for node in between):
        return False
    return reading.shuffle is not None or (reading.at_a_time(use.pipeline) > 1 and count > reading.in_a_row)


def _message(use: Use, reading: TfdsReading, take: Node) -> str:
    what = f"take({take.argument('count'):,})"
    if reading.shuffle is not None and shuffles_anew(reading.shuffle):
        return f"{what} gives examples of whatever files {reading.call} reads first: it shuffles them in every epoch."
    return (
        f"{what} gives {reading.in_a_row} examples of each of {reading.at_a_time(use.pipeline)} files in turn, not "
        "the first of the split; which they are depends on interleave_cycle_length and interleave_block_length."
    )


_HINT = "Ask for them in the split, split='train[:{0}]': it reads no others, and in every run the same."


def dividing(finding: Finding, use: Use) -> Finding:
    """Returns a finding on unsharded input with a hint on how the library shards it, if TFDS reads the data."""
    reading = next(readings(use.pipeline), None)
    if reading is None:
        return finding
    given = "read_config=tfds.ReadConfig(input_context=context)"
    return replace(finding, hint=f"Give {reading.call} {given}: each worker then reads files of its own.")
