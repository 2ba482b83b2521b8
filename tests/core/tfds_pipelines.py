"""Pipelines from text whose first operators are created by one call of `tfds.load`."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.pipeline import Pipeline, SourceLocation
from pipetune.core.storage import LIBRARY

CALL = SourceLocation("train.py", 40, 0, 44, 1, "load", library=LIBRARY)
READ = "from_tensor_slices elements=8 | interleave cycle_length=16 block_length=16 num_parallel_calls=AUTOTUNE"
DECODED = f"{READ} | assert_cardinality | with_options | map num_parallel_calls=AUTOTUNE"


def made_by_tfds(pipeline: Pipeline, count: int) -> Pipeline:
    """Returns the pipeline with its first `count` operators created by the call."""
    first = {node.id for node in pipeline.nodes[:count]}
    return replace(
        pipeline, nodes=tuple(replace(node, location=CALL) if node.id in first else node for node in pipeline)
    )
