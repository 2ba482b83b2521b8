"""`parameter-server`: every worker reads everything, for ever, in an order of its own.

After the guide "Parameter server training": workers do not run in step, so nothing can be divided among them;
datasets are to repeat and may differ by their shuffling alone. The function makes everything it uses, because
the coordinator calls it again when a worker comes back. `InputContext` is of no help to tell workers apart:
TensorFlow gives every one of them number 0 of 1.

A lookup table made outside of `strategy.scope()` is on the coordinator alone, and a function on a worker that looks
into it fails ("unknown device"). Inside the scope TensorFlow makes one on every worker, and each looks into its own
(`DistributedTable` in `ps_values.py`, TensorFlow 2.21).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.distribution import Definition, DeliveryMode, StandaloneParts
from pipetune.core.edits import Edit, Insert, apply_edits
from pipetune.core.errors import CannotExpress
from pipetune.core.operators import DIVIDED_UPSTREAM
from pipetune.core.pipeline import Pipeline
from pipetune.distributed.emit.index import indexed_form
from pipetune.distributed.emit.kind import Kind, Known, Standalone
from pipetune.distributed.emit.module import function_of, module_text, prepared
from pipetune.distributed.emit.sharding import is_endless, place, refuse_python, shared_storage, undivided
from pipetune.distributed.emit.statements import REPLICAS, Body, Wording

_SEED = "worker_seed()"
_WORDING = Wording(
    opening=(),
    size="",
    number="",
    batch_comment="rows of a worker's step, over all its replicas",
    replicas_opening=f"{REPLICAS} = input_context.num_replicas_in_sync  # of a worker",
    shuffle_seed=_SEED,
)

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
_IN_SCOPE = Definition(
    "IN_SCOPE", "IN_SCOPE = tf.distribute.has_strategy()  # whether this was imported inside strategy.scope()"
)
_CHECK_SCOPE = Definition(
    "check_scope",
    '''def check_scope():
    """Tables made outside of strategy.scope() are on the coordinator alone, and no worker finds them."""
    if not IN_SCOPE:
        raise RuntimeError("tables have to be on every worker: import this module inside strategy.scope()")''',
)


def emit(parts: StandaloneParts, known: Known) -> Standalone:
    """Returns the module; raises CannotExpress if the pipeline needs something of the script's own process."""
    parts, parameter = prepared(parts)
    if parameter:
        raise CannotExpress(
            "The data is an array in the memory of the script, and each worker has to make its dataset itself.",
            hint="Write the array to files that every worker can open, and read those.",
        )
    edits = list(_added(parts))
    functions = ((node, node.function.operations) for node in parts.pipeline if node.function is not None)
    lookups = [place(node, short=True) for node, ops in functions if any(op.startswith("LookupTable") for op in ops)]
    parts = replace(parts, pipeline=apply_edits(parts.pipeline, edits))
    where = undivided(parts.pipeline)
    body = Body(parts, where, _WORDING)
    indexed = indexed_form(parts, _WORDING, why_not=known.no_index, keeps_repeats=True)
    notes = (*_notes(parts, edits, lookups, batches=bool(where.batches)), *indexed.notes, *body.notes)
    shuffles = any(_SEED in line for line in body.lines)
    text = module_text(
        parts,
        known,
        what_for="for parameter server training",
        usage=_usage(known, lookups),
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
        notes=notes,
        constants=[
            *known.steps_per_epoch("batches in which all of the data comes once"),
            *((_IN_SCOPE,) if lookups else ()),
            *body.constants,
        ],
        own=[
            *((_CHECK_SCOPE,) if lookups else ()),
            *([_WORKER_SEED] if shuffles else []),
            function_of(
                "dataset_fn(input_context)",
                docstring="All of the data without end, in batches for one replica, which each worker shuffles.",
                body=body.lines,
            ),
            _asking_for_tables(_PER_WORKER, lookups),
            _asking_for_tables(_CREATOR, lookups),
            *indexed.functions(
                "indexed_dataset_fn(input_context)",
                docstring="All of the data without end, each element behind its index.",
            ),
        ],
    )
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
            free = all(node.op in DIVIDED_UPSTREAM for node in pipeline.downstream(name))
            if source.yields_file_names and source.count > 1 and free:
                yield Insert(name, "shuffle", f"shuffle@{name}", {"buffer_size": source.count, "seed": None})
    if not is_endless(pipeline):
        last = pipeline.last_except(("prefetch", "with_options"))
        yield Insert(last.id, "repeat", "repeat@end", {"count": None})


def _notes(parts: StandaloneParts, edits: list[Edit], lookups: list[str], *, batches: bool) -> Iterator[str]:
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
    if lookups:
        yield (
            f"{' and '.join(lookups)} {'looks' if len(lookups) == 1 else 'look'} into tables, which have to "
            "be on every worker: import this module, and what makes them, inside strategy.scope() and not before"
        )


def _asking_for_tables(function: Definition, lookups: list[str]) -> Definition:
    """The function, which asks first whether the tables are where they have to be."""
    if not lookups:
        return function
    head, docstring, rest = function.text.split("\n", 2)
    return replace(function, text="\n".join((head, docstring, "    check_scope()", rest.lstrip("\n"))))


def _usage(known: Known, lookups: list[str]) -> Iterator[str]:
    steps = "..." if known.epoch_batches is None else "STEPS_PER_EPOCH"
    yield "strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())"
    if lookups:
        yield "with strategy.scope():  # which makes the tables on every worker"
        yield "    from distributed import dataset_creator, per_worker_dataset"
    yield ""
    yield "# with a training loop; a training_step that takes several batches is scheduled less often"
    yield "coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)"
    yield "iterator = iter(per_worker_dataset(coordinator))"
    yield "coordinator.schedule(training_step, args=(iterator,))"
    yield ""
    yield "# with fit of tf_keras, the model made under the strategy; more steps per execution are scheduled less often"
    yield "model.compile(..., steps_per_execution=...)"
    yield f"model.fit(dataset_creator(), epochs=..., steps_per_epoch={steps})"


KIND = Kind(emit, DeliveryMode.WHOLE, refuse=_refuse)
