"""Step 5, if one call creates several datasets: a change for all of them, compared and measured for each.

A helper that creates training and validation data alike is changed for all only if the same change preserves the
elements of each dataset and makes none slower. Datasets that nothing has consumed so far are included.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace

from pipetune.capture import consumption
from pipetune.capture.consumption import FIRST_ELEMENTS
from pipetune.core.edits import Edit, Insert, Plan, ReplaceSource, Rewrite, Safety, named_operators, renamed
from pipetune.core.errors import PipetuneError
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.results import Interval, RunFailed
from pipetune.core.time_plan import OTHER_DATASETS_SECONDS
from pipetune.measure.runner import TensorFlowRunner
from pipetune.measure.shuffles import cut_buffers
from pipetune.pipelines import live
from pipetune.pipelines.siblings import siblings
from pipetune.rewrites.epoch_constancy import stops_early
from pipetune.rewrites.rule import RuleContext
from pipetune.search.equality import allows
from pipetune.search.statistics import ratio_interval
from pipetune.source.shared_calls import SharedCalls
from pipetune.stages.study import Study

_FEWEST_PAIRS, _PAIRS = 3, 5  # of windows without and with the plan, by judgement: fewer widen the interval
_WINDOW_SECONDS, _WARMUP_SECONDS = 0.25, 0.1
_NOT_SLOWER = 0.95  # the lowest lower bound of the speed ratio that counts as not slower
_MOST_SIBLINGS = 6  # besides the consumed datasets: each is compared and measured
_MEMORY_OPERATORS = ("cache", "shuffle")


class SharedCallTrials:
    """Decides which rewrites may change every dataset of the calls they edit; `notes` holds the results."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._pipeline = study.subject.source.pipeline
        self._others = [*study.subject.other_datasets, *_unconsumed_datasets(study)]
        self.pipelines = [other.pipeline for other, _ in self._others]
        self._sharing = SharedCalls(self._pipeline, self.pipelines)
        self._plans: dict[int, Plan] = {}  # per other dataset, the rewrites accepted so far
        self._decisions: dict[str, bool] = {}
        self._ends = time.perf_counter() + study.time_plan.of_sixty(OTHER_DATASETS_SECONDS)
        self.notes: list[str] = []

    @property
    def accepted(self) -> frozenset[str]:
        """The keys of the rewrites that may change every dataset."""
        return frozenset(key for key, answer in self._decisions.items() if answer)

    def may_change(self, rewrite: Rewrite) -> bool:
        """Whether every dataset that the rewrite would change keeps its elements and gets no slower; measured once."""
        if rewrite.key not in self._decisions:
            self._decisions[rewrite.key] = self._decide(rewrite)
        return self._decisions[rewrite.key]

    def _decide(self, rewrite: Rewrite) -> bool:
        touched = [self._pipeline[name] for name in rewrite.named if name in self._pipeline]
        others: set[int] = set()
        for node in touched:
            sharing = self._sharing.sharing_pipelines(node)
            if self._sharing.count_datasets(node)[0] > 1 + len(sharing):
                return False  # the call has created a dataset that was not read here
            others.update(sharing)
        if rewrite.safety <= Safety.STATISTICAL:
            readers = {index for index in others if self._reads_what_training_reads(index, rewrite, touched)}
            if others and others == readers:
                return True  # they get the same elements, from the same cache
            others -= readers
        if not others or _needs_memory(rewrite):
            return False
        plans: dict[int, Plan] = {}
        noted = len(self.notes)
        for index in sorted(others):
            plan = self._try_on_other(index, rewrite)
            if plan is None:
                del self.notes[noted : noted + len(plans)]  # that the others are changed, too
                return False
            plans[index] = plan
        self._plans |= plans
        return True

    def _reads_what_training_reads(self, index: int, rewrite: Rewrite, touched: Sequence[Node]) -> bool:
        """Whether another dataset reads the very datasets that operators make, not others like them, and may change.

        What another iteration of the training loop has made of them may, and a preview of some elements. If operators
        are only inserted, and all elements stay as they are, so may longer previews, `adapt`, and another `shard` that
        reads to their end. What is made of all that training reads gets the same elements.
        """
        source, use = self._others[index]
        read = self._study.subject.source.dataset
        derived = any(dataset is read for dataset in source.datasets.values())
        if derived and rewrite.safety is Safety.EXACT and not _needs_memory(rewrite):
            return True
        places, others = ([node.location for node in one] for one in (self._pipeline, source.pipeline))
        may_change = places == others or (use.role == "preview" and use.elements < FIRST_ELEMENTS)
        if rewrite.safety is Safety.EXACT and all(isinstance(edit, Insert) for edit in rewrite.edits):
            alike = use.role in ("preview", "adapt")
            may_change = may_change or alike or _reads_all(source.pipeline, use, touched)
        return may_change and all(node.shared == 1 for node in touched)

    def _try_on_other(self, index: int, rewrite: Rewrite) -> Plan | None:
        """Returns the plan of another dataset with this rewrite too; None if the data differ or it may get slower."""
        source, use = self._others[index]
        translated = translate_rewrite(rewrite, self._pipeline, source.pipeline)
        if translated is None:
            return None
        before = self._plans.get(index, Plan(use.name))
        plan = before.with_rewrite(translated)
        prefix = f"{rewrite.rule}: the call is shared with {use.name}, where the same change"
        if time.perf_counter() > self._ends:
            self.notes.append(f"{prefix} was not tried: its time was over.")
            return None
        runner = self._study.input_runner(source)
        try:
            with runner.measuring():
                runner.cut = cut_buffers(source)
            comparison = runner.compare(plan)
            if not allows(comparison, plan):
                self.notes.append(f"{prefix} could not be shown to preserve the data.")
                return None
            ratio = _speedup(runner, plan, seed=self._study.settings.seed)
        except (RunFailed, PipetuneError) as problem:
            self.notes.append(f"{prefix} could not be run ({problem}).")
            return None
        finally:
            runner.close()
        times = f"{ratio.median:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f}, {ratio.pairs} pairs)"
        if ratio.low < _NOT_SLOWER:
            self.notes.append(f"{prefix} may make its input slower: {times}.")
            return None
        self.notes.append(
            f"{prefix} yields the same data ({comparison.elements:,} elements compared) and makes its input "
            f"{times}: both are changed."
        )
        return plan


