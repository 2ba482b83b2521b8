"""The machine, what was suppressed, the seconds spent, the warnings, the script's other datasets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipetune.core.machine import CpuLoad, Machine
from pipetune.core.profile import VALIDATION_INPUT, Finding
from pipetune.core.session import Session
from pipetune.report import words
from pipetune.report.granted import load_fact, sides
from pipetune.report.places import Places
from pipetune.report.values import Fact

_MOMENTS = {
    "to_95_percent": "95 % of the final rate, after the first training step",
    "budget": "from the first training step to the answer, without the starts of further processes",
}
_PHASES = (
    *("capture", "profile", "verdict", "skew", "costs", "course", "trials", "confirmation", "emission"),
    "validation",
    *("verification_starts", "verification", "after_proof", "total"),
)
_SUPPRESSED = {
    "saves_suppressed": "saves of models and checkpoints that did nothing",
    "summaries_suppressed": "summaries that were not written",
    "files_restored": "files that the training loop had changed, put back",
    "files_removed": "files that the training loop had made, removed",
    "variables_restored": "variables put back to their values after the trials",
    "steps_run": "training steps run for measuring, their effect undone",
}


@dataclass(frozen=True)
class Warning:
    """Something wrong in the script today, whatever pipetune changes; or advice that no edit follows."""

    code: str
    where: str
    message: str
    hint: str


@dataclass(frozen=True)
class DatasetRow:
    """One dataset of the script."""

    name: str
    role: str
    consumer: str
    where: str
    consumed_at: str
    operators: str
    elements: str
    studied: bool


def warnings(session: Session, places: Places) -> tuple[Warning, ...]:
    """What is wrong in the script as it is; what the patch changes for validation needs no other hint."""
    patched = session.validation is not None
    return _told(
        (replace(one, hint="") if patched and one.code == VALIDATION_INPUT else one for one in session.findings), places
    )


def advice(session: Session, places: Places) -> tuple[Warning, ...]:
    """What could be better in what consumes the data: told like warnings, in a place of its own."""
    return _told(session.advice, places)


def _told(findings: Iterable[Finding], places: Places) -> tuple[Warning, ...]:
    return tuple(
        Warning(
            code=words.clean(finding.code),
            where=places.line(finding.file, finding.line),
            message=places.said(finding.message),
            hint=places.said(finding.hint),
        )
        for finding in findings
    )


def dataset_rows(session: Session, places: Places) -> tuple[DatasetRow, ...]:
    return tuple(
        DatasetRow(
            name=words.clean(result.pipeline.name),
            role=words.clean(result.role),
            consumer=words.clean(result.consumer) or "unknown",
            where=places.location(result.pipeline.output.location) if result.pipeline.nodes else "",
            consumed_at=places.line(result.file, result.line or None),
            operators=" > ".join(words.clean(node.title) for node in result.pipeline),
            elements=f"{result.consumed_elements:,}",
            studied=result.diagnosis is not None or result.profile is not None,
        )
        for result in session.datasets
    )


def machine_facts(machine: Machine | None, load: CpuLoad | None = None) -> tuple[Fact, ...]:
    """What the process was granted beside what the host has and TensorFlow believes; who else used it."""
    if machine is None:
        return (Fact("Machine", "not recorded"),)
    quota = "no quota" if machine.quota_cores is None else f"quota {words.plain(machine.quota_cores)}"
    facts = [
        Fact(
            "Cores granted",
            words.plain(machine.cores_granted),
            f"host {machine.cores_host}, affinity {machine.cores_affinity}, {quota}",
        ),
        Fact(
            "Memory granted",
            words.byte_size(machine.memory_limit_bytes),
            f"host {words.byte_size(machine.memory_host_bytes)}, "
            f"{words.byte_size(machine.memory_available_bytes)} available at the start",
        ),
        Fact("Target device", words.clean(machine.device), words.clean(", ".join(machine.devices))),
        Fact("Processor", words.clean(machine.processor) or "unknown", words.clean(machine.system)),
        Fact(
            "Software",
            f"TensorFlow {words.clean(machine.tensorflow)}",
            f"Keras {words.clean(machine.keras)}, Python {words.clean(machine.python)}",
        ),
    ]
    if machine.believed is not None:
        differing = [side for side in sides(machine) if side.differs]
        facts += [
            Fact(f"TensorFlow believes, {side.label}", side.believed, f"granted {side.granted}") for side in differing
        ]
    if machine.load_average is not None:
        facts.append(Fact("Load at the start", words.plain(machine.load_average), "other work disturbs timings"))
    measured = load_fact(load)
    return (*facts, measured) if measured else tuple(facts)


def suppressed(session: Session) -> tuple[Fact, ...]:
    return tuple(
        Fact(_SUPPRESSED.get(name, words.clean(name.replace("_", " "))), f"{number:,}")
        for name, number in session.side_effects.items()
    )


def phases(session: Session) -> tuple[Fact, ...]:
    """Seconds per phase, the known ones in the order they ran."""
    known = [name for name in _PHASES if name in session.seconds]
    others = [name for name in session.seconds if name not in _PHASES and name not in _MOMENTS]
    moments = [name for name in _MOMENTS if name in session.seconds]
    return tuple(
        Fact(_MOMENTS.get(name, words.clean(name.replace("_", " "))), words.seconds(session.seconds[name]))
        for name in (*others, *known, *moments)
    )
