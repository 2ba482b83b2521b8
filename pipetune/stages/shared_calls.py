"""Step 5, if one call creates several datasets: a change for all of them, compared and measured for each.

A helper that creates training and validation data alike is changed for all only if the same change preserves the
elements of each dataset and makes none slower. Datasets that nothing has consumed so far are included.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.edits import Edit, Insert, Plan, ReplaceFunction, ReplaceSource, Rewrite
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Interval, RunFailed
from pipetune.core.pipeline import Node, Pipeline
from pipetune.search.equality import allows
from pipetune.search.statistics import ratio_interval
from pipetune.source.sharing import Sharing
from pipetune.stages.study import Study
from pipetune.tf.measure.runner import TensorFlowRunner
from pipetune.tf.pipelines import live
from pipetune.tf.script import consumption
from pipetune.tf.script.siblings import siblings

_PAIRS = 5
_WINDOW_SECONDS, _WARMUP_SECONDS = 0.25, 0.1
_NOT_SLOWER = 0.95  # the lowest lower bound of the speed ratio that counts as not slower
_MOST_SIBLINGS = 6  # besides the consumed datasets: each is compared and measured
_HOLDING = ("cache", "shuffle")  # operators that need memory again for each dataset


class SharedCalls:
    """Decides which rewrites may change every dataset of the calls they edit; `notes` holds the results."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._mine = study.subject.source.pipeline
        self._others = [*study.subject.others, *_not_consumed(study)]
        self.pipelines = [other.pipeline for other, _ in self._others]
        self._sharing = Sharing(self._mine, self.pipelines)
        self._plans: dict[int, Plan] = {}  # per other dataset, the rewrites accepted so far
        self._answers: dict[str, bool] = {}
        self.notes: list[str] = []

    @property
    def accepted(self) -> frozenset[str]:
        """The keys of the rewrites that may change every dataset."""
        return frozenset(key for key, answer in self._answers.items() if answer)

    def may_change(self, rewrite: Rewrite) -> bool:
        """Whether every dataset that the rewrite would change keeps its elements and gets no slower; measured once."""
        if rewrite.key not in self._answers:
            self._answers[rewrite.key] = self._decide(rewrite)
        return self._answers[rewrite.key]

    def _decide(self, rewrite: Rewrite) -> bool:
        touched = [self._mine[name] for edit in rewrite.edits for name in _named(edit) if name in self._mine]
        others: set[int] = set()
        for node in touched:
            sharing = self._sharing.sharers(node)
            if self._sharing.datasets(node)[0] > 1 + len(sharing):
                return False  # the call has created a dataset that was not read here
            others.update(sharing)
        if not others or any(isinstance(edit, Insert) and edit.op in _HOLDING for edit in rewrite.edits):
            return False
        plans = {index: plan for index in sorted(others) if (plan := self._proven(index, rewrite)) is not None}
        if len(plans) < len(others):
            return False
        self._plans |= plans
        return True

    def _proven(self, index: int, rewrite: Rewrite) -> Plan | None:
        """Returns the plan of another dataset with this rewrite too; None if the data differ or it may get slower."""
        source, use = self._others[index]
        theirs = at_the_same_calls(rewrite, self._mine, source.pipeline)
        if theirs is None:
            return None
        before = self._plans.get(index, Plan(use.name))
        plan = before.with_rewrite(theirs)
        said = f"{rewrite.rule}: the call is shared with {use.name}, where the same change"
        runner = self._study.of(source, use).runner
        try:
            comparison = runner.compare(plan)
            if not allows(comparison, plan):
                self.notes.append(f"{said} could not be shown to leave the data as it is.")
                return None
            ratio = _measured(runner, plan, seed=self._study.settings.seed)
        except (RunFailed, PipetuneError) as problem:
            self.notes.append(f"{said} could not be run ({problem}).")
            return None
        finally:
            runner.restore()
            runner.forget()
        times = f"{ratio.median:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f}, {ratio.pairs} pairs)"
        if ratio.low < _NOT_SLOWER:
            self.notes.append(f"{said} may make its input slower: {times}.")
            return None
        self.notes.append(
            f"{said} gives the same data ({comparison.elements:,} elements compared) and makes its input {times}: it "
            "is changed for both."
        )
        return plan


def _not_consumed(study: Study) -> list[tuple[live.LivePipeline, consumption.Consumption]]:
    """Returns the live datasets of the same calls that nothing has consumed so far; none if there are too many."""
    known = [source for source, _ in study.subject.others]
    found = siblings(study.subject.source, known)
    if len(found) > _MOST_SIBLINGS:
        return []
    return [(one, consumption.Consumption(one.dataset, one.pipeline.name, "other", "")) for one in found]


def _named(edit: Edit) -> Iterator[str]:
    """Yields the operators that an edit names."""
    for name in ("node", "after"):
        if hasattr(edit, name):
            yield getattr(edit, name)
    yield from edit.first if isinstance(edit, ReplaceFunction) else ()


def at_the_same_calls(rewrite: Rewrite, mine: Pipeline, theirs: Pipeline) -> Rewrite | None:
    """Returns the rewrite for another pipeline; None unless each operator has one counterpart from the same call.

    Counterparts also have the same kind of operator and the same function.
    """
    names = {}
    for node in mine:
        same = [other for other in theirs if _alike(node, other)]
        if len(same) == 1 and sum(_alike(one, same[0]) for one in mine) == 1:
            names[node.id] = same[0].id
    edits: list[Edit] = []
    for edit in rewrite.edits:
        if isinstance(edit, Insert):
            names[edit.id] = edit.id
        if any(name not in names for name in _named(edit)):
            return None
        edits.append(_renamed(edit, names))
        if isinstance(edit, ReplaceSource):
            names[edit.gather] = f"gather@{names[edit.node]}"
    return replace(rewrite, node=names.get(rewrite.node, rewrite.node), edits=tuple(edits))


def _alike(mine: Node, theirs: Node) -> bool:
    same = mine.location is not None and mine.location == theirs.location and mine.op == theirs.op
    digests = [node.function.digest if node.function is not None else None for node in (mine, theirs)]
    return same and digests[0] == digests[1]


def _renamed(edit: Edit, names: dict[str, str]) -> Edit:
    changes: dict[str, object] = {name: names[getattr(edit, name)] for name in ("node", "after") if hasattr(edit, name)}
    if isinstance(edit, ReplaceFunction):
        changes["first"] = tuple(names[name] for name in edit.first)
    return replace(edit, **changes)  # type: ignore[arg-type]


def _measured(runner: TensorFlowRunner, plan: Plan, *, seed: int) -> Interval:
    """Measures how many times as fast the input alone is under `plan`: pairs of windows in random order."""
    draw, ratios = random.Random(seed), []
    for _ in range(_PAIRS):
        seconds = {}
        for one in draw.sample([Plan(""), plan], 2):
            window = runner.input_window(one, seconds=_WINDOW_SECONDS, warmup_seconds=_WARMUP_SECONDS)
            seconds[one.key] = window.wall_seconds / window.examples
        ratios.append(seconds[""] / seconds[plan.key])
    return ratio_interval(ratios)
