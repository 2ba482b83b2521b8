"""The machine and what it grants beside what TensorFlow believes, the time spent, and the datasets of the script."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipetune.core.machine import CpuLoad, DetectedResources, DeviceTransfer, Machine
from pipetune.core.session import DatasetResult, Session
from pipetune.report import words
from pipetune.report.blocks import Block, Cell, Column, Commands, Facts, Row, Sentence, Table, number_cell, numbers
from pipetune.report.places import Places, analyze_words, script_words, shell
from pipetune.report.words import Fact

_NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Side:
    """One quantity, both ways."""

    label: str
    granted: str
    believed: str
    differs: bool = False


def sides(machine: Machine) -> tuple[Side, ...]:
    """Cores, memory and threads, as granted and as TensorFlow takes them."""
    believed = machine.believed or DetectedResources()
    granted = words.plain(machine.cores_granted)
    share = machine.memory_limit_bytes // 2
    buffers = believed.autotune_buffer_bytes
    pools = (
        ("calls of one operator", believed.pool_threads, 0),
        ("inter-op threads", believed.inter_op_threads, believed.inter_op_configured),
        ("intra-op threads", believed.intra_op_threads, believed.intra_op_configured),
    )
    return (
        Side(
            "cores",
            f"{granted} of {machine.cores_host} ({_quota(machine)})",
            f"{machine.cores_detected} ({'cpu_budget' if machine.believed else 'affinity'})",
            _exceeds(machine.cores_detected, machine),
        ),
        Side(
            "memory",
            f"{words.byte_size(machine.memory_limit_bytes)} of {words.byte_size(machine.memory_host_bytes)}",
            f"{words.byte_size(machine.memory_host_bytes)} (the host's)",
            _memory_differs(machine),
        ),
        Side(
            "for AUTOTUNE's buffers",
            f"{words.byte_size(share)} (half)",
            _NOT_ASKED if buffers is None else f"{words.byte_size(buffers)} (ram_budget)",
            _buffers_exceed_share(machine),
        ),
        *(Side(label, granted, _threads(pool, ours), _exceeds(pool, machine)) for label, pool, ours in pools),
    )


def settings(machine: Machine) -> Iterator[Fact]:
    """What to set where they differ, the strongest first: the line to write, and what it does."""
    number = max(1, round(machine.cores_granted))
    believed = machine.believed or DetectedResources()
    if _exceeds(machine.cores_detected, machine):
        chosen = ",".join(map(str, machine.affinity[:number])) or ("0" if number == 1 else f"0-{number - 1}")
        yield Fact(
            f"taskset -c {chosen} python train.py",
            f"everything sees {words.count(number, 'core')}: TensorFlow reads the affinity mask, not the quota",
        )
        yield Fact(f"options.autotune.cpu_budget = {number}", "AUTOTUNE shares out the cores that are granted")
        yield Fact(
            f"options.threading.private_threadpool_size = {number}",
            "functions of the pipeline run in so many threads, and no operator gets more calls",
        )
    if _exceeds(believed.intra_op_threads, machine) or _exceeds(believed.inter_op_threads, machine):
        yield Fact(
            f"TF_NUM_INTRAOP_THREADS={number} TF_NUM_INTEROP_THREADS={number} python train.py",
            "the model's own threads: no more than can run",
        )
    if _buffers_exceed_share(machine):
        yield Fact(
            f"options.autotune.ram_budget = {machine.memory_limit_bytes // 2}",
            "AUTOTUNE's buffers stay within half of the memory granted",
        )
    if _exceeds(machine.cores_detected, machine):
        yield Fact(
            "pipetune analyze train.py",
            "its trials keep to the cores granted; numbers it proves take AUTOTUNE's place in the plan",
        )


def load_fact(load: CpuLoad | None) -> Fact | None:
    """Who used the cores while measuring: "other processes took 12 %"."""
    if load is None:
        return None
    cores = words.count(load.cores, "core")
    parts = [f"over {words.seconds(load.seconds)} of windows on {cores}; we took {words.percent(load.own_share)}"]
    if load.worst_others_share > load.others_share:
        parts.append(f"at worst they took {words.percent(load.worst_others_share)} of one window")
    if load.stolen_share >= 0.005:
        parts.append(f"the hypervisor took {words.percent(load.stolen_share)}")
    if load.throttled_share:
        stopped = f"the quota stopped us in {words.percent(load.throttled_share)} of its periods"
        if load.throttled_seconds:
            stopped += f", {words.seconds(load.throttled_seconds)} in all"
        parts.append(stopped)
    note = "; ".join(parts)
    return Fact("load while measuring", f"other processes took {words.percent(load.others_share)}", note)


def _exceeds(threads: float | None, machine: Machine) -> bool:
    """Whether TensorFlow counts on more than is granted; a fraction of a core still needs a whole thread."""
    return threads is not None and threads > max(1, math.ceil(machine.cores_granted))


def _quota(machine: Machine) -> str:
    return "no quota" if machine.quota_cores is None else f"quota {words.plain(machine.quota_cores)}"


def _memory_differs(machine: Machine) -> bool:
    return machine.memory_limit_bytes < 0.95 * machine.memory_host_bytes


def _buffers_exceed_share(machine: Machine) -> bool:
    buffers = machine.believed.autotune_buffer_bytes if machine.believed is not None else None
    return _memory_differs(machine) and (buffers or 0) > machine.memory_limit_bytes // 2


def _threads(number: int | None, configured: int) -> str:
    if number is None:
        return _NOT_ASKED
    return f"{number} (configured)" if configured else str(number)


_MOMENTS = {
    "to_first_step": "until the first training step",
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
    "files_restored": "files that the training loop had changed, restored",
    "files_removed": "files that the training loop had created, removed",
    "variables_restored": "variables restored to their values after the trials",
    "steps_run": "training steps run for measuring, their effect undone",
}


def machine_words(machine: Machine | None) -> str:
    """The machine in a few words: "2 cores, 8.00 GiB, cpu"."""
    if machine is None:
        return ""
    memory = words.byte_size(machine.memory_limit_bytes)
    return f"{words.cores(machine.cores_granted)}, {memory}, {words.clean(machine.device)}"


def machine(session: Session) -> Iterator[Block]:
    """What was measured on, how long it took, and what pipetune kept from happening."""
    if session.machine is None:
        yield Sentence("The machine was not recorded.", quiet=True)
    else:
        main = session.main_dataset
        transfer = main.profile.transfer if main and main.profile else None
        yield Facts((*_machine_facts(session.machine, session.load), _accelerator(session.machine, transfer)))
    suppressed = tuple(
        Fact(_SUPPRESSED.get(name, words.clean(name.replace("_", " "))), f"{number:,}")
        for name, number in session.side_effects.items()
    )
    yield from (Facts(facts) for facts in (phases(session), suppressed) if facts)
    if script := script_words(session):
        yield Commands((Fact(shell(*analyze_words(session, as_before=True), *script), "what was run"),))


def _machine_facts(machine: Machine, load: CpuLoad | None) -> Iterator[Fact]:
    """What the process was granted beside what the host has and TensorFlow believes; who else used it."""
    cores = f"host {machine.cores_host}, affinity {machine.cores_affinity}, {_quota(machine)}"
    yield Fact("cores", words.plain(machine.cores_granted), cores)
    available = f"{words.byte_size(machine.memory_available_bytes)} available at the start"
    memory = f"host {words.byte_size(machine.memory_host_bytes)}, {available}"
    yield Fact("memory", words.byte_size(machine.memory_limit_bytes), memory)
    yield Fact("device", words.clean(machine.device), words.clean(", ".join(machine.devices)))
    yield Fact("processor", words.clean(machine.processor) or "unknown", words.clean(machine.system))
    beside = f"Keras {words.clean(machine.keras)}, Python {words.clean(machine.python)}"
    yield Fact("software", f"TensorFlow {words.clean(machine.tensorflow)}", beside)
    for side in sides(machine) if machine.believed is not None else ():
        if side.differs:
            yield Fact(f"TensorFlow assumes, {side.label}", side.believed, f"granted {side.granted}")
    if machine.load_average is not None:
        yield Fact("load at the start", words.plain(machine.load_average))
    if measured := load_fact(load):
        yield measured


def _accelerator(machine: Machine, transfer: DeviceTransfer | None) -> Fact:
    """The copy of an element to the accelerator, or that nothing was measured on one."""
    if machine.device != "gpu":
        sees_one = any(":GPU:" in name for name in machine.devices)
        why = "the CPU was the target" if sees_one else "TensorFlow sees none here"
        return Fact("Accelerator", "not measured on a GPU", f"{why}; with one, a step takes another time")
    if transfer is None:
        return Fact("Copy to the device", "not measured")
    note = (
        f"{words.byte_size(transfer.element_bytes)} at {transfer.gigabytes_per_second:.3g} GB/s to "
        f"{words.clean(transfer.device)}, {words.count(transfer.copies, 'copy')}"
        + ("" if transfer.equal else "; what came back differed")
    )
    return Fact("Copy to the device", f"{words.seconds(transfer.seconds)} per element", note)


def phases(session: Session) -> tuple[Fact, ...]:
    """Seconds per phase in the order they ran; what the phases leave of the total is told, too."""
    seconds = session.seconds
    known = [name for name in _PHASES if name in seconds and name != "total"]
    others = [name for name in seconds if name not in (*_PHASES, *_MOMENTS)]
    facts = [Fact(words.clean(name.replace("_", " ")), words.seconds(seconds[name])) for name in (*others, *known)]
    if "total" in seconds:
        rest = seconds["total"] - sum(seconds[name] for name in (*others, *known))
        if known and rest > 0:
            facts.append(Fact("starting, and what is in no phase", words.seconds(rest)))
        facts.append(Fact("total", words.seconds(seconds["total"])))
    facts += [Fact(label, words.seconds(seconds[name])) for name, label in _MOMENTS.items() if name in seconds]
    return tuple(facts)


def datasets(session: Session, places: Places) -> Iterator[Block]:
    """Every dataset the script consumed, and what it cost before training was measured."""
    if not session.datasets:
        return
    total = sum((one.cost.epoch_wall_seconds or 0.0) for one in session.datasets if one.cost is not None)
    yield Table(
        "Every dataset that was consumed",
        (Column("Dataset"), Column("Consumed by"), Column("Operators"), *numbers("Before training", "One epoch")),
        tuple(_dataset(one, places, total) for one in session.datasets),
    )


def _dataset(result: DatasetResult, places: Places, total: float) -> Row:
    cost = result.cost
    epoch, whole = (cost.epoch_wall_seconds, cost.whole_pass) if cost is not None else (None, True)
    share = (f"{words.percent(epoch / total)} of all" if whole else "at least") if epoch is not None and total else ""
    taken = "the whole call" if cost is not None and cost.whole_call else ""
    if not taken and result.consumed_elements:
        taken = words.count(result.consumed_elements, "element")
    spent = words.seconds(cost.taken_wall_seconds) if cost is not None and cost.taken_wall_seconds else ""
    name = words.clean(result.pipeline.name)
    role = words.clean(result.role)
    where = places.place_of(result.pipeline.output.location) if result.pipeline.nodes else None
    consumed = places.place(result.file, result.line or None)
    cells = (
        Cell(name or role, note=role if name else "", place=where),
        Cell(words.clean(result.consumer) or "unknown", place=consumed),
        Cell(" > ".join(words.clean(node.title) for node in result.pipeline)),
        Cell(spent or taken, note=taken if spent else "") if spent or taken else Cell(why="nothing was consumed"),
        replace(number_cell(epoch, words.seconds, why="it was not measured alone"), note=share),
    )
    return Row(cells)
