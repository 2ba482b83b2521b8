"""`pipetune doctor`: the machine as TensorFlow detects it, and what the container makes available."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from pipetune.cli.command import Answer, lines, wrapped
from pipetune.core.codec import encode
from pipetune.core.errors import PipetuneError
from pipetune.core.machine import Machine
from pipetune.report.environment import settings, sides
from pipetune.report.words import byte_size, clean

SUMMARY = "show the resources that TensorFlow detects and those that the container makes available"

DESCRIPTION = """\
Starts TensorFlow in a separate process and shows the resources of this machine,
how much of them the container makes available, and what to know before measuring
here."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "gpu", "tpu"),
        default="auto",
        help="target device; exit code 5 if it is absent (default auto)",
    )


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command.

    Raises:
        PipetuneError: TensorFlow cannot be imported, the device is absent, or the worker was lost.
    """
    from pipetune.supervisor.single_worker import read_machine

    machine = read_machine(arguments.device).machine
    if machine is None:
        raise PipetuneError("The worker did not report the machine.", exit_code=1)
    data = encode(machine)
    assert isinstance(data, dict)
    return Answer(data, lines(*_lines(machine)))


def _lines(machine: Machine) -> Iterator[str]:
    """The whole output, 80 columns wide."""
    yield from _resource_table(machine)
    yield ""
    rows = machine_facts(machine)
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        yield wrapped(text, first=f"{name:<{width}}  ", rest=" " * (width + 2))
    for advice in machine_warnings(machine):
        yield ""
        yield wrapped(advice, first="! ", rest="  ")
    recommended = list(settings(machine))
    if recommended:
        yield "\nRecommended settings, independent of each other"
    for line in recommended:
        yield f"  {line.label}"
        yield wrapped(line.text, first="      ", rest="      ")


def _resource_table(machine: Machine) -> Iterator[str]:
    """A table of available resources next to those TensorFlow detects; rows that differ are marked."""
    rows = [(one.label, one.granted, one.believed + ("  <- more" if one.differs else "")) for one in sides(machine)]
    titles = ("", "available", "detected by TensorFlow")
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in (0, 1)]
    for label, granted, believed in (titles, *rows):
        yield f"{label:<{widths[0]}}  {granted:<{widths[1]}}  {believed}".rstrip()


def machine_facts(machine: Machine) -> list[tuple[str, str]]:
    """Returns all other facts about the machine, as rows of name and text."""
    load = "unknown" if machine.load_average is None else f"{machine.load_average:.2f}"
    return [
        ("cores by affinity", f"{machine.cores_affinity} of {machine.cores_host}"),
        ("memory available", byte_size(machine.memory_available_bytes)),
        ("load average", load),
        ("processor", clean(machine.processor)),
        ("system", clean(machine.system)),
        ("Python", machine.python),
        ("TensorFlow", machine.tensorflow),
        ("Keras", machine.keras or "not imported"),
        ("devices", ", ".join(machine.devices) or "none"),
        ("target", machine.device),
    ]


def machine_warnings(machine: Machine) -> Iterator[str]:
    """Yields what the user should know before measuring on this machine."""
    if machine.cores_granted < machine.cores_detected:
        yield (
            f"TensorFlow detects {machine.cores_detected} cores, but only {machine.cores_granted:g} are "
            "available: AUTOTUNE starts too many threads, and the container is throttled for the rest of each "
            "period. The trials of pipetune use only the available cores, and a plan states this."
        )
    if machine.load_average is not None and machine.load_average > machine.cores_granted / 2:
        yield (
            f"Other processes use this machine (load {machine.load_average:.1f}, {machine.cores_granted:g} "
            "cores available): confidence intervals will be wide, and runs may end undecided."
        )
    if machine.memory_available_bytes < machine.memory_limit_bytes / 10:
        yield "Less than a tenth of the memory is free: plans that keep data in memory will be refused."
