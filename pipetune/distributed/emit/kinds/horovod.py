"""`horovod`: one process per device, each with a pipeline of its own, all with the same number of steps.

After Horovod's TensorFlow examples: batches stay as large as the script's, and `take(steps // hvd.size())` gives
each rank its share of the steps. A rank with a step more than the others would wait for them for ever.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.cluster import MPI_VARIABLES, RANK_VARIABLE, SIZE_VARIABLE
from pipetune.core.distribution import Definition, DeliveryMode, StandaloneParts
from pipetune.distributed.emit.index import indexed_form
from pipetune.distributed.emit.kind import Kind, Known, Standalone
from pipetune.distributed.emit.module import division_notes, function_of, module_text, prepared
from pipetune.distributed.emit.sharding import Sharding, is_endless, sharding
from pipetune.distributed.emit.statements import Body, Wording

_BATCHES = "a batch has as many rows as the script's, on every rank: a step of all ranks takes size times as many"

_NAMES = Definition(
    "RANK_AND_SIZE",
    "\n".join(
        (
            "RANK_AND_SIZE = (  # as set by horovodrun, by Open MPI, by MPICH and Intel MPI",
            *(f'    ("{rank}", "{size}"),' for rank, size in ((RANK_VARIABLE, SIZE_VARIABLE), *MPI_VARIABLES)),
            ")",
        )
    ),
)
_RANK_AND_SIZE = Definition(
    "rank_and_size",
    '''def rank_and_size():
    """Which rank this process is, and of how many: from Horovod, or from what horovodrun or mpirun sets."""
    try:
        import horovod.tensorflow as hvd
    except ModuleNotFoundError:
        hvd = None
    if hvd is not None and hvd.is_initialized():
        return hvd.rank(), hvd.size()
    for names in RANK_AND_SIZE:
        if all(name in os.environ for name in names):
            rank, size = (int(os.environ[name]) for name in names)
            return rank, size
    raise RuntimeError("which rank this is is not known: call hvd.init() first, or start it by horovodrun, mpirun")''',
)


def emit(parts: StandaloneParts, known: Known) -> Standalone:
    """Returns the module; raises CannotExpress if the pipeline has no faithful form."""
    parts, parameter = prepared(parts, frozenset({"rank", "size", "steps"}))
    where = sharding(parts.pipeline, parts.sources)
    endless = is_endless(parts.pipeline)
    wording = _wording(endless=endless)
    body = Body(parts, where, wording)
    indexed = indexed_form(parts, wording, why_not=known.no_index)
    division = division_notes(parts, where, who="rank", batches=_BATCHES)
    notes = (*division, *known.notes, *body.notes, *_notes(parts, where, endless=endless), *indexed.notes)
    steps = "steps" if known.epoch_batches is None else "steps=STEPS_PER_EPOCH"
    source = "source, " if parameter else ""
    text = module_text(
        parts,
        known,
        what_for="for training with Horovod",
        usage=_usage(known, parameter=parameter),
        paragraphs=(
            "Every rank builds its own pipeline and reads its own part of the data. Which rank it is comes from "
            "Horovod once hvd.init() was called, else from the variables that horovodrun or mpirun sets. "
            "The folder of the training script has to be on the path where an import below needs it.",
            *indexed.paragraphs,
        ),
        notes=notes,
        constants=[*known.steps_per_epoch("batches in an epoch, of all ranks together"), _NAMES, *body.constants],
        own=[
            Definition("os", "import os"),
            _RANK_AND_SIZE,
            function_of(f"dataset_fn({steps}, *, {source}size=None, rank=None)", docstring=_DOCSTRING, body=body.lines),
            *indexed.functions(
                f"indexed_dataset_fn(*, {source}size=None, rank=None)",
                docstring="One pass over the part of one rank, each element behind its index.",
            ),
        ],
    )
    return Standalone(text, notes, where.by, None, batch_size=body.batch_size, indexed=bool(indexed.lines))


_DOCSTRING = """The part of the data that one rank reads.

    steps: batches that all ranks take together; each takes steps // size of them, so that none waits for another.
        With None a rank gets its whole part, and ranks may differ by batches.
    size, rank: to look at the part of any rank; else those of this process.
    """


def _wording(*, endless: bool) -> Wording:
    taken = "{dataset}.take(steps // size)" if endless else "{dataset}.repeat().take(steps // size)"
    return Wording(
        who="rank",
        opening=("if size is None:", "    rank, size = rank_and_size()"),
        size="size",
        number="rank",
        batch_constant="BATCH_SIZE",
        batch_comment="rows of one rank's step",
        batch_opening="",
        batch="BATCH_SIZE",
        batches_count=_share,
        closing=(
            "if steps is not None:",
            "    if steps < size:",
            '        raise ValueError(f"{{steps}} steps cannot be divided among {{size}} ranks")',
            f"    {{dataset}} = {taken}",
        ),
        why_prefetch="so that a batch is ready when the step asks for it",
    )


def _share(op: str, count: str) -> str:
    """A number of the script's batches, divided among the ranks: what is skipped is never taken elsewhere."""
    return {"take": f"{count} // size", "skip": f"-(-{count} // size)"}.get(op, count)


def _usage(known: Known, *, parameter: bool) -> Iterator[str]:
    arguments = [] if known.epoch_batches is not None else ["steps"]
    arguments += ["source=..."] if parameter else []
    yield "hvd.init()"
    yield f"dataset = dataset_fn({', '.join(arguments)})"
    yield "for batch in dataset:  # an epoch, or fit(dataset, epochs=...)"


def _notes(parts: StandaloneParts, where: Sharding, *, endless: bool) -> Iterator[str]:
    if not endless:
        yield (
            "each rank repeats its part up to its share of the steps: the one with the least data sees a few rows "
            "again where parts are uneven, the one with the most leaves a few out"
        )
        if any(node.op == "cache" for node in parts.pipeline):
            yield "a rank that leaves rows out in its first epoch never fills its cache: take steps that it can fill"
    else:
        yield "the script's pipeline never ends; here an epoch ends after its share of the steps"
    yield "steps that the ranks do not divide are rounded down"
    counted = [node.op for node in parts.pipeline if node.id in where.below_batch and node.op in ("take", "skip")]
    if counted:
        yield f"the numbers of batches of {' and '.join(dict.fromkeys(counted))} are divided among the ranks"
    if where.batches:
        yield "with larger steps the learning rate is usually scaled by size; divide BATCH_SIZE by it to keep the step"


KIND = Kind(emit, DeliveryMode.RANKS)
