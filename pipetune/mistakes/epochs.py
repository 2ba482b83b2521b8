"""Checks of epoch boundaries: data that runs out, epochs that mix, examples that count twice."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import INFINITE, Node
from pipetune.core.profile import Finding
from pipetune.mistakes.use import Use, batch_size, nodes_of, repeats, said

_BLENDS = 0.01  # minimum share of an epoch in the shuffle buffer: less is negligible


def runs_out(use: Use) -> Iterator[Finding]:
    """Reports requests for more steps than the data has, and validation on infinite data without a number of steps.

    Keras 3 ends the epoch early when the data is exhausted and restarts the data in the next; tf_keras stops training.
    """
    steps, has = use.steps, use.pipeline.output.cardinality
    if use.role == "validation" and steps is None and has == INFINITE:
        yield said(
            "endless-validation",
            use.pipeline.output,
            "The validation data repeats without end and fit is given no validation_steps: there is no end to it.",
            "Leave repeat() out for validation, or give validation_steps.",
        )
    if not steps or has < 0:
        return
    if use.evaluates:
        if steps > has:
            message = f"The {use.role} asks for {steps:,} batches; the dataset has {has:,}."
            yield said("runs-out-of-data", use.pipeline.output, message, "Leave the number of steps out.")
        return
    epochs = use.epochs or 1
    if steps * epochs <= has or steps == has or (use.starts_again and has % steps == 0):
        return
    if not use.starts_again:
        then = "training stops there" if has >= steps else "training stops in its first epoch"
    elif steps > has:
        then = f"every epoch ends after {has:,} steps"
    else:
        then = f"epoch {has // steps + 1:,} ends after {has % steps:,} steps, and the data begins anew"
    yield said(
        "runs-out-of-data",
        use.pipeline.output,
        f"Training asks for {steps:,} steps x {epochs:,} epochs = {steps * epochs:,} batches; "
        f"the dataset has {has:,}: {then}.",
        "Add .repeat(), or leave steps_per_epoch out.",
    )


def blended(use: Use) -> Iterator[Finding]:
    """Reports `repeat().shuffle()` in training: the buffer holds elements of two epochs."""
    for shuffle in nodes_of(use, "shuffle"):
        repeat = next((node for node in reversed(use.pipeline.upstream(shuffle.id)) if repeats(node)), None)
        buffer = shuffle.argument("buffer_size")
        if repeat is None or use.evaluates or not isinstance(buffer, int) or buffer < 2:
            continue
        between, epoch = use.between(repeat.id, shuffle.id), use.pipeline[repeat.inputs[0]].cardinality
        if any(node.op == "cache" for node in between) or not _ends(use, repeat):
            continue
        numbers = ""
        if epoch > 0 and all(facts(node.op).count is Count.ONE_TO_ONE for node in between):
            if buffer < _BLENDS * epoch:
                continue
            numbers = f" Of {epoch:,} elements up to {min(buffer, epoch):,} are still to come when the next begins."
        yield said(
            "epochs-blend",
            shuffle,
            f"shuffle({buffer}) stands behind repeat(): epochs blend, an element can come a second time before another "
            f"has come once.{numbers}",
            "Put repeat() behind shuffle(), unless waiting for a full buffer at each epoch is worse.",
        )


def _ends(use: Use, repeat: Node) -> bool:
    """Whether the repeated data is finite and has more than one element: an endless generator is never repeated."""
    has = use.pipeline[repeat.inputs[0]].cardinality
    if has < 0:
        above = use.pipeline.upstream(repeat.id)
        return has != INFINITE and not any(node.op in ("from_generator", "opaque") for node in above)
    return has > 1


def uneven(use: Use) -> Iterator[Finding]:
    """Reports steps over repeated data that do not end where the data ends."""
    for repeat in filter(repeats, use.pipeline):
        has = use.pipeline[repeat.inputs[0]].cardinality
        if use.steps is None or has < 1:
            continue
        below = next((node for node in use.pipeline.downstream(repeat.id) if batch_size(node) is not None), None)
        if below is None:
            yield from _read_again(use, repeat, read=use.steps, has=has, what="batches", keep=_one_to_one(use, repeat))
            continue
        size = batch_size(below) or 1
        keep = all(facts(node.op).count is Count.ONE_TO_ONE for node in use.between(repeat.id, below.id))
        keep = keep and _one_to_one(use, below)
        yield from _read_again(use, repeat, read=use.steps * size, has=has, what="examples", keep=keep)
        drops = below.argument("drop_remainder") is True  # a reason to repeat before the batch: nothing is dropped
        if use.role == "training" and keep and not drops and has % size and use.steps * size % has:
            yield said(
                "repeat-before-batch",
                repeat,
                f"repeat() stands before batch({size}): {has:,} elements are no whole number of batches, so a batch "
                f"mixes the end of one epoch with the start of the next, and {use.steps:,} steps do not end where the "
                "data ends.",
                "Put repeat() behind batch().",
            )


def _one_to_one(use: Use, node: Node) -> bool:
    return all(facts(below.op).count is Count.ONE_TO_ONE for below in use.pipeline.downstream(node.id))


def _read_again(use: Use, repeat: Node, *, read: int, has: int, what: str, keep: bool) -> Iterator[Finding]:
    """Reports examples that an evaluation counts more than once, because it continues into the next pass."""
    count = repeat.argument("count")
    there = read if count in (None, INFINITE) or not isinstance(count, int) else min(read, count * has)
    if use.evaluates and keep and there > has:
        again = f"{there - has:,} of them count twice" if there <= 2 * has else "they count more than once"
        yield said(
            "uneven-evaluation",
            repeat,
            f"The {use.role} reads {there:,} {what} of data that has {has:,}: {again}.",
            "Leave repeat() and the number of steps out: each example then counts once.",
        )
