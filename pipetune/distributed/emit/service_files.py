"""What stands beside a module for a tf.data service: a script that starts its servers, and files for clusters."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable

from pipetune.core.distribution import SourceText
from pipetune.core.results import ServiceNeed

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
