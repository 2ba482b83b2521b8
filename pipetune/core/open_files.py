"""Files that this process has open or memory-mapped for writing, according to /proc (proc(5))."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator


def for_writing() -> Iterator[tuple[int, int, int]]:
    """Yields the descriptor, flags and size of each regular file with a name that is open for writing.

    Leaves out the files of standard output and error, which are pipetune's log.
    """
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
        logs = [os.fstat(descriptor) for descriptor in (1, 2) if descriptor in descriptors]
    except OSError:
        return
    for descriptor in descriptors:
        try:
            now = os.fstat(descriptor)
            if not stat.S_ISREG(now.st_mode) or not now.st_nlink or any(os.path.samestat(now, log) for log in logs):
                continue
            with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as stream:
                flags = next(int(line.split()[1], 8) for line in stream if line.startswith("flags:"))
        except (OSError, StopIteration, ValueError):
            continue  # closed in the meantime
        if flags & os.O_ACCMODE != os.O_RDONLY:
            yield descriptor, flags, now.st_size


def mapped_for_writing() -> Iterator[str]:
    """Yields files with a shared writable mapping, even if their descriptor is closed."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as stream:
            lines = [line.rstrip("\n").split(maxsplit=5) for line in stream]
    except OSError:
        return
    for parts in lines:
        if len(parts) == 6 and parts[1].startswith("rw-s") and not parts[5].endswith(" (deleted)"):
            yield parts[5]
