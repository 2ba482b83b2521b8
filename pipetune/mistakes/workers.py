"""Checks for data that is not divided properly over the workers of a job; with numbers if elements were counted."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipetune.core.coverage import Coverage
from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding
from pipetune.mistakes.stateful import apart
from pipetune.mistakes.use import Use, said, shuffles_anew

_POLICY = "experimental_distribute.auto_shard_policy"
_READ_TOO_MUCH = 1.5  # elements read per element used; below it, sharding by file would gain little
_UNEVEN = 0.9  # minimum share of the steps of an epoch in which every worker has data
_OWN_SHARD = "Shard by the worker's index: dataset.shard(workers, index), before the shuffle."


def unsharded(use: Use) -> Iterator[Finding]:
    """Reports input that is not sharded over the workers.

    Reports nothing if the script reads its worker index: it may shard a list of files by hand. Without a strategy, also
    nothing if each worker shuffles without a seed: that is another way to give each worker different data.
    """
    workers = use.workers
    if workers is None or workers.count < 2 or workers.asked or _sharded(use):
        return
    if workers.distributed:
        if use.pipeline.options.get(_POLICY) != "OFF":
            return
        why = "its auto_shard_policy is OFF and no shard() divides it"
        hint = "Leave the policy at AUTO, or shard by the worker's index: dataset.shard(workers, index)."
    else:
        if any(shuffles_anew(node) and node.argument("seed") is None for node in use.pipeline):
            return
        why = "no shard() divides it"
        hint = "Shard by the worker's index, before the shuffle: dataset.shard(workers, index)."
    found = _counted(use)
    examples = f"each of its {found.elements:,} examples" if found is not None else "each example"
    steps = f", in {found.first_out:,} steps" if found is not None and found.first_out is not None else ""
    yield said(
        "unsharded-workers",
        use.pipeline.output,
        f"{workers.told_by} names {workers.count} workers, and each reads all of this dataset: {why}, so every "
        f"epoch trains on {examples} {workers.count} times{steps}.",
        hint,
    )


def divided(use: Use) -> Iterator[Finding]:
    """Reports what counting showed: elements that never occur or occur again, idle workers, excessive reads."""
    workers = use.workers
    if workers is None or workers.count < 2 or use.as_written is None:
        return
    if use.as_written.refused:
        yield said(
            "too-few-files",
            use.pipeline.output,
            f"TensorFlow cannot divide this dataset over {workers.count} workers by {use.as_written.policy}: "
            f"{use.as_written.why}.",
            "Set options.experimental_distribute.auto_shard_policy to DATA, or write the data as that many files, "
            "better several times as many.",
        )
    found = _counted(use)
    if found is None:
        yield from _reads_all_files(use)
        return
    if apart(use) is None:  # else the unseeded shuffle is the reason, which `shuffled_apart` reports
        yield from _left_out(use, found)
    if found.repeated and not found.never and _shards(use):
        yield _again(use, found)
    yield from _uneven(use, found)
    yield from _read_too_much(use, found)


def _counted(use: Use) -> Coverage | None:
    return use.as_written.coverage if use.as_written is not None else None


def _left_out(use: Use, found: Coverage) -> Iterator[Finding]:
    if not found.never:
        return
    shards = _shards(use)
    workers = len(found.workers)
    told = f"{found.never:,} of {found.elements:,} elements come to none of {workers} workers in an epoch"
    if shards and use.as_written is not None and use.as_written.policy in ("FILE", "DATA"):
        yield said(
            "data-left-out",
            shards[0],
            f"This shard divides the data, and the strategy divides each part again, by {use.as_written.policy}: "
            f"{told}.",
            "Set options.experimental_distribute.auto_shard_policy to OFF where the script divides the data itself, or "
            "take the shard out.",
        )
    else:
        yield said("data-left-out", (shards or [use.pipeline.output])[0], f"Data is left out: {told}.", _OWN_SHARD)


def _again(use: Use, found: Coverage) -> Finding:
    return said(
        "data-repeated",
        (_shards(use) or [use.pipeline.output])[0],
        f"{found.repeated:,} of {found.elements:,} elements come more than once in an epoch of {len(found.workers)} "
        "workers.",
        _OWN_SHARD,
    )


def _uneven(use: Use, found: Coverage) -> Iterator[Finding]:
    """Reports workers that run out of data long before others."""
    batches = [worker.batches for worker in found.workers]
    first = found.first_out
    last = math.ceil(max((count or 0 for count in batches), default=0) / found.replicas_per_worker)
    if first is None or first >= _UNEVEN * last or last - first < 2:
        return
    idle = found.idle_workers
    who = f"workers {', '.join(map(str, idle))} get" if len(idle) > 1 else f"worker {idle[0]} gets" if idle else ""
    by_element = "set auto_shard_policy to DATA" if use.as_written and use.as_written.policy else "shard elements"
    hint = f"Write files of equal size, several for each worker, or {by_element}."
    if who:
        yield said("idle-workers", use.pipeline.output, f"Of {len(batches)} workers {who} nothing at all.", hint)
    else:
        yield said(
            "uneven-workers",
            use.pipeline.output,
            f"The workers get {', '.join(f'{count:,}' for count in batches if count is not None)} batches of an epoch: "
            f"after {first:,} of {last:,} steps one of them has no data left.",
            hint,
        )


def _read_too_much(use: Use, found: Coverage) -> Iterator[Finding]:
    """Reports that every worker reads what the others use, although there are enough files to shard by file."""
    times = found.read_over_used
    if use.as_written is None or use.as_written.policy != "DATA" or times is None or times < _READ_TOO_MUCH:
        return
    bytes_read = found.bytes_read_over_used
    and_bytes = f" and {bytes_read:.1f} bytes" if bytes_read is not None else ""
    yield from _reads_all(use, len(found.workers), found.files, f"{times:.1f} elements{and_bytes} for each one it uses")


def _reads_all_files(use: Use) -> Iterator[Finding]:
    """Reports the same for data that was not counted: with the policy DATA, each worker is known to read all of it."""
    known = use.as_written
    if known is not None and known.policy == "DATA" and known.file_bytes:
        times = f"{known.file_bytes * known.workers:,} bytes where {known.file_bytes:,} are used"
        yield from _reads_all(use, known.workers, known.files, f"together {times}")


def _reads_all(use: Use, workers: int, files: int, times: str) -> Iterator[Finding]:
    if files < workers:
        return
    stopped = use.as_written.stopped_at if use.as_written is not None else ""
    if stopped:
        why, hint = (
            f"TensorFlow looks for files to divide and gives up at {use.pipeline[stopped].title}",
            "Shard the list of files by the worker's index, before they are read, and set the policy to OFF.",
        )
    else:
        why, hint = "its auto_shard_policy is DATA", "Set auto_shard_policy to FILE: there are files enough."
    yield said(
        "read-by-all-workers",
        use.pipeline.output,
        f"Each of {workers} workers reads all of {files:,} files, {times}: {why}.",
        hint,
    )


def _shards(use: Use) -> list[Node]:
    return [node for node in use.pipeline if node.op == "shard"]


def _sharded(use: Use) -> bool:
    return any(node.op == "shard" or any(kernel.startswith("Shard") for kernel in node.inner) for node in use.pipeline)
