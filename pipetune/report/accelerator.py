"""What is known of the accelerator: the copy of an element to it, or that nothing was measured on one."""

from __future__ import annotations

from pipetune.core.session import Session
from pipetune.report import words
from pipetune.report.values import Fact

NOT_ON_A_GPU = "not measured on a GPU"


def accelerator_facts(session: Session) -> tuple[Fact, ...]:
    """One line for the machine's section."""
    machine, dataset = session.machine, session.main_dataset
    if machine is None:
        return ()
    if machine.device != "gpu":
        sees_one = any(":GPU:" in name for name in machine.devices)
        why = "the CPU was the target" if sees_one else "TensorFlow sees none here"
        return (Fact("Accelerator", NOT_ON_A_GPU, f"{why}; with one, a step takes another time"),)
    transfer = dataset.profile.transfer if dataset and dataset.profile else None
    if transfer is None:
        return (Fact("Copy to the device", "not measured"),)
    return (
        Fact(
            "Copy to the device",
            f"{words.seconds(transfer.seconds)} per element",
            f"{words.byte_size(transfer.element_bytes)} at {transfer.gigabytes_per_second:.3g} GB/s to "
            f"{words.clean(transfer.device)}, {words.count(transfer.copies, 'copy')}"
            + ("" if transfer.equal else "; what came back differed"),
        ),
    )
