"""`pipetune size`: input resources that a job on more machines needs, from the measured costs of a session."""

from __future__ import annotations

import argparse

from pipetune.cli.command import Answer, bandwidth, factor, milliseconds, positive_count, session_file_of
from pipetune.core.codec import Json, encode
from pipetune.core.errors import PipetuneError
from pipetune.core.machine import Machine
from pipetune.core.session import DatasetResult, Session
from pipetune.core.session_file import load
from pipetune.core.sizing import Origin, TrainingJob
from pipetune.report.places import places_of

SUMMARY = "estimate the input resources that a job on more machines needs"

DESCRIPTION = """\
Sizes a larger job from the costs that a session measured on this machine: cores
per host and whether one host can feed its replicas, tf.data service workers,
storage and network bandwidth, files, memory, and where and why it stops scaling.
Nothing is measured or run. Results that need a value neither in the session nor
given by an option are omitted, with a note."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", help="session.json, or the folder that holds it")
    parser.add_argument("--dataset", metavar="NAME", help="which dataset (default: the first one with measured costs)")
    job = parser.add_argument_group("the job")
    job.add_argument("--replicas", type=positive_count, required=True, metavar="N", help="total number of replicas")
    job.add_argument(
        "--step-time",
        type=milliseconds,
        metavar="MS",
        help="duration of a training step on those machines (default: that of the model alone, as measured here)",
    )
    job.add_argument(
        "--per-host",
        type=positive_count,
        metavar="N",
        help="replicas per host, fed by one input pipeline (default: the number of accelerators detected here, else 1)",
    )
    job.add_argument(
        "--batch",
        type=positive_count,
        metavar="N",
        help="examples per replica and step (default: the batch size of the script)",
    )
    there = parser.add_argument_group("the machines")
    there.add_argument(
        "--cores", type=positive_count, metavar="N", help="cores of one host (default: as available here)"
    )
    there.add_argument(
        "--worker-cores",
        type=positive_count,
        metavar="N",
        help="cores of one tf.data service worker (default: as available here)",
    )
    there.add_argument(
        "--storage-bandwidth",
        type=bandwidth,
        metavar="RATE",
        help="total bandwidth of the storage for all hosts: 1GB/s",
    )
    there.add_argument("--network", type=bandwidth, metavar="RATE", help="network bandwidth into one host: 10Gb/s")
    there.add_argument(
        "--compression", type=factor, metavar="FACTOR", help="compression ratio that the tf.data service achieves: 2.5"
    )


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command.

    Raises:
        PipetuneError: the session cannot be read or lacks a figure, or an option does not fit it.
    """
    from pipetune.model.sizing import compute_sizing

    session = load(arguments.session)
    result = _dataset(session, arguments.dataset)
    if session.machine is None:
        raise PipetuneError("The session does not record the machine on which it was measured.", hint=_MEASURE_HINT)
    sizing = compute_sizing(result, session.machine, _job(arguments, result, session.machine))

    def show() -> None:
        from pipetune.report.sizing import print_sizing

        print_sizing(sizing, result, places_of(session))

    rest = encode(sizing)
    assert isinstance(rest, dict)
    data: dict[str, Json] = {
        "hosts": sizing.job.hosts,
        "examples_per_second": sizing.job.rate,
        "stops_at": encode(sizing.first_ceiling),
        "feeds_its_replicas": sizing.best_requirements.can_feed(sizing.job.replicas_on_full_host),
        **rest,
    }
    return Answer(data, show, {"session": session_file_of(arguments.session)})


_MEASURE_HINT = "`pipetune analyze --no-trials SCRIPT` measures the costs of an input pipeline."


def _dataset(session: Session, name: str | None) -> DatasetResult:
    """The dataset called `name`; without a name, the first one with measured costs."""
    measured = [one for one in session.datasets if one.profile is not None]
    if name is None:
        if not measured:
            raise PipetuneError("The session has no measured costs.", hint=_MEASURE_HINT)
        return measured[0]
    found = [one for one in session.datasets if one.pipeline.name == name]
    found.sort(key=lambda one: one.profile is None)
    if not found:
        names = ", ".join(dict.fromkeys(one.pipeline.name for one in session.datasets))
        raise PipetuneError(
            f"The session has no dataset called {name!r}.", hint=f"It has {names}." if names else _MEASURE_HINT
        )
    if found[0].profile is None:
        raise PipetuneError(
            f"The costs of the dataset {name!r} were not measured.",
            hint=f"`pipetune analyze --no-trials --dataset {name} SCRIPT` measures them.",
        )
    return found[0]


def _job(arguments: argparse.Namespace, result: DatasetResult, machine: Machine) -> TrainingJob:
    """The job from the options; for options not given, values that the session measured."""
    assert result.profile is not None
    step = arguments.step_time or result.profile.consumer.bound_seconds
    if not step:
        raise PipetuneError(
            "The session did not measure how long the model alone takes for a step.",
            hint="Give it with --step-time MS.",
        )
    measured_batch = result.profile.examples_per_element
    if arguments.batch and not arguments.step_time and arguments.batch != measured_batch:
        raise PipetuneError(
            f"A step was measured with {measured_batch:g} examples, not with {arguments.batch}.",
            hint="Give the duration of a step with --step-time MS.",
        )
    accelerators = _accelerators(machine)
    bases = {
        "replicas": Origin.GIVEN,
        "per_host": _basis(arguments.per_host, Origin.MEASURED if accelerators else Origin.ASSUMED),
        "step_seconds": _basis(arguments.step_time, Origin.MEASURED),
        "batch_examples": _basis(arguments.batch, Origin.MEASURED),
        "host_cores": _basis(arguments.cores, Origin.MEASURED),
        "worker_cores": _basis(arguments.worker_cores, Origin.MEASURED),
    }
    return TrainingJob(
        replicas=arguments.replicas,
        per_host=arguments.per_host or accelerators or 1,
        step_seconds=step,
        batch_examples=float(arguments.batch or measured_batch),
        host_cores=float(arguments.cores or machine.cores_granted),
        worker_cores=float(arguments.worker_cores or machine.cores_granted),
        storage_bytes_per_second=arguments.storage_bandwidth,
        network_bytes_per_second=arguments.network,
        compression=arguments.compression,
        bases=bases,
    )


def _basis(given: object, otherwise: Origin) -> Origin:
    return otherwise if given is None else Origin.GIVEN


def _accelerators(machine: Machine) -> int:
    """The number of accelerators of the kind for which the session was measured; 0 on a CPU."""
    kind = machine.device.upper()
    return 0 if kind == "CPU" else sum(f"{kind}:" in device.upper() for device in machine.devices)
