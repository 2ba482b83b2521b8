"""Cost of the parts of functions that can be cut in two: whole and cut, alternately on the same elements."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from pipetune.core.functions import Cut, CutKind
from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import CutCosts
from pipetune.tf import private
from pipetune.tf.measure import failures
from pipetune.tf.measure.in_turns import cpu_seconds_in_turns
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.cutting import Cuttable
from pipetune.tf.pipelines.on_batches import batch_below

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

_ELEMENTS = 64  # kept in memory and reused
_BATCHES = 2  # batches of elements kept, at least


def measure_cut_costs(source: live.LivePipeline, told: Pipeline) -> Mapping[str, Mapping[str, CutCosts]]:
    """Returns the costs of every possible cut, by node id and kind of cut; cuts that failed are left out.

    Args:
        source: the live pipeline.
        told: the pipeline of `source`, annotated by `cuts.with_answers`.
    """
    found: dict[str, dict[str, CutCosts]] = {}
    for node in told:
        for cut in (node.function.cuts or ()) if node.function is not None else ():
            if cut.why_not:
                continue
            try:
                with failures.told():
                    costs = _costs(source, told, node, cut)
            except RunFailed:
                continue  # a trial that runs it will report the reason
            if costs is not None:
                found.setdefault(node.id, {})[cut.kind.value] = costs
    return found


def _costs(source: live.LivePipeline, told: Pipeline, node: Node, cut: Cut) -> CutCosts | None:
    above, traced = source.datasets[node.inputs[0]], source.datasets[node.id]._map_func
    whole = Cuttable(traced)
    head = whole.head(cut.position)
    if cut.kind is CutKind.BEFORE_DRAWS:
        both = (traced, head)
        rounds, _ = cpu_seconds_in_turns(above, _ELEMENTS, lambda plain: [_mapped(plain, one) for one in both])
        share = _head_share(rounds)
        return None if share is None else CutCosts(share)
    batch = batch_below(told, node)
    size = batch.argument("batch_size") if batch is not None else None
    if batch is None or not isinstance(size, int):
        return None
    drops = bool(batch.argument("drop_remainder"))
    tail, _ = whole.tail_on_batches(cut.position, size if drops else None)

    def forms(plain: Any) -> list[Any]:
        as_now, first = _mapped(plain, traced), _mapped(plain, head)
        batches = first.batch(size, drop_remainder=drops)
        return [as_now, first, as_now.batch(size, drop_remainder=drops), batches, _mapped(batches, tail)]

    rounds, count = cpu_seconds_in_turns(above, max(_ELEMENTS, _BATCHES * size), forms)
    share = _head_share([one[:3] for one in rounds])
    if share is None or not count:
        return None
    return CutCosts(
        share,
        on_batch_seconds=max(0.0, statistics.median((one[5] - one[4]) * size / count for one in rounds)),
        saved_seconds=statistics.median((one[3] - one[5]) / count for one in rounds),
    )


def _mapped(dataset: Any, traced: Any) -> Any:
    with private.reusing_traced_functions():
        return dataset.map(traced, synchronous=True)


def _head_share(rounds: list[tuple[float, ...]]) -> float | None:
    """Median share of CPU time spent in the first part; None if the function takes too little time to measure."""
    shares = [(part - nothing) / (whole - nothing) for nothing, whole, part in rounds if whole > nothing]
    return min(1.0, max(0.0, statistics.median(shares))) if shares else None