def _needs_memory(rewrite: Rewrite) -> bool:
    """Whether a rewrite inserts an operator that needs memory again for each dataset."""
    return any(isinstance(edit, Insert) and edit.op in _MEMORY_OPERATORS for edit in rewrite.edits)


def _reads_all(pipeline: Pipeline, use: consumption.Consumption, touched: Sequence[Node]) -> bool:
    """Whether a dataset reads all that these operators of another one yield, in each pass over it."""
    places, context = [node.location for node in touched], RuleContext(pipeline, cores=1)
    here = [node for node in pipeline if node.location in places]
    stops = (stops_early(context, node, reader) for node in here for reader in pipeline.downstream(node.id))
    return use.steps_per_epoch is None and not any(stops)


def _unconsumed_datasets(study: Study) -> list[tuple[live.LivePipeline, consumption.Consumption]]:
    """Returns the live datasets of the same calls that nothing has consumed so far; none if there are too many."""
    known = [source for source, _ in study.subject.other_datasets]
    found = siblings(study.subject.source, known)
    if len(found) > _MOST_SIBLINGS:
        return []
    return [(one, consumption.Consumption(one.dataset, one.pipeline.name, "other", "")) for one in found]


def translate_rewrite(rewrite: Rewrite, mine: Pipeline, theirs: Pipeline) -> Rewrite | None:
    """Returns the rewrite for another pipeline; None unless each operator has one counterpart from the same call.

    Counterparts also have the same kind of operator and the same function.
    """
    names = {}
    for node in mine:
        same = [other for other in theirs if _are_counterparts(node, other)]
        if len(same) == 1 and sum(_are_counterparts(one, same[0]) for one in mine) == 1:
            names[node.id] = same[0].id
    edits: list[Edit] = []
    for edit in rewrite.edits:
        if isinstance(edit, Insert):
            names[edit.id] = edit.id
        if any(name not in names for name in named_operators(edit)):
            return None
        edits.append(renamed(edit, names))
        if isinstance(edit, ReplaceSource):
            names[edit.gather] = f"gather@{names[edit.node]}"
    return replace(rewrite, node=names.get(rewrite.node, rewrite.node), edits=tuple(edits))


def _are_counterparts(mine: Node, other: Node) -> bool:
    same = mine.location is not None and mine.location == other.location and mine.op == other.op
    digests = [node.function.digest if node.function is not None else None for node in (mine, other)]
    return same and digests[0] == digests[1]


def _speedup(runner: TensorFlowRunner, plan: Plan, *, seed: int) -> Interval:
    """Measures how many times as fast the input alone is under `plan`: pairs of windows in random order.

    More than the fewest only while it is open whether it is slower.
    """
    draw = random.Random(seed)
    ratios: list[float] = []
    while len(ratios) < _FEWEST_PAIRS or (len(ratios) < _PAIRS and ratio_interval(ratios).low < _NOT_SLOWER):
        seconds = {}
        for one in draw.sample([Plan(""), plan], 2):
            window = runner.input_window(one, seconds=_WINDOW_SECONDS, warmup_seconds=_WARMUP_SECONDS)
            seconds[one.key] = window.wall_seconds / window.examples
        ratios.append(seconds[""] / seconds[plan.key])
    return ratio_interval(ratios)
