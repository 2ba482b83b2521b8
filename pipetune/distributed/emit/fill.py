"""Last batches made full in a stand-alone module: rows that only fill, and a mask that says which rows are data.

Dropping a remainder keeps shapes fixed and leaves samples out; filling keeps both. On one worker the batches are filled
up to one for each replica too: with fixed shapes TensorFlow ends there with the first replica that has none.
"""

from __future__ import annotations

from pipetune.core.distribution import Definition, StandaloneParts
from pipetune.distributed.emit.module import names_read
from pipetune.distributed.emit.sharding import Sharding

CLOSING = ("if fill:", "    {dataset} = full_batches({dataset}, batch_size, replicas)")
"""In front of the last prefetch of `dataset_fn`."""

INDEXED_CLOSING = (
    "{dataset} = full_batches({dataset}, batch_size, replicas)",
    "{dataset} = {dataset}.map(lambda indexed, real: (tf.where(real, indexed[0], -1), indexed[1]))",
)
"""In front of the last prefetch of a form with indices whose shapes have to be fixed: what fills has the index -1."""

PARAGRAPHS = (
    "With fill=True every batch is full: an element is (batch, mask), and rows where the mask is False only fill. As "
    "sample weights for fit: dataset.map(lambda batch, mask: (*batch, tf.cast(mask, tf.float32))).",
)

DEFINITION = Definition(
    "full_batches",
    '''def full_batches(dataset, rows, replicas):
    """Full batches, as many as `replicas` divides, each beside a mask that is False for rows that only fill."""

    def filled(parts, wanted):
        count, place = tf.shape(tf.nest.flatten(parts)[0])[0], tf.range(wanted)
        return tf.nest.map_structure(lambda part: tf.gather(part, tf.minimum(place, count - 1)), parts), place < count

    def full(*batch):
        return filled(batch if len(batch) > 1 else batch[0], rows)

    def full_step(batch, mask):
        (batch, mask), real = filled((batch, mask), replicas)
        return batch, tf.logical_and(mask, real[:, tf.newaxis])

    dataset = dataset.map(full, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset if replicas == 1 else dataset.batch(replicas).map(full_step).unbatch()''',
)


def can_fill(parts: StandaloneParts, where: Sharding) -> bool:
    """Whether the batches have rows that can be repeated: dense tensors, in the batches that replicas get."""
    named = {one.name for function in parts.functions.values() for one in function.definitions} | names_read(parts)
    dense = parts.pipeline.output.element_spec.is_dense
    padded = any(parts.pipeline[name].op == "padded_batch" for name in where.batches)  # each to a length of its own
    taken = bool(named & {DEFINITION.name, "fill"})
    return bool(where.batches) and dense and not padded and not taken
