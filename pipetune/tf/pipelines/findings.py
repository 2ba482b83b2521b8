"""Bugs in the script's pipelines as they are written, found whatever pipetune changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.core.profile import Finding
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.script.consumption import Consumption

_ONLY_READ = ("validation", "evaluation", "prediction")
"""Roles in which nothing is learnt: the same in every order."""


def find(
    training: LivePipeline, use: Consumption, others: Sequence[tuple[LivePipeline, Consumption]]
) -> list[Finding]:
    """Everything found in the training pipeline and the other datasets of the script, each once."""
    found: list[Finding] = []
    found += _caches(training.pipeline)
    for other, its_use in others:
        found += _caches(other.pipeline, order_matters=its_use.role not in _ONLY_READ)
    found += _leaks(training, others)
    found += _runs_out(training.pipeline, use)
    found += _partial_caches(training.pipeline, use)
    return list(dict.fromkeys(found))


def _finding(code: str, node: Node, message: str, hint: str) -> Finding:
    place = node.location
    return Finding(
        code=code,
        message=message,
        hint=hint,
        file=place.file if place else None,
        line=place.line if place else None,
    )


def _caches(pipeline: Pipeline, *, order_matters: bool = True) -> Iterator[Finding]:
    for cache in pipeline:
        if cache.op != "cache":
            continue
        above = pipeline.upstream(cache.id)
        augmenting = next((node for node in above if node.function and node.function.random), None)
        if augmenting is not None:
            yield _finding(
                "cached-augmentation",
                cache,
                "cache() stands behind a random function: every epoch repeats the draws of the first.",
                "Put the cache before the random function.",
            )
        if order_matters and any(_reshuffles(node) for node in above) and not _ordered_anew(pipeline, cache):
            yield _finding(
                "frozen-order",
                cache,
                "cache() stands behind a shuffle: every epoch has the order of the first.",
                "Put the cache before the shuffle (list_files shuffles too, unless told shuffle=False).",
            )


def _reshuffles(node: Node) -> bool:
    return node.op == "shuffle" and node.argument("reshuffle_each_iteration") is not False


def _ordered_anew(pipeline: Pipeline, cache: Node) -> bool:
    """Whether a shuffle below gives single examples another order; batches that are cached stay as they are."""
    if any(node.op in ("batch", "padded_batch") for node in pipeline.upstream(cache.id)):
        return False
    return any(_reshuffles(node) for node in pipeline.downstream(cache.id))


def _leaks(training: LivePipeline, others: Sequence[tuple[LivePipeline, Consumption]]) -> Iterator[Finding]:
    for other, use in others:
        if use.role not in _ONLY_READ:
            continue
        shared = {id(dataset) for dataset in other.datasets.values()}
        for node in training.pipeline:
            if node.op != "shuffle" or node.argument("reshuffle_each_iteration") is False:
                continue
            if id(training.datasets[node.id]) not in shared:
                continue
            split = [below for below in training.pipeline.downstream(node.id) if below.op in ("take", "skip")]
            theirs = [below for below in other.pipeline if below.op in ("take", "skip")]
            if split and theirs:
                yield _finding(
                    "validation-leak",
                    node,
                    "The data is shuffled anew each epoch and then split by take/skip: "
                    "validation examples are trained on.",
                    "Split before the shuffle, or shuffle with reshuffle_each_iteration=False.",
                )


def _runs_out(pipeline: Pipeline, use: Consumption) -> Iterator[Finding]:
    steps, epochs, has = use.steps_per_epoch, use.epochs or 1, pipeline.output.cardinality
    if steps and has >= 0 and steps * epochs > has:
        yield _finding(
            "runs-out-of-data",
            pipeline.output,
            f"Training asks for {steps:,} steps x {epochs:,} epochs = {steps * epochs:,} batches; "
            f"the dataset has {has:,}.",
            "Add .repeat(), or leave steps_per_epoch out.",
        )


def _partial_caches(pipeline: Pipeline, use: Consumption) -> Iterator[Finding]:
    for cache in pipeline:
        if cache.op != "cache":
            continue
        below = pipeline.downstream(cache.id)
        cut = next((node for node in below if node.op == "take"), None)
        repeated = any(node.op == "repeat" for node in below)
        short = (
            use.steps_per_epoch is not None
            and not repeated
            and pipeline.output.cardinality not in (INFINITE,)
            and use.steps_per_epoch < pipeline.output.cardinality
        )
        if (cut is not None and cut.cardinality != pipeline[cut.inputs[0]].cardinality) or short:
            yield _finding(
                "partial-cache",
                cache,
                "The consumer stops before the cache is full: what was cached is thrown away each time.",
                "Put take() before cache(), or read the whole dataset once.",
            )
