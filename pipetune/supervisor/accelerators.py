"""Assigns the GPUs of this machine to local workers: two processes cannot train in lockstep on the same GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"
_DEVICE = re.compile(r"nvidia(\d+)")
_NONE = "-1"


def gpus(environment: Mapping[str, str], *, devices: Iterable[str] | None = None) -> tuple[str, ...]:
    """The GPUs visible to a process, as named by `CUDA_VISIBLE_DEVICES`.

    Args:
        environment: the environment of the process.
        devices: file names in /dev; None lists the nvidia* files in /dev. Not used if `CUDA_VISIBLE_DEVICES` is set.
    """
    listed = environment.get(VISIBLE)
    if listed is not None:
        names = [name.strip() for name in listed.split(",")]
        valid = names[: names.index(_NONE)] if _NONE in names else names  # CUDA ignores everything after an invalid id
        return tuple(name for name in valid if name)
    found = [path.name for path in Path("/dev").glob("nvidia*")] if devices is None else devices
    numbers = (match[1] for name in found if (match := _DEVICE.fullmatch(name)))
    return tuple(sorted(numbers, key=int))


def share(found: tuple[str, ...], *, workers: int, index: int) -> dict[str, str]:
    """The environment variables that give worker `index` its equal share of the GPUs.

    Hides all GPUs if there are fewer than workers; sets nothing on a machine without GPUs.

    Args:
        found: the GPUs of this machine, as returned by `gpus`.
        workers: how many processes share the GPUs; 0 for a process that does not train, which gets none.
        index: the worker.
    """
    if not found:
        return {}
    each = len(found) // workers if workers else 0
    return {VISIBLE: ",".join(found[index * each : (index + 1) * each]) or _NONE}
