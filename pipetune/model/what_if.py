"""What-if analysis: the rate bounds of input and training in other scenarios, and the operator that then binds."""

from __future__ import annotations

from collections.abc import Iterable

from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Profile
from pipetune.core.what_if import Scenario
from pipetune.model.throughput import Prediction, predict
from pipetune.model.trust import why_not

CORES = (2, 4)
"""Multiples of the available cores."""

FASTER_MODEL = (2, 10)
"""Speedups of the training step."""

FASTER_STORAGE = 4
"""Multiple of the storage bandwidth."""

REPLICAS = (2, 4, 8)
"""Numbers of replicas on this host; each takes its own batch per step."""


def what_if(
    pipeline: Pipeline,
    profile: Profile,
    cores: float,
    *,
    step_seconds: float | None = None,
    storage_bytes_per_second: float | None = None,
    with_memory: Iterable[Pipeline] = (),
) -> tuple[Scenario, ...]:
    """Returns the scenarios, the current state first.

    At best training overlaps with its input, so the joint bound is the lower of the two rates.

    Args:
        pipeline: the original or the tuned pipeline.
        profile: its measured costs.
        cores: cores available to the process.
        step_seconds: step time of the model alone; None if not measured, then only the input is bounded.
        storage_bytes_per_second: storage bandwidth; None if unknown, then faster storage is left out.
        with_memory: the pipelines that twice the memory would allow.
    """
    reason = why_not(pipeline, profile)
    if reason:
        return (Scenario("as it is", why=reason),)

    def rated(name: str, factor: float = 1, storage: float = 1, model: float = 1, replicas: int = 1) -> Scenario:
        bandwidth = None if storage_bytes_per_second is None else storage_bytes_per_second * storage
        found = predict(pipeline, profile, cores * factor, storage_bytes_per_second=bandwidth)
        return _scenario(name, found, step_seconds, model=model, replicas=replicas)

    table = [rated("as it is")]
    table += [rated(f"{factor} times the cores", factor=factor) for factor in CORES]
    if step_seconds is not None:
        table += [rated(f"a training step {factor} times as fast", model=factor) for factor in FASTER_MODEL]
    if storage_bytes_per_second is not None:
        table.append(rated(f"storage {FASTER_STORAGE} times as fast", storage=FASTER_STORAGE))
    table.append(_with_memory(table[0], with_memory, profile, cores, step_seconds, storage_bytes_per_second))
    table += [rated(f"{count} replicas on this host", replicas=count) for count in REPLICAS]
    return tuple(table)


def _with_memory(
    now: Scenario,
    pipelines: Iterable[Pipeline],
    profile: Profile,
    cores: float,
    step_seconds: float | None,
    storage: float | None,
) -> Scenario:
    """The scenario with the fastest of `pipelines`; the current rates if none is faster."""
    name = "twice the memory"
    trusted = [pipeline for pipeline in pipelines if not why_not(pipeline, profile)]
    found = [predict(pipeline, profile, cores, storage_bytes_per_second=storage) for pipeline in trusted]
    best = max(found, key=lambda one: one.rate, default=None)
    if best is None or now.input_rate is None or best.rate <= now.input_rate:
        return Scenario(name, now.input_rate, now.training_rate, now.binds, now.node, now.bound)
    return _scenario(name, best, step_seconds)


def _scenario(
    name: str, found: Prediction, step_seconds: float | None, *, model: float = 1, replicas: int = 1
) -> Scenario:
    training, binds = None, "input"
    if step_seconds:
        shared, alone = found.rate / replicas, model / step_seconds
        training, binds = min(shared, alone), "input" if shared < alone else "model"
    finite = found.rate if found.rate < float("inf") else None
    return Scenario(name, finite, training, binds, found.bottleneck, found.bound.value)
