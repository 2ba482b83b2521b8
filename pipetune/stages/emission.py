"""Step 5: the plan as a patch to the user's source; if one call creates several datasets, a change for all of them,
compared and measured for each.

A helper that creates training and validation data alike is changed for all only if the same change preserves the
elements of each dataset and makes none slower. Datasets that nothing has consumed so far are included.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from pipetune.capture import consumption
from pipetune.core.distribution import VALIDATION_DATA
from pipetune.core.edits import (
    Edit,
    Insert,
    Plan,
    ReplaceSource,
    Rewrite,
    Safety,
    apply_edits,
    named_operators,
    renamed,
)
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Interval, RunFailed
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.session import DatasetResult, PatchResult, Session
from pipetune.core.time_plan import OTHER_DATASETS_SECONDS
from pipetune.equality import compare
from pipetune.measure import machine
from pipetune.measure.caches import cut_buffers, with_buffers
from pipetune.measure.runner import TensorFlowRunner
from pipetune.pipelines import live
from pipetune.pipelines.live import siblings
from pipetune.pipelines.replay import replay
from pipetune.rewrites.epoch_constancy import stops_early
from pipetune.rewrites.rule import RuleContext
from pipetune.search.runner import allows
from pipetune.search.statistics import ratio_interval
from pipetune.source.emit import Emission, emit, emit_more
from pipetune.source.function_variants import switch_name
from pipetune.source.own_place import validates_at
from pipetune.source.patch_application import digest_of
from pipetune.source.shared_calls import SharedCalls
from pipetune.source.unified_diffs import patch_header, unified_diff
from pipetune.stages.study import Study, may_change_along, only_caches, only_inserts, reads_along
from pipetune.timing.windows import host_part

_PART_DIFFERS = "Without the other rewrites of the plan, it could not be shown to yield the same data."
_DIGESTS = 32  # elements whose digests the patched source must reproduce
_DIGEST_SECONDS = 1.0  # by judgement: less leaves few digests of slow input to compare, more delays the patch, twice


def make_patch(study: Study, plan: Plan) -> PatchResult:
    """Returns the plan as a diff of the user's files, and stores it in the session as its patch."""
    compared = study.journal.session.plan
    patch = diff_of(study, plan, compared=compared is not None and compared.key == plan.key)
    study.journal.update(patch=patch)
    return patch


def diff_of(
    study: Study, plan: Plan, *, compared: bool = True, will_be_run: bool = True, tries_others: bool = True
) -> PatchResult:
    """Returns the plan as a diff of the user's files; for rewrites that source cannot express, it gives the reason.

    A part of the plan is compared with the original as the whole was; if it is not the same data, it is not written.

    Args:
        study: the analysis.
        plan: what the patch is to say.
        compared: whether the whole plan was compared with the original.
        will_be_run: whether the patched script will be verified, and needs digests of the elements that it must yield.
        tries_others: whether calls that make other datasets too may be changed where these are compared and measured,
            some seconds each; else such calls stay as they are.
    """
    journal, subject = study.journal, study.subject
    with journal.phase("emission", "writing the patch"):
        shared = SharedCallTrials(study, plan)
        may_share = shared.may_change if tries_others else None
        emission = emit(subject.source.pipeline, plan, other_pipelines=shared.pipelines, may_share=may_share)
        covered = Plan(plan.name, tuple(one for one in plan.rewrites if one.key in emission.covered))
        whole = compared and len(covered.rewrites) == len(plan.rewrites)
        if covered.rewrites and not whole and not _is_proven(study, covered):
            emission = emission.rejected(covered.rewrites, _PART_DIFFERS)
        patch = replace(
            patch_of(study, emission, plan),
            shared=tuple(key for key in emission.covered if key in shared.accepted),
            expected=_expected(study, study.runner.edited(covered)) if emission.files and will_be_run else (),
        )
        journal.add_notes(*emission.notes, *shared.notes)
    return patch


def _is_proven(study: Study, plan: Plan) -> bool:
    """Whether a plan is shown to yield the same data."""
    try:
        return allows(study.runner.compare(plan), plan)
    except (RunFailed, PipetuneError):
        return False


