"""`service`: the pipeline runs on the workers of a tf.data service, the training process fetches batches; beside the
module stand a script that starts the servers, and files for clusters.

After `tf.data.experimental.service.ShardingPolicy`. Static sharding (FILE, DATA, HINT) is left out: it makes every
client read from a worker in its own process, so nothing would leave the machine that trains. What remains is DYNAMIC,
where the dispatcher hands each file or element of the source to one worker, and OFF, where each worker gives
everything.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from pipetune.core.distribution import Definition, DeliveryMode, ElementBytes, SourceText, StandaloneParts
from pipetune.core.edits import Remove, apply_edits
from pipetune.core.errors import CannotExpress
from pipetune.core.measurement import percent
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.core.results import ServiceNeed
from pipetune.distributed.emit.index import indexed_form
from pipetune.distributed.emit.kind import Kind, Known, Standalone
from pipetune.distributed.emit.module import function_of, module_text, prepared
from pipetune.distributed.emit.sharding import is_endless, refuse_python, sharding, shared_storage, undivided
from pipetune.distributed.emit.statements import Body, Wording, number
from pipetune.model.sizing import recommendation

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
    on_machines = machines(known.need)
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
            f"python serve.py worker --dispatcher localhost:5050   # on {on_machines}",
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
    folder = data_folder(tuple(parts.sources.values()))
    return Standalone(
        text,
        notes,
        "",
        None,
        batch_size=body.batch_size,
        companions=companions(folder, known.need, known.tensorflow),
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
    comment = f"# packed, a batch takes {percent(share)} of its bytes"
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


_WORKERS = 2  # where nobody knows how many it takes

_SERVE = '''"""Starts the dispatcher or a worker of a tf.data service, or asks whether one answers.

    python serve.py dispatcher --port 5050
    python serve.py worker --dispatcher localhost:5050   # on @MACHINES@
    python serve.py check --port 5050

Needs TensorFlow alone. The dispatcher keeps its state in --work-dir, if given, and takes it up again when it is
started anew. A worker is reached by the training process under --host, so that name has to be known there.

Written by pipetune.
"""

from __future__ import annotations

import argparse
import socket
import sys


def dispatcher(arguments):
    import tensorflow as tf

    config = tf.data.experimental.service.DispatcherConfig(
        port=arguments.port, work_dir=arguments.work_dir, fault_tolerant_mode=arguments.work_dir is not None
    )
    server = tf.data.experimental.service.DispatchServer(config)
    print(f"dispatcher at {server.target}", flush=True)
    server.join()


def worker(arguments):
    import tensorflow as tf

    config = tf.data.experimental.service.WorkerConfig(
        dispatcher_address=arguments.dispatcher,
        worker_address=f"{arguments.host}:{arguments.port or '%port%'}",
        port=arguments.port,
    )
    server = tf.data.experimental.service.WorkerServer(config)
    print(f"worker of {arguments.dispatcher} at {arguments.host}", flush=True)
    server.join()


def check(arguments):
    """Ends with 0 if something answers at the port, else with 1."""
    try:
        socket.create_connection((arguments.host, arguments.port), timeout=5).close()
    except OSError as error:
        sys.exit(f"nothing answers at {arguments.host}:{arguments.port}: {error}")


def main():
    parser = argparse.ArgumentParser(description="Servers of a tf.data service.")
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("dispatcher", help="once per service")
    one.add_argument("--port", type=int, default=5050)
    one.add_argument("--work-dir", help="where its state outlives it; a path or gs://")
    one.set_defaults(run=dispatcher)
    one = commands.add_parser("worker", help="on every machine that is to help")
    one.add_argument("--dispatcher", required=True, metavar="HOST:PORT")
    one.add_argument("--host", default=socket.gethostname(), help="the name others reach this machine by")
    one.add_argument("--port", type=int, default=0, help="0: any that is free")
    one.set_defaults(run=worker)
    one = commands.add_parser("check", help="does a server answer?")
    one.add_argument("--host", default="localhost")
    one.add_argument("--port", type=int, required=True)
    one.set_defaults(run=check)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
'''

_COMPOSE = """\
# A tf.data service: one dispatcher and {count}:  docker compose up
# Another number of workers:  docker compose up --scale worker=4
# Workers are reached by the names of their containers, so training has to run in this network too, with
# TF_DATA_SERVICE=grpc://dispatcher:5050
# Written by pipetune.
services:
  dispatcher:
    image: {image}
    command: python /serve.py dispatcher --port 5050 --work-dir /state
    volumes:
      - ./serve.py:/serve.py:ro
      - state:/state
    healthcheck:
      test: python /serve.py check --port 5050
      interval: 10s
      start_period: 30s
    restart: unless-stopped
  worker:
    image: {image}
    command: python /serve.py worker --dispatcher dispatcher:5050 --port 5051
    deploy: {{replicas: {workers}}}
    depends_on:
      dispatcher:
        condition: service_healthy
    volumes:
      - ./serve.py:/serve.py:ro
{data}    healthcheck:
      test: python /serve.py check --port 5051
      interval: 10s
      start_period: 30s
    restart: unless-stopped
volumes:
  state:
