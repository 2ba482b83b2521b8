"""`parameter-server`: every worker reads everything, for ever, in an order of its own.

After the guide "Parameter server training": workers do not run in step, so nothing can be divided among them;
datasets are to repeat and may differ by their shuffling alone. The function makes everything it uses, because
the coordinator calls it again when a worker comes back. `InputContext` is of no help to tell workers apart:
TensorFlow gives every one of them number 0 of 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.distribution import Definition, DeliveryMode, StandaloneParts
from pipetune.core.edits import Edit, Insert, apply_edits
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.distributed.emit import header
from pipetune.distributed.emit.body import Body
from pipetune.distributed.emit.index import indexed_form
from pipetune.distributed.emit.kind import Kind, Known, Standalone
from pipetune.distributed.emit.module import (
    check_references,
    function_of,
    has_parameter,
    module_text,
    with_file_sources,
)
from pipetune.distributed.emit.remote import before_last_prefetch, is_endless, place, refuse_python, shared_storage
from pipetune.distributed.emit.sharding import BATCHES, undivided
from pipetune.distributed.emit.tables import Tables
from pipetune.distributed.emit.tables import find as find_tables
from pipetune.distributed.emit.wording import REPLICAS, Wording
from pipetune.model.sharding import READERS

_SEED = "worker_seed()"
_WORDING = Wording(
    opening=(),
    size="",
    number="",
    batch_comment="rows of a worker's step, over all its replicas",
    replicas_opening=f"{REPLICAS} = input_context.num_replicas_in_sync  # of a worker",
    shuffle_seed=_SEED,
)
_ORDER_IS_FREE = frozenset({"map", "filter", "interleave", "flat_map", "prefetch", "repeat", "with_options", "cache",
                            "ignore_errors", "assert_cardinality", *BATCHES, *READERS})  # fmt: skip

_WORKER_SEED = Definition(
    "worker_seed",
    '''def worker_seed():
    """A seed that each worker draws for itself: one that follows tf.random.set_seed would be the same on all."""
    one_number, lowest, highest = tf.constant([], tf.int32), tf.constant(1, tf.int64), tf.constant(2**31, tf.int64)
    return tf.raw_ops.RandomUniformInt(shape=one_number, minval=lowest, maxval=highest, seed=0, seed2=0)''',
)
_PER_WORKER = Definition(
    "per_worker_dataset",
    '''def per_worker_dataset(coordinator):
    """What every worker reads, for a training loop of one's own: `iter()` of it goes into `coordinator.schedule`."""

    @tf.function
    def on_worker():
        return coordinator.strategy.distribute_datasets_from_function(dataset_fn)

    return coordinator.create_per_worker_dataset(on_worker)''',
)
_CREATOR = Definition(
    "dataset_creator",
    '''def dataset_creator():
    """What `fit` of tf_keras takes as x; Keras 3 does not train under ParameterServerStrategy."""
    import tf_keras

    return tf_keras.utils.experimental.DatasetCreator(dataset_fn)''',
)


def emit(parts: StandaloneParts, known: Known) -> Standalone:
    """The module.

    Raises:
        CannotExpress: the pipeline needs something of the script's own process; the message says what.
    """
    if has_parameter(parts):
        raise CannotExpress(
            "The data is an array in the memory of the script, and each worker has to make its dataset itself.",
            hint="Write the array to files that every worker can open, and read those.",
        )
    parts = with_file_sources(parts)
    check_references(parts)
    edits = list(_added(parts))
    tables = find_tables(parts.pipeline)
    parts = parts.with_pipeline(apply_edits(parts.pipeline, edits))
    where = undivided(parts.pipeline)
    body = Body(parts, where, _WORDING)
    indexed = indexed_form(parts, _WORDING, why_not=known.no_index, keeps_repeats=True)
    notes = (*_notes(parts, edits, batches=bool(where.batches)), *tables.notes, *indexed.notes)
    shuffles = any(_SEED in line for line in body.lines)
    text = module_text(
        parts,
        docstring=header.docstring(
            f"The tuned input pipeline of {known.script}, for parameter server training.",
            usage=_usage(known, tables),
            paragraphs=(
                "Every worker makes its own pipeline: it reads all of the data, without end and in an order of its "
                "own, so an epoch is so many steps and not the end of the data. The function makes everything it "
                "uses and can be called again, as it is when a worker comes back. The coordinator needs the folder "
                "of the training script on its path where an import below needs it.",
                *(
                    "indexed_dataset_fn gives the same, each element behind its index: its place in the source, for "
                    "files 2**32 times the number of the file plus that of its record. In the steps of an epoch, and "
                    "one for a last batch that is not full, a worker gives all; in_order takes each once, in order."
                    for _ in indexed.paragraphs
                ),
            ),
            notes=(*notes, *body.notes),
            checked=known.checked,
        ),
        constants=[
            *known.steps_per_epoch("batches in which all of the data comes once"),
            *tables.constants,
            *body.constants,
        ],
        own=[
            *tables.functions,
            *([_WORKER_SEED] if shuffles else []),
            function_of(
                "dataset_fn(input_context)",
                docstring="All of the data without end, in batches for one replica, which each worker shuffles.",
                body=body.lines,
            ),
            tables.requested_in(_PER_WORKER),
            tables.requested_in(_CREATOR),
            *indexed.functions(
                "indexed_dataset_fn(input_context)",
                docstring="All of the data without end, each element behind its index.",
            ),
        ],
    )
    notes = (*notes, *body.notes)
    return Standalone(text, notes, where.by, None, batch_size=body.batch_size, indexed=bool(indexed.lines))


def _refuse(pipeline: Pipeline) -> None:
    refuse_python(pipeline, why="which the workers of a parameter server job do not have")
    for node in pipeline:
        if node.op == "cache" and node.argument("filename"):
            raise CannotExpress(
                f"{place(node)} writes a file, and the workers cannot be distinguished: all would write the same.",
                hint="Cache in memory, or prepare the data once and write it to files.",
            )


def _added(parts: StandaloneParts) -> Iterator[Edit]:
    """What makes the pipeline endless, and its order another on each worker."""
    pipeline = parts.pipeline
    if not any(node.op == "shuffle" for node in pipeline):
        for name, source in parts.sources.items():
            free = all(node.op in _ORDER_IS_FREE for node in pipeline.downstream(name))
            if source.yields_file_names and source.count > 1 and free:
                yield Insert(name, "shuffle", f"shuffle@{name}", {"buffer_size": source.count, "seed": None})
    if not is_endless(pipeline):
        yield Insert(before_last_prefetch(pipeline), "repeat", "repeat@end", {"count": None})


def _notes(parts: StandaloneParts, edits: list[Edit], *, batches: bool) -> Iterator[str]:
    added = {edit.op for edit in edits if isinstance(edit, Insert)}
    yield "each worker reads all of the data, so the workers' epochs overlap: an epoch is a number of steps"
    if batches:
        yield "a batch holds GLOBAL_BATCH_SIZE rows of one worker's step, divided over that worker's replicas"
    if "repeat" in added:
        yield "repeat is added: data that ends would stop the workers one after another"
    if "shuffle" in added:
        yield "a shuffle of the files is added, because workers may not all read in the same order"
    elif not any(node.op == "shuffle" for node in parts.pipeline):
        yield (
            "nothing shuffles, so all workers read the same rows in the same order: add a shuffle where the order "
            "of the rows is free"
        )
    if any(node.op == "shuffle" and node.argument("seed") is not None for node in parts.pipeline):
        yield "seeds of shuffles are replaced: with them every worker would read in the same order"
    yield from shared_storage(parts, "coordinator")


def _usage(known: Known, tables: Tables) -> Iterator[str]:
    steps = "..." if known.epoch_batches is None else "STEPS_PER_EPOCH"
    yield "strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())"
    yield from tables.usage
    yield ""
    yield "# with a training loop; a training_step that takes several batches is scheduled less often"
    yield "coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)"
    yield "iterator = iter(per_worker_dataset(coordinator))"
    yield "coordinator.schedule(training_step, args=(iterator,))"
    yield ""
    yield "# with fit of tf_keras, the model made under the strategy; more steps per execution are scheduled less often"
    yield "model.compile(..., steps_per_execution=...)"
    yield f"model.fit(dataset_creator(), epochs=..., steps_per_epoch={steps})"


KIND = Kind("parameter-server", emit, DeliveryMode.WHOLE, refuse=_refuse)