def patch_of(study: Study, emission: Emission, plan: Plan) -> PatchResult:
    """Returns an emission as a patch; `plan` is that for training, whose memory the process needs that runs it."""
    session = study.journal.session
    return PatchResult(
        diff=unified_diff(
            emission,
            root=session.command.directory or os.getcwd(),
            header=patch_header(study.machine, version=session.version),
        ),
        files=tuple(emission.files),
        digests={path: digest_of(path) for path in emission.files},
        texts={path: old for path, (old, _) in emission.files.items()},
        covered=emission.covered,
        not_covered=emission.not_covered,
        process_mib=_process_bytes(study, plan) / 2**20,
        gpu_mib=machine.peak_gpu_mib(),
    )


def _process_bytes(study: Study, plan: Plan) -> float:
    """Returns the bytes for a process that holds the script at its first step: as estimated, at least as used now."""
    peak = study.runner.profile.peak_rss_mib if study.runner.profile is not None else None
    input_bytes = max((peak or 0.0) * 2**20, study.runner.predicted_bytes(plan))
    return max(study.resident_bytes + input_bytes, float(machine.rss_bytes()))


def _expected(study: Study, edited: Pipeline) -> tuple[str, ...]:
    """Returns digests of the first elements that the patched source must yield; empty if they are not reproducible."""
    profile, source = study.runner.profile, study.subject.source
    cut = with_buffers(source, profile.verified_buffers if profile is not None else {})
    with study.runner.measuring():
        return expected_digests(replay(cut.source, cut.applied_to(edited)), seed=study.settings.seed)


def expected_digests(dataset: object, *, seed: int) -> tuple[str, ...]:
    """Returns digests of the first elements, equal in every process; empty if randomness or data cannot be fixed."""
    try:
        return tuple(compare.digests(host_part(dataset), count=_DIGESTS, seed=seed, time_limit_seconds=_DIGEST_SECONDS))
    except compare.PINNING_ERRORS:
        return ()


def emission_of(session: Session, *, for_all: Collection[str] = ()) -> Emission:
    """Returns what the saved session's patch for training changes, in the source files as they are now.

    Args:
        session: the session.
        for_all: keys of rewrites that may change every dataset of their calls, beside those of the patch that may.
    """
    dataset, patch = session.datasets[0], session.patch
    covered = patch.covered_part(dataset.plan) if patch is not None and dataset.plan is not None else Plan("")
    shared = {*for_all, *(patch.shared if patch is not None else ())}
    others = _others(session, dataset, dataset.plan or covered)  # as when the patch was written
    return emit(dataset.pipeline, covered, other_pipelines=others, may_share=lambda one: one.key in shared)


def _others(session: Session, dataset: DatasetResult, plan: Plan) -> list[Pipeline]:
    """Returns the session's other pipelines that a plan of a dataset should not change."""
    others = (one for one in session.datasets if one is not dataset)
    return [one.pipeline for one in others if not reads_along(plan, dataset.pipeline, one.pipeline, one)]


def emission_for_validation(session: Session, validation: DatasetResult, plan: Plan, inherited: Plan) -> Emission:
    """Returns the patch for training with a plan for validation in it, in the source files as they are now.

    Args:
        session: holds the patch for training, if there is one.
        validation: the dataset of `plan`, one of the session.
        plan: what is written in addition.
        inherited: what the patch for training changes in this dataset too.
    """
    pipeline = apply_edits(validation.pipeline, inherited.edits)
    others = _others(session, validation, plan)
    first, switches = emission_of(session), _switches(session, validation, plan)
    if switches and len(plan.rewrites) == len(switches) and not inherited.rewrites:
        both = emission_of(session, for_all=_made_for_both(session, validation))
        if both.files != first.files:
            return replace(both, covered=tuple(switches), not_covered=(), notes=())
    by_fit = validation.consumer == VALIDATION_DATA and validates_at(validation.file, validation.line)
    file = validation.file if by_fit else ""
    return emit_more(first, pipeline, plan, other_pipelines=others, switches=switches, validated_in=file)


