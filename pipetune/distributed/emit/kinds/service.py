"""`service`: the pipeline runs on the workers of a tf.data service, the training process fetches batches.

After `tf.data.experimental.service.ShardingPolicy`. Static sharding (FILE, DATA, HINT) is left out: it makes every
client read from a worker in its own process, so nothing would leave the machine that trains. What remains is DYNAMIC,
where the dispatcher hands each file or element of the source to one worker, and OFF, where each worker gives
everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from pipetune.core.distribution import Definition, DeliveryMode, ElementBytes, StandaloneParts
from pipetune.core.edits import Remove, apply_edits
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.core.results import ServiceNeed
from pipetune.distributed.emit import service_files
from pipetune.distributed.emit.index import indexed_form
from pipetune.distributed.emit.kind import Kind, Known, Standalone
from pipetune.distributed.emit.module import function_of, module_text, prepared
from pipetune.distributed.emit.remote import is_endless, refuse_python, shared_storage
from pipetune.distributed.emit.sharding import sharding, undivided
from pipetune.distributed.emit.statements import Body, Wording, number
from pipetune.model.service import recommendation

_WORTH_PACKING = 0.8  # of the bytes; packing and unpacking a batch that shrinks less costs more than it saves
_OUTSTANDING_BYTES = 256 * 2**20  # that batches asked for ahead may take in the training process
_MANY_WORKERS = 8
_WORDING = Wording(
    opening=(),
    size="",
    number="",
    batch_constant="BATCH_SIZE",
    batch_comment="rows, as in the script",
    batch_opening="",
    batch="BATCH_SIZE",
    batches_count=lambda op, count: count,
    prefetches=False,
)
_AT_CLIENT = frozenset({"repeat", "prefetch", "with_options"})


def emit(parts: StandaloneParts, known: Known) -> Standalone:
    """Returns the module, and beside it the script that starts dispatcher and workers, with files for clusters.

    Raises CannotExpress if the pipeline needs the script's own process, or would not give an epoch.
    """
    parts, parameter = prepared(parts, frozenset({"service"}))
    mode = _mode_of(parts)
    remote, at_client = _cut(parts.pipeline)
    shuffles = [node for node in _between_names_and_readers(parts, remote) if node.op == "shuffle"]
    mixes = mode.policy == "DYNAMIC" and bool(shuffles)
    caches = [node for node in remote if node.op == "cache"]
    remote = apply_edits(remote, [Remove(node.id) for node in (*caches, *(shuffles if mixes else ()))])
    parts = replace(parts, pipeline=remote)
    body = Body(parts, undivided(remote), replace(_WORDING, mixes_files=mixes))
    # Where each worker gives everything, nothing is put together.
    why_not = "" if mode.policy == "DYNAMIC" else "every worker of the service gives all of the data"
    indexed = indexed_form(parts, _WORDING, why_not=known.no_index or why_not)
    wanted = (known.need.max_workers if known.need is not None else None) or _MANY_WORKERS
    notes = (*_notes(parts, mode, at_client, mixes=mixes, parameter=parameter, workers=wanted), *body.notes)
    notes += indexed.notes
    if caches:
        notes += ("cache is left out: each pass over the data is a new task of the workers, which starts it empty",)
    given, argument = ("source", "*, source, ") if parameter else ("", "")
    guarantee = f"How often an element comes ({mode.policy}): {mode.visits}."
    machines = service_files.machines(known.need)
    without_repeat = tuple(node for node in at_client if node.op != "repeat")
    once = function_of(
        f"indexed_dataset_fn({argument or '*, '}service=None, job_name=None)",
        docstring="What the training process reads in one pass, each element behind its index.",
        body=_client(mode, without_repeat, given, pipeline="indexed_pipeline"),
    )
    text = module_text(
        parts,
        known,
        what_for="run by a tf.data service",
        usage=(
            "python serve.py dispatcher --port 5050               # once",
            f"python serve.py worker --dispatcher localhost:5050   # on {machines}",
            "",
            f'dataset = dataset_fn({"source=..., " if parameter else ""}service="grpc://localhost:5050")',
        ),
        paragraphs=(
            "serve.py is in the folder of this file and needs TensorFlow alone: the workers get the pipeline from "
            "the training process. docker-compose.yml and kubernetes.yaml start the same commands.",
            guarantee,
            *indexed.paragraphs,
            *(() if known.need is None else (" ".join(recommendation(known.need)),)),
        ),
        notes=notes,
        constants=[*_transfer(known.batch_bytes, known.need), *body.constants],
        own=[
            Definition("os", "import os"),
            *([Definition("random", "import random")] if mixes else []),
            function_of(f"pipeline({given})", docstring="What the workers of the service run.", body=body.lines),
            function_of(
                f"dataset_fn({argument or '*, '}service=None, job_name=None)",
                docstring=_DOCSTRING,
                body=_client(mode, at_client, given),
            ),
            *indexed.functions(
                f"indexed_pipeline({given})", docstring="The same for one pass, each element behind its index."
            ),
            *([once] if indexed.lines else []),
        ],
    )
    folder = service_files.data_folder(tuple(parts.sources.values()))
    return Standalone(
        text,
        notes,
        "",
        None,
        batch_size=body.batch_size,
        companions=service_files.companions(folder, known.need, known.tensorflow),
        splits=mode.policy == "DYNAMIC",
        indexed=bool(indexed.lines),
        guarantee=guarantee,
    )


_DOCSTRING = """What the training process reads.

    service: where the dispatcher listens; else the environment variable TF_DATA_SERVICE says it.
    job_name: training processes that give the same name share one pass over the data.
    """


@dataclass(frozen=True)
class _Mode:
    """How the service divides the data, and how often each element comes."""

    policy: str
    visits: str  # of an element in an epoch, in words
    note: str = ""


def _mode_of(parts: StandaloneParts) -> _Mode:
    """How the service may divide the pipeline; raises CannotExpress if in no way that gives an epoch."""
    pipeline = parts.pipeline
    try:
        remote = _cut(pipeline)[0]
        where = sharding(remote, parts.sources, most_workers=1)
        reason = "it takes elements by their position" if not where.any_part else ""
        if _repeats_too_often(remote):
            reason = "an interleave behind a repeat would go on after its last repetition"
        if any(pipeline[name].inputs for name in where.after):
            reason = f"only what stands behind {pipeline[where.after[0]].title} can be divided"
    except CannotExpress as error:
        reason = error.message.rstrip(".")
    if not reason:
        return _Mode(
            "DYNAMIC",
            "once in an epoch, whichever worker is free first; a worker that is lost takes the part it was working on "
            "with it, and nothing comes twice (at most once)",
        )
    if is_endless(pipeline) and any(node.op == "shuffle" for node in pipeline):
        return _Mode(
            "OFF",
            "once from each worker, in an order of its own; with n workers an element may come n times before "
            "another has come at all, and a worker that is lost starts again",
            f"the dispatcher cannot divide the data ({reason}), so every worker gives all of it",
        )
    raise CannotExpress(
        f"The dispatcher cannot divide the data: {reason}.",
        hint="Every worker would give all of it, which only an endless, shuffled pipeline can stand.",
    )


def _repeats_too_often(pipeline: Pipeline) -> bool:
    """Whether a finite `repeat` stands in front of an `interleave`.

    Measured with two workers (TensorFlow 2.21): 8 files, repeated twice, came three times, repeated thrice, five times.
    """
    ends = (node for node in pipeline if node.op == "repeat" and node.argument("count") not in (None, INFINITE, 1))
    return any(below.op == "interleave" for node in ends for below in pipeline.downstream(node.id))


def _cut(pipeline: Pipeline) -> tuple[Pipeline, tuple[Node, ...]]:
    """What the workers run, and the operators behind it that stay in the training process."""
    stays: list[Node] = []
    node = pipeline.output
    while node.op in _AT_CLIENT and len(node.inputs) == 1:
        stays.append(node)
        node = pipeline[node.inputs[0]]
    gone = {one.id for one in stays}
    kept = Pipeline(tuple(one for one in pipeline if one.id not in gone), pipeline.name, pipeline.options)
    return kept, tuple(reversed(stays))


def _between_names_and_readers(parts: StandaloneParts, pipeline: Pipeline) -> list[Node]:
    """The operators between names of files and what opens them."""
    found: list[Node] = []
    for name in (name for name, source in parts.sources.items() if source.yields_file_names):
        node = pipeline[name]
        while len(below := pipeline.consumers(node.id)) == 1 and below[0].op in ("shuffle", "repeat"):
            node = below[0]
            found.append(node)
    return found


def _client(mode: _Mode, at_client: tuple[Node, ...], given: str, pipeline: str = "pipeline") -> Iterator[str]:
    yield f"dataset = {pipeline}({given})"
    yield "dataset = dataset.apply("
    yield "    tf.data.experimental.service.distribute("
    yield f"        processing_mode=tf.data.experimental.service.ShardingPolicy.{mode.policy},"
    yield '        service=service or os.environ["TF_DATA_SERVICE"],'
    yield "        job_name=job_name,"
    yield "        max_outstanding_requests=MAX_OUTSTANDING_REQUESTS,"
    yield "        compression=COMPRESSION,"
    yield "    )"
    yield ")"
    for node in at_client:
        if node.op == "repeat":
            count = node.argument("count")
            yield f"dataset = dataset.repeat({'' if count in (None, -1) else count})"
        elif node.op == "prefetch":
            yield f"dataset = dataset.prefetch({number(node.argument('buffer_size'))})"
    prefetches = bool(at_client) and [node.op for node in at_client if node.op != "with_options"][-1:] == ["prefetch"]
    yield "return dataset" if prefetches else "return dataset.prefetch(tf.data.AUTOTUNE)"


def _transfer(measured: ElementBytes | None, need: ServiceNeed | None) -> list[Definition]:
    """The constants on what is fetched ahead, and whether it is packed."""
    workers = (need.max_workers if need is not None else None) or 1
    if measured is None:
        return [
            Definition("MAX_OUTSTANDING_REQUESTS", "MAX_OUTSTANDING_REQUESTS = None  # TensorFlow chooses"),
            Definition("COMPRESSION", 'COMPRESSION = "AUTO"'),
        ]
    # With fewer than workers, some of them would stand still.
    ahead = max(2, workers, min(max(16, 2 * workers), _OUTSTANDING_BYTES // max(1, measured.raw)))
    comment = f"# batches asked for ahead; one takes {_size(measured.raw)} here"
    found = [Definition("MAX_OUTSTANDING_REQUESTS", f"MAX_OUTSTANDING_REQUESTS = {ahead}  {comment}")]
    if measured.packed is None:
        return [*found, Definition("COMPRESSION", 'COMPRESSION = "AUTO"')]
    share = measured.packed / max(1, measured.raw)
    chosen = '"AUTO"' if share < _WORTH_PACKING else "None"
    comment = f"# packed, a batch takes {share:.0%} of its bytes"
    return [*found, Definition("COMPRESSION", f"COMPRESSION = {chosen}  {comment}")]


def _size(size: int) -> str:
    for unit, divisor in (("MB", 10**6), ("kB", 10**3)):
        if size >= divisor:
            return f"{size / divisor:.1f} {unit}"
    return f"{size} bytes"


def _notes(
    parts: StandaloneParts, mode: _Mode, at_client: tuple[Node, ...], *, mixes: bool, parameter: bool, workers: int
) -> Iterator[str]:
    pipeline = parts.pipeline
    if mode.note:
        yield mode.note
    yield "batches of different workers come in any order"
    batches = [pipeline[name] for name in undivided(pipeline).batches]
    if any(node.argument("drop_remainder") for node in batches):
        yield "drop_remainder drops the rows of each worker's last partial batch"
    elif batches:
        yield "each worker's last batch of an epoch may be partial"
    if any(node.op == "repeat" for node in at_client):
        yield "repeat stands in the training process, so that an epoch ends before the next begins"
    if mixes:
        yield (
            "the list of files is shuffled when the pipeline is made, and not again in each epoch: behind a shuffle "
            "the first worker would fetch the names of all files into its buffer and leave none for the others"
        )
    elif mode.policy == "DYNAMIC" and any(node.op == "shuffle" for node in pipeline):
        yield "each worker shuffles what it is handed"
    for source in parts.sources.values():
        if source.yields_file_names and source.count < max(workers, _MANY_WORKERS):
            yield f"the data has {source.count} files: no more workers than that can help at a time"
        if not source.yields_file_names and mode.policy == "DYNAMIC":
            yield (
                "the data is handed out row by row, a question to the dispatcher each, and a shuffle buffer takes as "
                "many rows as it holds from the others: files serve a service better"
            )
    if parameter:
        yield "the arrays travel in the definition of the pipeline, which cannot hold more than 2 GB"
    yield from shared_storage(parts, "training process")


_refuse = partial(refuse_python, why="which the workers of the service do not have")
KIND = Kind(emit, DeliveryMode.SERVICE, refuse=_refuse)
