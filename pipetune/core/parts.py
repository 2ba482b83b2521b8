"""Costs of the two parts of a split function, derived from the measured cost of the whole function."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.functions import FunctionFacts, FunctionForm
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import CutCosts, OperatorProfile, Profile


def costs_of_cut(profile: Profile | None, node_id: str, kind: str) -> CutCosts | None:
    """Returns the measured costs of an operator's function split in this way; None if they were not measured."""
    measured = profile.operator(node_id) if profile is not None else None
    return measured.cuts.get(kind) if measured is not None and measured.cuts else None


def price_of_part(node_id: str, part: FunctionFacts, profile: Profile) -> OperatorProfile | None:
    """Returns the cost of an operator that calls a part of a function; None if it was not measured."""
    whole = profile.operator(part.part_of)
    if whole is not None and part.form in (FunctionForm.ON_BATCHES, FunctionForm.VECTORIZED):
        # Both parts were timed together on a batch: all of the time is attributed to the second.
        seconds = whole.on_batch_seconds if node_id == part.part_of else 0.0
        return OperatorProfile(node_id, whole.stage, on_batch_seconds=seconds)
    costs = costs_of_cut(profile, part.part_of, part.cut.kind) if part.cut is not None else None
    if whole is None or costs is None:
        return None
    if part.form is FunctionForm.TAIL_ON_BATCHES:
        return OperatorProfile(node_id, whole.stage, on_batch_seconds=costs.on_batch_seconds)
    is_head = part.form is FunctionForm.HEAD
    share = costs.head_share if is_head else max(0.0, 1 - costs.head_share)
    return OperatorProfile(
        node_id,
        whole.stage,
        cpu_seconds=_times(share, whole.cpu_seconds),
        wall_seconds=_times(share, whole.wall_seconds),
        waiting_seconds=_times(share, whole.waiting_seconds),
        visits=whole.visits,
        ratio=whole.ratio,
        bytes_out=(part.cut.element_bytes if part.cut is not None else None) if is_head else whole.bytes_out,
        cost_source=whole.cost_source,
    )


def with_parts(profile: Profile, pipeline: Pipeline) -> Profile:
    """Returns the profile of a pipeline with split functions, with the parts as separate operators."""
    parts = {
        node.id: price_of_part(node.id, node.function, profile)
        for node in pipeline
        if node.function is not None and node.function.part_of
    }
    others = (one for one in profile.operators if one.node not in parts)
    return replace(profile, operators=(*others, *(one for one in parts.values() if one is not None)))


def _times(share: float, seconds: float | None) -> float | None:
    return None if seconds is None else share * seconds
