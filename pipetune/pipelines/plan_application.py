"""Applies a plan to live datasets: to one that is given, or to every one that the script consumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipetune.core.edits import apply_edits
from pipetune.core.plan_file import PlanFile
from pipetune.pipelines import live
from pipetune.pipelines.replay import replay


def apply_plan(dataset: Any, plan: PlanFile) -> Any:
    """Returns the dataset with the plan's edits applied; its functions and seeds are reused.

    Raises:
        PlanMismatch: the plan was made for another pipeline.
        CannotReplay: an operator cannot be rebuilt.
    """
    source = live.read(dataset)
    plan.check(source.pipeline)
    return replay(source, apply_edits(source.pipeline, plan.edits))


class Applier:
    """Replaces every dataset that a plan matches with the planned one.

    `applied` counts the matches; `nearest` is the largest pipeline that did not match, with the plan tried on it.
    """

    def __init__(self, plan: PlanFile, on_applied: Callable[[str], None]) -> None:
        self._plans = (plan, *plan.more)
        self._on_applied = on_applied
        self._served: dict[int, tuple[Any, Any]] = {}
        self.applied = 0
        self.nearest: tuple[PlanFile, live.LivePipeline] | None = None

    def __call__(self, dataset: Any) -> Any:
        """Returns the dataset to consume instead of `dataset`, or `dataset` itself if no plan matches it."""
        known = self._served.get(id(dataset))
        if known is not None and known[0] is dataset:
            return known[1]
        source = live.read(dataset)
        result = dataset
        for plan in self._plans:
            if plan.fingerprint == source.pipeline.fingerprint:  # the first: another may be of validation data like it
                result = replay(source, apply_edits(source.pipeline, plan.edits))
                self.applied += 1
                self._on_applied(source.pipeline.name)
                break
            if self.nearest is None or len(source.pipeline.nodes) > len(self.nearest[1].pipeline.nodes):
                self.nearest = (plan, source)
        self._served[id(dataset)] = (dataset, result)
        self._served[id(result)] = (result, result)
        return result