"""

_KUBERNETES = """\
# A tf.data service: one dispatcher and {count}; `kubectl scale` sets another number.
#   kubectl create configmap data-service --from-file=serve.py
#   kubectl apply -f kubernetes.yaml
# Training runs in the same cluster, with TF_DATA_SERVICE=grpc://data-dispatcher:5050
# Written by pipetune.
apiVersion: v1
kind: Service
metadata:
  name: data-dispatcher
spec:
  selector: {{app: data-dispatcher}}
  ports: [{{port: 5050}}]
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: data-dispatcher
spec:
  replicas: 1
  strategy: {{type: Recreate}}  # never two at a time
  selector:
    matchLabels: {{app: data-dispatcher}}
  template:
    metadata:
      labels: {{app: data-dispatcher}}
    spec:
      containers:
        - name: dispatcher
          image: {image}
          command: [python, /service/serve.py, dispatcher, --port, "5050", --work-dir, /state]
          ports: [{{containerPort: 5050}}]
          readinessProbe:
            tcpSocket: {{port: 5050}}
          livenessProbe:
            tcpSocket: {{port: 5050}}
            initialDelaySeconds: 30
          volumeMounts:
            - {{name: service, mountPath: /service}}
            - {{name: state, mountPath: /state}}
      volumes:
        - name: service
          configMap: {{name: data-service}}
        - name: state  # outlives the container, not the pod; a persistent volume outlives both
          emptyDir: {{}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: data-worker
spec:
  replicas: {workers}
  selector:
    matchLabels: {{app: data-worker}}
  template:
    metadata:
      labels: {{app: data-worker}}
    spec:
      containers:
        - name: worker
          image: {image}
          command: [python, /service/serve.py, worker, --dispatcher, "data-dispatcher:5050", --host, $(POD_IP), --port, "5051"]
          env:
            - name: POD_IP
              valueFrom:
                fieldRef: {{fieldPath: status.podIP}}
{resources}          ports: [{{containerPort: 5051}}]
          readinessProbe:
            tcpSocket: {{port: 5051}}
          livenessProbe:
            tcpSocket: {{port: 5051}}
            initialDelaySeconds: 30
          volumeMounts:
            - {{name: service, mountPath: /service}}
{mount}      volumes:
        - name: service
          configMap: {{name: data-service}}
{volume}"""  # noqa: E501 the command of a container on one line


def machines(need: ServiceNeed | None) -> str:
    """On how many machines a worker is to run, as part of a comment."""
    if need is None or need.max_workers is None or need.recommended is False:
        return "every machine that is to help"
    return f"{_plural(need.max_workers, 'machine')} of {_plural(need.worker_cores, 'core')}: what training takes"


def _image(tensorflow: str) -> str:
    """The image with the release that the training process has: servers of another may not understand it."""
    release = re.match(r"\d+\.\d+", tensorflow)
    tag = "latest" if release is None else "nightly" if "dev" in tensorflow else f"{release[0]}.0"
    return f"tensorflow/tensorflow:{tag}"


def companions(folder: str, need: ServiceNeed | None = None, tensorflow: str = "") -> tuple[tuple[str, str], ...]:
    """Name and text of each file.

    Args:
        folder: the local folder the data is in, which workers need too; "" where it is elsewhere.
        need: how many workers it takes; None: not known.
        tensorflow: the version that trains; "" if not known.
    """
    data = mount = volume = ""
    if folder:
        name = json.dumps(folder)  # what JSON quotes, YAML reads
        data = f"      - {json.dumps(f'{folder}:{folder}:ro')}\n"
        mount = f"            - {{name: data, mountPath: {name}, readOnly: true}}\n"
        volume = (
            "        - name: data  # the folder of the files, the same on every node; or a claim of shared storage\n"
            f"          hostPath: {{path: {name}}}\n"
        )
    filled = {"image": _image(tensorflow), **_workers(need)}
    return (
        ("serve.py", _SERVE.replace("@MACHINES@", machines(need))),
        ("docker-compose.yml", _COMPOSE.format(data=data, **filled)),
        ("kubernetes.yaml", _KUBERNETES.format(mount=mount, volume=volume, **filled)),
    )


def _workers(need: ServiceNeed | None) -> dict[str, object]:
    """How many workers to start, the same in words with the reason, and what each asks of a cluster."""
    if need is not None and need.recommended is False:
        why = "training does not need them: see distributed.py"
    elif need is None or need.max_workers is None:
        why = "how many are needed is not known"
    else:
        why = f"what training takes on machines of {_plural(need.worker_cores, 'core')}"
        requests = f'          resources: {{requests: {{cpu: "{need.worker_cores:g}"}}}}\n'
        count = _plural(need.max_workers, "worker")
        return {"workers": need.max_workers, "count": f"{count}, {why}", "resources": requests}
    return {"workers": _WORKERS, "count": f"{_plural(_WORKERS, 'worker')} ({why})", "resources": ""}


def _plural(number: float, noun: str) -> str:
    return f"{number:g} {noun}{'' if number == 1 else 's'}"


def data_folder(sources: Iterable[SourceText]) -> str:
    """The folder that holds all local files, or ''."""
    names = (name for source in sources if source.yields_file_names for name in (source.pattern, *source.names))
    folders = {os.path.dirname(name) for name in names if name and "://" not in name}
    return os.path.commonpath(folders) if folders and all(map(os.path.isabs, folders)) else ""
