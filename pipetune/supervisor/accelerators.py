"""Which GPUs each of several workers on one machine may use: two processes cannot train on one of them in step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"
_DEVICE = re.compile(r"nvidia(\d+)")
_NONE = "-1"


def gpus(environment: Mapping[str, str], *, devices: Iterable[str] | None = None) -> tuple[str, ...]:
    """The GPUs that a process sees, as `CUDA_VISIBLE_DEVICES` names them.

    Args:
        devices: names of the files in /dev; None: those that are there.
    """
    listed = environment.get(VISIBLE)
    if listed is not None:
        names = [name.strip() for name in listed.split(",")]
        valid = names[: names.index(_NONE)] if _NONE in names else names  # CUDA stops at the first that is none
        return tuple(name for name in valid if name)
    found = [path.name for path in Path("/dev").glob("nvidia*")] if devices is None else devices
    numbers = (match[1] for name in found if (match := _DEVICE.fullmatch(name)))
    return tuple(sorted(numbers, key=int))


def share(found: tuple[str, ...], *, workers: int, index: int) -> dict[str, str]:
    """The variables that give worker `index` as many GPUs as each of the others; none where there are too few.

    Args:
        workers: 0 for a process that trains nothing: it gets none.
    """
    if not found:
        return {}
    each = len(found) // workers if workers else 0
    return {VISIBLE: ",".join(found[index * each : (index + 1) * each]) or _NONE}
