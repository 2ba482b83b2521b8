"""`tpu`: as for other replicas in step, for a device that compiles: every shape known, nothing of Python.

After the guide "Use TPUs": a batch has to be full, because its size is part of the compiled program, and the host
that feeds a TPU runs graphs, not the script's process.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.distribution import Definition, StandaloneParts
from pipetune.core.edits import SetArgument, apply_edits
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Node, Pipeline
from pipetune.distributed.emit.kind import Kind, Known, Standalone
from pipetune.distributed.emit.replicas import emit_for_replicas
from pipetune.distributed.emit.sharding import local_files, place, refuse_all, refuse_python, undivided

_IN_BFLOAT16 = Definition(
    "in_bfloat16",
    '''def in_bfloat16(dataset):
    """The same with its features (the first part of an element) in bfloat16: half the bytes to the device.

    For a model that computes in it: numbers keep eight bits of what they say. Labels stay as they are. Not for
    elements with a mask (fill=True), whose first part holds the labels too.
    """

    def cast(features, *others):
        features = tf.nest.map_structure(
            lambda part: tf.cast(part, tf.bfloat16) if part.dtype == tf.float32 else part, features
        )
        return (features, *others) if others else features

    return dataset.map(cast, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)''',
)
_STRATEGY = "tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver())"


def emit(parts: StandaloneParts, known: Known) -> Standalone:
    """Returns the module; raises CannotExpress if the pipeline has no faithful form."""
    return emit_for_replicas(
        parts,
        known,
        strategy=_STRATEGY,
        remark="No TPU was at hand: what was looked at is that every shape is known and that nothing runs Python.",
        notes=tuple(_notes(parts)),
        offered=(_IN_BFLOAT16,) if _has_floats(parts.pipeline) else (),
        fixed_shapes=True,
    )


def _prepare(pipeline: Pipeline) -> Pipeline:
    """The pipeline with full batches only."""
    partial = [node.id for node in _batches(pipeline) if not node.argument("drop_remainder")]
    return apply_edits(pipeline, [SetArgument(name, "drop_remainder", True) for name in partial])


def _refuse(pipeline: Pipeline) -> None:
    """Refuses what cannot run on the host of a TPU, by operator and line."""
    why = "which the host of a TPU cannot call"
    refuse_all(lambda: refuse_python(pipeline, why=why), lambda: _refuse_effects(pipeline))


def _refuse_effects(pipeline: Pipeline) -> None:
    found = [place(node) for node in pipeline if node.function is not None and node.function.side_effects]
    if found:
        raise CannotExpress(
            f"{' and '.join(found)} {'has' if len(found) == 1 else 'have'} effects outside of the pipeline, which "
            "would be lost on the host of the TPU.",
            hint="Take them out of the functions of the pipeline.",
        )


def _batches(pipeline: Pipeline) -> list[Node]:
    return [pipeline[name] for name in undivided(pipeline).batches]


def _notes(parts: StandaloneParts) -> Iterator[str]:
    set_here = [place(one, short=True) for one in _batches(parts.pipeline) if one.element_spec.has_unknown_batch_size]
    if set_here:
        yield (
            f"drop_remainder is set at {' and '.join(set_here)}: the size of a batch is part of the element_spec, and "
            "the rows of a last partial batch are not trained on, unless fill=True fills it"
        )
    for file in local_files(parts):
        yield (
            f"the files are local ({file}): right on a TPU VM that holds them under these names; a host elsewhere "
            "needs them under gs://"
        )
    if _has_floats(parts.pipeline):
        yield (
            "float32 is kept; where the model computes in bfloat16, lambda context: in_bfloat16(dataset_fn(context)) "
            "gives it the features (not the labels) so: half the bytes to the device; numbers lose their last digits"
        )


def _has_floats(pipeline: Pipeline) -> bool:
    return pipeline.output.element_spec.has_dtype("tf.float32")


KIND = Kind(emit, prepare=_prepare, refuse=_refuse, static_shapes=True, one_process=True)
