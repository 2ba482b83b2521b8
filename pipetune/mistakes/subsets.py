"""Checks for subsets taken after a shuffle, which contain other examples in each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding
from pipetune.mistakes.use import Use, nodes_of, repeats, said, shuffles_anew

_CUTS = ("take", "skip")
_FIXED = "or shuffle with reshuffle_each_iteration=False."


def leaks(training: Use, others: Sequence[Use]) -> Iterator[Finding]:
    """Reports training and validation data that are split by take and skip after one shuffle that reshuffles.

    The complement is what the script validates on, or what it has built with the same count from the same dataset:
    it may be read only after the first epoch, which pipetune does not observe.
    """
    for shuffle in filter(shuffles_anew, training.pipeline):
        below = training.pipeline.downstream(shuffle.id)
        cuts = [cut for cut in below if cut.op in _CUTS and _live(training, shuffle, cut)]
        if not cuts:
            continue
        halves = any(cut.id in training.halves for cut in cuts)
        if halves or any(_cut_from(other, training, shuffle) for other in others if other.evaluates):
            yield said(
                "validation-leak",
                shuffle,
                "The data is shuffled anew each epoch and then split by take/skip: validation examples are trained on.",
                f"Split before the shuffle, {_FIXED}",
            )


def _live(use: Use, shuffle: Node, cut: Node) -> bool:
    """Whether the order of each epoch reaches the cut: no cache in between freezes the first one."""
    return not any(node.op == "cache" for node in use.between(shuffle.id, cut.id))


def _cut_from(other: Use, training: Use, shuffle: Node) -> bool:
    """Whether the other pipeline takes its subset after the same shuffle."""
    same = next((node for node, one in other.objects.items() if one == training.objects.get(shuffle.id)), None)
    if same is None or shuffle.id not in training.objects or same not in other.pipeline:
        return False
    below = other.pipeline.downstream(same)
    return any(cut.op in _CUTS and _live(other, other.pipeline[same], cut) for cut in below)


def changing(training: Use) -> Iterator[Finding]:
    """Reports `shuffle(10_000).take(1_000)` without its complement: a subset that is another one in each epoch."""
    if training.evaluates or training.epochs == 1:
        return
    pipeline = training.pipeline
    for take in nodes_of(training, "take"):
        shuffle = next(filter(shuffles_anew, reversed(pipeline.upstream(take.id))), None)
        has = pipeline[take.inputs[0]].cardinality
        if shuffle is None or take.id in training.halves or not 0 < take.cardinality < has:
            continue
        between = training.between(shuffle.id, take.id)
        kept = any(node.op == "cache" for node in (*between, *pipeline.downstream(take.id)))
        if kept or any(repeats(node) or facts(node.op).count is not Count.ONE_TO_ONE for node in between):
            continue
        yield said(
            "subset-changes",
            take,
            f"take({take.cardinality}) stands behind a shuffle that draws anew each epoch: every epoch trains on "
            f"another {take.cardinality:,} of {has:,} elements.",
            f"For the same elements in every epoch take before the shuffle, {_FIXED}",
        )