def _made_for_both(session: Session, validation: DatasetResult) -> frozenset[str]:
    """Returns keys of training's rewrites whose calls make its data and the validation data, and no third dataset."""
    training = session.datasets[0]
    pipeline, both = training.pipeline, (2, (validation.pipeline.name,))
    plan = training.plan or Plan("")
    sharing, found = SharedCalls(pipeline, _others(session, training, plan)), set[str]()
    for one in plan.rewrites:
        made = [sharing.count_datasets(pipeline[name]) for name in one.named if name in pipeline]
        if made and all(count == both for count in made):
            found.add(one.key)
    return frozenset(found)


def patch_for_validation_alone(study: Study, session: Session) -> PatchResult | None:
    """Returns the part for validation of a session's patch as a patch; None if it needs the part for training."""
    result = session.validation
    if result is None or result.patch is None or result.plan is None:
        return None
    own = result.patch.covered_part(result.plan)
    if len(own.rewrites) < len(result.plan.rewrites):  # what training's part changes belongs to it
        return None
    emission = emission_for_validation(replace(session, patch=None), result, own, Plan(own.name))
    patch = replace(patch_of(study, emission, Plan("")), expected=result.patch.expected)
    return patch if set(patch.covered) == {one.key for one in own.rewrites} else None


def _switches(session: Session, validation: DatasetResult, plan: Plan) -> dict[str, str]:
    """Returns the rewrite of a plan that training has at the same calls, with the parameter that turns it on.

    Empty where training has others of its own: they may be in the code that the parameter turns on.
    """
    training, patch = session.datasets[0], session.patch
    if training.plan is None or patch is None:
        return {}
    own = [one for one in patch.covered_part(training.plan).rewrites if one.key not in patch.shared]
    same = translate_rewrite(own[0], training.pipeline, validation.pipeline) if len(own) == 1 else None
    if same is None:
        return {}
    return {one.key: switch_name(same) for one in plan.rewrites if _without_ids(one) == _without_ids(same)}


def _without_ids(rewrite: Rewrite) -> tuple[Edit, ...]:
    """Returns the edits of a rewrite, without the ids of operators that they insert."""
    return tuple(replace(edit, id="") if isinstance(edit, Insert) else edit for edit in rewrite.edits)


def inherited_by(session: Session, validation: DatasetResult) -> Plan:
    """Returns what the session's patch for training changes in another dataset too, as a plan of that one."""
    training, patch = session.datasets[0], session.patch
    if training.plan is None or patch is None:
        return Plan(validation.pipeline.name)
    sharing = SharedCalls(training.pipeline, [validation.pipeline])
    translated = (
        translate_rewrite(rewrite, training.pipeline, validation.pipeline)
        for rewrite in patch.covered_part(training.plan).rewrites
        if rewrite.key in patch.shared or sharing.changes_others(rewrite)
    )
    return Plan(validation.pipeline.name, tuple(one for one in translated if one is not None))


_FEWEST_PAIRS, _PAIRS = 3, 5  # of windows without and with the plan, by judgement: fewer widen the interval
_WINDOW_SECONDS, _WARMUP_SECONDS = 0.25, 0.1
_NOT_SLOWER = 0.95  # the lowest lower bound of the speed ratio that counts as not slower
_MOST_SIBLINGS = 6  # besides the consumed datasets: each is compared and measured
_MEMORY_OPERATORS = ("cache", "shuffle")


class SharedCallTrials:
    """Decides which rewrites of a plan may change every dataset of the calls they edit; `notes` holds the results."""

    def __init__(self, study: Study, plan: Plan) -> None:
        self._study = study
        self._pipeline = study.subject.source.pipeline
        self._others = [
            (source, use)
            for source, use in (*study.subject.other_datasets, *_unconsumed_datasets(study))
            if not reads_along(plan, self._pipeline, source.pipeline, use)
        ]
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
        if rewrite.safety <= Safety.STATISTICAL or only_caches(rewrite.edits):
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
        may_change = (
            places == others
            or may_change_along(rewrite.safety, rewrite.edits, use)
            or (only_inserts(rewrite.safety, rewrite.edits) and _reads_all(source.pipeline, use, touched))
        )
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
