"""Checks for state that sharding ignores: orders and random draws per worker, counters, Python on a TPU host.

Source: the "Distributed Input" guide of TensorFlow, "Caveats": stateful transformations are ignored by sharding, and
`from_generator` does not work under TPUStrategy. That each worker has its own order was observed with TensorFlow 2.21.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding
from pipetune.mistakes.use import Use, runs_python, said


def apart(use: Use) -> Node | None:
    """Returns the unseeded shuffle that makes each worker shard an order of its own; None if all have one order.

    With the policy DATA, each of N workers reads everything and keeps every Nth element, in its own reading order.
    """
    if use.as_written is None or use.as_written.policy != "DATA":
        return None
    return next((node for node in use.pipeline if node.op == "shuffle" and node.argument("seed") is None), None)


def shuffled_apart(use: Use) -> Iterator[Finding]:
    """Reports workers that each shard an order of their own: some elements reach several of them, others none."""
    workers, as_written = use.workers, use.as_written
    if workers is None or workers.count < 2 or as_written is None or as_written.policy != "DATA":
        return
    node, found = apart(use), as_written.coverage
    divided = f"and TensorFlow gives each its part of that (auto_shard_policy {as_written.policy})"
    lost = "some elements come to several of them, and others to none"
    if node is not None and (found is None or not found.complete):
        if found is not None:
            lost = (
                f"in the epoch that was counted {found.never:,} of {found.elements:,} elements come to none of them, "
                f"and {found.repeated:,} to several"
            )
        yield said(
            "shuffled-apart",
            node,
            f"Each of {workers.count} workers shuffles in an order of its own, for the shuffle has no seed, {divided}: "
            f"{lost}.",
            "Give the shuffle a seed, the same on every worker, or shard by the worker's index in front of the shuffle "
            "and set auto_shard_policy to OFF.",
        )
    loose = next((one for one in use.pipeline if one.argument("deterministic") is False), None)
    if loose is not None and node is None:  # a count in one process does not show what overtakes what in several
        yield said(
            "shuffled-apart",
            loose,
            f"{loose.title} lets elements overtake one another (deterministic=False), others on each of "
            f"{workers.count} workers, {divided}: where that happens {lost}.",
            "Leave deterministic at True where a strategy divides the data by DATA, or shard by the worker's index in "
            "front of it and set auto_shard_policy to OFF.",
        )


def undivided_state(use: Use) -> Iterator[Finding]:
    """Reports functions that draw the same random numbers on every worker, or whose state is separate on each."""
    workers = use.workers
    if workers is None or workers.count < 2 or not workers.distributed or use.role != "training":
        return
    for node in use.pipeline:
        function = node.function
        if function is None:
            continue
        if function.random and function.seeded and not function.random_python:
            yield said(
                "same-draws",
                node,
                f"{node.title} draws by a seed, which sharding ignores: each of {workers.count} workers draws the same "
                "numbers for its own elements.",
                "Let the seed follow the worker's index, or draw by the element (tf.random.stateless_*, its number).",
            )
        elif function.writes_variables or function.mutable_tables:
            yield said(
                "state-of-each-worker",
                node,
                f"{node.title} keeps state (a variable or a table that it changes), which sharding ignores: each of "
                f"{workers.count} workers has its own, and counts its own elements.",
                "Compute it from the element, or before the data is divided.",
            )


def python_for_a_tpu(use: Use) -> Iterator[Finding]:
    """Reports Python code in the input of a strategy whose host cannot call it."""
    if use.handover is None or not use.handover.strategy.startswith("TPUStrategy"):
        return
    for node in filter(runs_python, use.pipeline):
        yield said(
            "python-for-a-tpu",
            node,
            f"{node.title} runs Python, and under {use.handover.strategy} the host of the TPU runs the input: it "
            "cannot call the script.",
            "Say it in TensorFlow operations, or write the results to files and read those.",
        )
