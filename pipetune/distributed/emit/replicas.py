"""The module for strategies that keep replicas in step: every input pipeline reads a part, in batches of a replica.

Its last batches can be filled, with a mask that says which rows are data. Dropping a remainder keeps shapes fixed and
leaves samples out; filling keeps both. On one worker the batches are filled up to one for each replica too: with fixed
shapes TensorFlow ends there with the first replica that has none.
"""

from __future__ import annotations

from pipetune.core.distribution import Definition, StandaloneParts
from pipetune.distributed.emit.index import IndexedForm, indexed_form
from pipetune.distributed.emit.kind import Known, Standalone
from pipetune.distributed.emit.module import division_notes, function_of, module_text, names_read, prepared
from pipetune.distributed.emit.sharding import BATCHES, Sharding, sharding
from pipetune.distributed.emit.statements import Body, Wording

_FILL_LAST = ("if fill:", "    {dataset} = full_batches({dataset}, batch_size, replicas)")
"""In front of the last prefetch of `dataset_fn`."""

_FILL_LAST_INDEXED = (
    "{dataset} = full_batches({dataset}, batch_size, replicas)",
    "{dataset} = {dataset}.map(lambda indexed, real: (tf.where(real, indexed[0], -1), indexed[1]))",
)
"""In front of the last prefetch of a form with indices whose shapes have to be fixed: what fills has the index -1."""

_FILLING = (
    "With fill=True every batch is full: an element is (batch, mask), and rows where the mask is False only fill. As "
    "sample weights for fit: dataset.map(lambda batch, mask: (*batch, tf.cast(mask, tf.float32))).",
)

_FULL_BATCHES = Definition(
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


def emit_for_replicas(
    parts: StandaloneParts,
    known: Known,
    *,
    strategy: str,
    remark: str,
    notes: tuple[str, ...] = (),
    offered: tuple[Definition, ...] = (),
    fixed_shapes: bool = False,
) -> Standalone:
    """The module.

    Args:
        strategy: how the strategy is made, as code.
        remark: a sentence on where else the function serves, or what it needs.
        notes: what differs from the pipeline on one machine, besides what the division changes.
        offered: functions that nothing in the module calls.
        fixed_shapes: no batch may have fewer rows than others.

    Raises:
        CannotExpress: the pipeline has no faithful form; the message says why.
    """
    parts, parameter = prepared(parts)
    where = sharding(parts.pipeline, parts.sources)
    fills = not known.no_fill and _can_fill(parts, where)
    wording = Wording(fills=True, closing=_FILL_LAST) if fills else Wording()
    body = Body(parts, where, wording)
    indexed = _indexed(parts, known, fills=fills, fixed_shapes=fixed_shapes)
    notes = (*division_notes(parts, where), *known.notes, *body.notes, *notes, *indexed.notes)
    if known.no_fill:
        notes += (f"last batches have no form that fills them: {known.no_fill}",)
    given = f"{', source' if parameter else ''}{', fill=False' if fills else ''}"
    function = "functools.partial(dataset_fn, source=...)" if parameter else "dataset_fn"
    text = module_text(
        parts,
        known,
        what_for="for training on several workers or devices",
        usage=(f"strategy = {strategy}", f"dataset = strategy.distribute_datasets_from_function({function})"),
        paragraphs=(
            f"{remark} Every worker calls dataset_fn with its own InputContext and reads its own part of the "
            "data. The folder of the training script has to be on the path where an import below needs it.",
            *(_FILLING if fills else ()),
            *indexed.paragraphs,
        ),
        notes=notes,
        constants=body.constants,
        own=[
            function_of(
                f"dataset_fn(input_context{', *' if given else ''}{given})",
                docstring="The part of the data that one input pipeline reads, in batches for one replica.",
                body=body.lines,
            ),
            *([_FULL_BATCHES] if fills else []),
            *offered,
            *indexed.functions(
                f"indexed_dataset_fn(input_context{', *, source' if parameter else ''})",
                docstring="One pass over the same part, each element behind its index.",
            ),
        ],
    )
    return Standalone(text, notes, where.by, body.batch_size, indexed=bool(indexed.lines), fills=fills)


def _indexed(parts: StandaloneParts, known: Known, *, fills: bool, fixed_shapes: bool) -> IndexedForm:
    why_not = known.no_index
    if fixed_shapes and not fills and any(node.op in BATCHES for node in parts.pipeline):
        why_not = why_not or "its last batch would be partial"
    closing = _FILL_LAST_INDEXED if fixed_shapes and fills else ()
    return indexed_form(parts, Wording(), why_not=why_not, closing=closing)


def _can_fill(parts: StandaloneParts, where: Sharding) -> bool:
    """Whether the batches have rows that can be repeated: dense tensors, in the batches that replicas get."""
    named = {one.name for function in parts.functions.values() for one in function.definitions} | names_read(parts)
    dense = parts.pipeline.output.element_spec.is_dense
    padded = any(parts.pipeline[name].op == "padded_batch" for name in where.batches)  # each to a length of its own
    taken = bool(named & {_FULL_BATCHES.name, "fill"})
    # A file written without filling lacks the remainder that filling is to keep.
    drops = any(parts.pipeline[name].argument("drop_remainder") for name in where.batches)
    stored = drops and any(parts.pipeline[name].argument("filename") for name in where.below_batch)
    return bool(where.batches) and dense and not padded and not taken and not stored
