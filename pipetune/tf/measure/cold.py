"""Drops the files of a pipeline from the page cache before a window, and reports when that does not work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipetune.core.storage import Residency
from pipetune.tf.measure import page_cache

STAYED = 0.05
"""Share of the pages: with more than this still in the page cache, a window was not cold."""

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_OWN_CACHE = frozenset({"zfs", "nfs", "nfs4", "cifs", "9p", "virtiofs", "fuse", "ceph", "glusterfs", "lustre"})
_LOOK_SECONDS = 0.5


def drop(paths: Sequence[str]) -> None:
    """Drops these files from the page cache, as far as the system allows."""
    if page_cache.supported():
        page_cache.drop(paths)


def residency(paths: Sequence[str], *, cold: bool) -> Residency:
    """Returns how much of these files is in the page cache; with `cold`, drops them and says what stayed, and why."""
    if not paths:
        return Residency(why="the pipeline names no local file")
    if not page_cache.supported():
        return Residency(why="this system has no way to look at its page cache, or to drop it; Linux has")
    before = page_cache.look(paths, limit_seconds=_LOOK_SECONDS)
    if not cold:
        return Residency(share=before.share, why="" if before.share is not None else _unknown(before))
    drop(paths)
    after = page_cache.look(paths, limit_seconds=_LOOK_SECONDS)
    return Residency(share=before.share, left=after.share, why=_why(paths, after))


def filesystems(paths: Iterable[str]) -> tuple[str, ...]:
    """The types of the file systems that hold these files, each once; checks one file per folder, up to 100 folders."""
    folders = {path.rpartition("/")[0]: path for path in paths}
    return tuple(sorted({kind for path in list(folders.values())[:100] if (kind := page_cache.filesystem(path))}))


def _why(paths: Sequence[str], after: page_cache.Pages) -> str:
    kinds = filesystems(paths)
    in_memory = [kind for kind in kinds if kind in _IN_MEMORY]
    if in_memory:
        return f"files on {in_memory[0]} are memory themselves: they are never cold"
    if after.share is None:
        return _unknown(after)
    if after.share > STAYED:
        return (
            f"{100 * after.share:.0f} % of the pages stayed: they were written a moment ago, "
            "or another process has them mapped"
        )
    beyond = [kind for kind in kinds if kind.partition(".")[0] in _OWN_CACHE]
    if beyond:
        return f"{beyond[0]} has a cache of its own, or of its server's, that cannot be dropped from here"
    return ""


def _unknown(pages: page_cache.Pages) -> str:
    if pages.hidden:
        return "the system tells only their owner what of the files is in memory"
    return "the files could not be opened" if pages.unreadable else "the files are empty"
