"""Checks for replicas of a strategy that receive less than others or nothing, and rows that no replica receives.

Source: the "Distributed Input" guide of TensorFlow, sections on rebatching and on partial batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipetune.core.handover import FUNCTION, Handover
from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding
from pipetune.mistakes.use import Use, batch_size, repeats, said


def uneven(use: Use) -> Iterator[Finding]:
    """Reports full batches that cannot be divided evenly."""
    found, node = use.handover, _batching(use)
    if found is None or node is None or found.batch is None or len(set(found.shares)) < 2:
        return
    shares = _listed(found.shares)
    idle = found.shares.count(0)
    below = found.batch - found.batch % found.replicas
    sizes = " or ".join(str(size) for size in (below, below + found.replicas) if size)
    hint = f"Make the global batch a multiple of {found.replicas}, the number of replicas: {sizes}."
    if idle:
        yield said(
            "idle-replicas",
            node,
            f"A global batch of {found.batch} is divided into {shares}: {_some(idle, found)} nothing in any step.",
            hint,
        )
    else:
        yield said(
            "uneven-replicas",
            node,
            f"A global batch of {found.batch} is divided into {shares}: each step lasts as long as the largest part, "
            "and a mean of the replicas' means counts the rows of a smaller part for more.",
            hint,
        )


def left_over(use: Use) -> Iterator[Finding]:
    """Reports epochs whose end does not reach every replica."""
    found = use.handover
    if found is None or found.workers > 1 or found.replicas < 2:
        return
    yield from _elements_left(use, found) if found.how == FUNCTION else _rows_left(use, found)


def _rows_left(use: Use, found: Handover) -> Iterator[Finding]:
    """Reports a last batch with too few rows for all replicas."""
    node = _batching(use)
    if node is None or not found.shares or use.counts_rows or node.argument("drop_remainder") is True:
        return
    if any(repeats(below) for below in use.pipeline.downstream(node.id)):
        return  # the strategy fills the last batch with rows of the next epoch
    rows, size = use.pipeline[node.inputs[0]].cardinality, batch_size(node)
    rest = rows % size if size and rows > 0 else 0
    if not rest or not size:
        return
    if found.by_own_size:
        idle = found.replicas - math.ceil(rest / math.ceil(rest / found.replicas))
    else:
        idle = sum(rest <= sum(found.shares[:replica]) for replica in range(len(found.shares)))
    if idle:
        yield said(
            "empty-replica-batch",
            node,
            f"The last batch of an epoch has {rest} of {size} rows: {_some(idle, found)} an empty batch then, and a "
            "mean over no rows is NaN.",
            f"drop_remainder=True leaves out those {rest} of {rows:,} rows; repeat() in front of the batch fills it "
            "up; a sum divided by the global batch size (tf.nn.compute_average_loss) stands it.",
        )


def _elements_left(use: Use, found: Handover) -> Iterator[Finding]:
    """Reports a last step with elements for some replicas only."""
    output = use.pipeline.output
    elements, each = output.cardinality, found.elements_per_step
    rest = elements % each if elements > 0 else 0
    if not rest:
        return
    fixed = bool(output.spec) and "None" not in output.spec and "unknown" not in output.spec
    node = _batching(use) or output
    if fixed:
        rows = f" ({rest * found.batch:,} rows)" if found.batch else ""
        yield said(
            "replicas-run-out",
            node,
            f"An epoch has {elements:,} elements for {each} replicas, one for each in a step: the last {rest}{rows} "
            "reach none, for a step needs one for every replica where shapes are fixed.",
            "repeat() the dataset and fix the steps of an epoch, or let its elements be a multiple of the replicas.",
        )
    elif not use.counts_rows:
        yield said(
            "empty-replica-batch",
            node,
            f"An epoch has {elements:,} elements for {each} replicas, one for each in a step: in the last step "
            f"{_some(each - rest, found)} an empty batch, and a mean over no rows is NaN.",
            "repeat() the dataset and fix the steps of an epoch; a sum divided by the global batch size "
            "(tf.nn.compute_average_loss) stands it.",
        )


def _batching(use: Use) -> Node | None:
    """Returns the last operator that builds batches; None if there is none."""
    return next((node for node in reversed(use.pipeline.nodes) if batch_size(node)), None)


def _some(count: int, found: Handover) -> str:
    return f"{count} of {found.replicas} replicas {'gets' if count == 1 else 'get'}"


def _listed(sizes: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
