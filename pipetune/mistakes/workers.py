"""Workers of one job that all read the same data."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.profile import Finding
from pipetune.mistakes.use import Use, said, shuffles_anew

_POLICY = "experimental_distribute.auto_shard_policy"


def unsharded(use: Use) -> Iterator[Finding]:
    """Input that nobody divides over the workers.

    Silent where the script asks which worker it is: it may divide a list of files by hand. Without a strategy also
    where each worker shuffles by a draw of its own: that is another way to give each of them something else.
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
    yield said(
        "unsharded-workers",
        use.pipeline.output,
        f"{workers.told_by} names {workers.count} workers, and each reads all of this dataset: {why}, so every "
        f"epoch trains on each example {workers.count} times.",
        hint,
    )


def _sharded(use: Use) -> bool:
    return any(node.op == "shard" or any(kernel.startswith("Shard") for kernel in node.inner) for node in use.pipeline)
