"""Verifies a patch: runs the patched and the original script in two processes, each held at its first training step.

Both measure on request, one at a time, so that the ratio in the report is that of this very patch. The idle one waits
for its next order: it has no iterator, so no buffer is filled in the background.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pipetune.core import session_file
from pipetune.core.edits import Plan
from pipetune.core.lockstep import MeasureInput, MeasurePass, MeasureTraining, StepReply, StepRequest
from pipetune.core.measurement import Interval, Pause, Rate, RunFailed, Window
from pipetune.core.results import Outcome, Trial
from pipetune.core.session import PatchResult, Rejection, Session
from pipetune.core.settings import Settings
from pipetune.core.time_plan import INFORMATION_WITH_PATCH, SLOW_START_SECONDS, VALIDATION_PAIRS, Part, TimePlan
from pipetune.search.confirmation import AUTOTUNE, Confirmation, confirm
from pipetune.search.statistics import ACCEPT_ABOVE, ratio_interval
from pipetune.supervisor.held_scripts import ORIGINAL, HeldScript, ScriptEnded, ScriptStarter
from pipetune.supervisor.worker_state import WorkerState

_MOST_PAIRS, _SHORT_PASSES_SECONDS = 8, 6.0  # pairs of passes, and what they may take if that is more than the fewest
_PASSES_PER_VISIT = 2  # where the processes run one after the other: each is visited twice
_ROUNDS = 4  # of running a patch: each removes the part for validation, or the rewrites that failed
_CUDA_MIB = 1024.0  # of a process on a GPU, besides what TensorFlow allocates: by judgement
_MARGIN = 0.2  # share of the memory kept free for what cannot be predicted, as in `stages.study`


class OnProgress(Protocol):
    """Hears what a verification does."""

    def __call__(self, doing: str, *, pairs: int = 0, proven: str = "", decided: bool = False) -> None:
        """The current activity, in words.

        Args:
            pairs: how many pairs of windows there are.
            proven: the gain, once the patch is proven.
            decided: what is measured decides nothing.
        """


@dataclass(frozen=True)
class ValidationProof:
    """What pairs of passes over the validation data show: of the script as written, and of the patched one."""

    why: str = ""  # why the part of the patch for validation is not proven; "" if it is
    checked: str = ""  # how the validation data was compared with its plan, in words
    speedup: Interval | None = None  # of the input alone
    written_seconds: float | None = None  # of a pass
    patched_seconds: float | None = None

    @property
    def confirmed(self) -> bool:
        """Whether the data is as planned, and the whole interval lies above `ACCEPT_ABOVE`."""
        return not self.why and self.speedup is not None and self.speedup.low > ACCEPT_ABOVE


@dataclass(frozen=True)
class Verification:
    """The result of verifying a patch."""

    reason: str = ""  # the reason, if it was not measured, yields other elements or is not confirmed
    comparison: str = ""  # how the patched pipeline was compared with the plan, in words
    confirmation: Confirmation | None = None
    peak_rss_mib: float | None = None  # of the patched input pipeline alone
    rate: Rate | None = None  # of the same, in the first window
    start_seconds: float = 0.0  # until the processes had reached their first training steps, in total
    seconds_after_proof: float = 0.0  # for measurements that only inform
    informed: Session | None = None  # the session with these measurements; None if they could not be taken
    interrupted_worker: WorkerState | None = None  # set if the user interrupted
    decided: bool = False  # the user interrupted when only what informs was left
    patch: PatchResult | None = None  # the remaining patch, if failed rewrites were removed from it
    validation: ValidationProof | None = None  # of the part for validation; None: the patch has none
    validation_patch: PatchResult | None = None  # that part alone, as it was run; None if the one for training stays

    @property
    def verified(self) -> bool:
        """Whether the patch was measured and its gain confirmed."""
        return self.confirmation is not None and self.confirmation.confirmed

    @property
    def validation_confirmed(self) -> bool:
        """Whether the part of the patch for validation was measured and its gain confirmed."""
        return self.validation is not None and self.validation.confirmed


def verify(
    session: Session, starter: ScriptStarter, *, settings: Settings, in_parallel: bool, on_progress: OnProgress
) -> Verification:
    """Checks the patch of a session, measures it and returns the result.

    Args:
        session: holds the patch, and what was measured before.
        starter: starts the processes.
        settings: of the analysis.
        in_parallel: both processes may run at the same time; else they run one after the other, each started twice for
            six pairs (ABBA). If they interfere after all (a port, a file that one of them locks), that is tried next.
        on_progress: hears of the progress.
    """
    race = _ScriptPair(session, starter, settings, on_progress)
    try:
        found = race.verify_in_parallel() if in_parallel else None
        if found is None:
            if in_parallel:
                on_progress("measuring again, one process at a time")
            found = race.verify_in_sequence()
        if found.verified and race.runs_validation and not found.validation_confirmed:
            # What was run is not what is shipped.
            why = race.check_without_validation()
            found = Verification(why, validation=found.validation) if why else found
    except ScriptEnded as stopped:
        found = Verification(str(stopped), interrupted_worker=stopped.interrupted_worker)
    return replace(found, start_seconds=race.start_seconds, patch=race.patch)


def fit_in_memory_together(session: Session, *, processes: int, free_gpu_mib: float | None) -> bool:
    """Whether both scripts can run at the same time: they need less memory than is free, minus a margin.

    On GPUs they need it there, too, and must be told to share it (`Job.shares_gpu`): by default, TensorFlow takes all
    that there is. A TPU belongs to one process.

    Args:
        session: holds the machine and the memory that a process needs.
        processes: number of processes per script.
        free_gpu_mib: of the fullest GPU; None: unknown, or there is none.
    """
    machine, patch = session.machine, session.patch_to_verify
    if machine is None or patch is None or patch.process_mib is None:
        return False
    free = (1 - _MARGIN) * min(machine.memory_available_bytes, machine.memory_limit_bytes)
    if 2 * processes * patch.process_mib * 2**20 > free:
        return False
    if machine.device == "cpu":
        return True
    if machine.device != "gpu" or patch.gpu_mib is None or free_gpu_mib is None or processes > 1:
        return False
    return 2 * (patch.gpu_mib + _CUDA_MIB) <= (1 - _MARGIN) * free_gpu_mib


class _ScriptPair:
    """The original and the patched script; implements `search.confirmation.Windows`, with one process per script."""

    def __init__(self, session: Session, starter: ScriptStarter, settings: Settings, on_progress: OnProgress) -> None:
        dataset = session.main_dataset
        assert dataset is not None
        self._starter, self._settings, self._on_progress = starter, settings, on_progress
        self._complete_session = session
        self._use_session(session)
        self._profile, self._pipeline = dataset.profile, dataset.pipeline
        self._held_scripts: dict[bool, HeldScript] = {}  # keyed by whether it is patched
        self._patched_answer: StepReply | None = None  # the first answer of the patched script
        self._interrupted: WorkerState | None = None
        self._passes: dict[bool, list[float]] = {False: [], True: []}  # seconds over the validation data, by script
        self._pass_problem = ""
        self._stack = contextlib.ExitStack()
        self._dropped: ValidationProof | None = None  # why the part for validation was left out
        self._begun = time.monotonic()
        self._proven_at: float | None = None  # `time.monotonic` seconds
        self.patch: PatchResult | None = None  # the remaining patch, if rewrites were removed
        self.start_seconds = 0.0

    def _use_session(self, session: Session) -> None:
        """Uses the patch of this session from now on."""
        plan = session.plan or Plan("")
        self._plan = (session.patch or PatchResult()).covered_part(plan, "the patched script")
        self._session, self._covers_plan = session, len(self._plan.rewrites) == len(plan.rewrites)

    @property
    def runs_validation(self) -> bool:
        """Whether the patch that runs has a part for validation alone, beside what it changes in both."""
        found = self._session.validation
        return found is not None and found.patch is not None and bool(found.patch.covered)

    @property
    def _has_training_patch(self) -> bool:
        """Whether the patch changes the training data, and not validation alone."""
        return self._session.patch is not None and bool(self._session.patch.diff)

    @property
    def _writes_distributed_form(self) -> bool:
        """Whether a distributed form is asked for, or the script trains under a strategy."""
        dataset, kind = self._session.main_dataset, self._settings.distribute
        return dataset is not None and dataset.handover is not None if kind is None else kind != "none"

    # -- the interface for `confirm`

    @property
    def trains(self) -> bool:
        return self._profile is not None and self._profile.consumer.real_seconds is not None

    @property
    def epoch_steps(self) -> int | None:
        return self._pipeline.epoch_elements((self._profile.cardinality if self._profile else None) or {})

    @property
    def pause(self) -> Pause | None:
        return self._profile.pause_within(self.epoch_steps) if self._profile is not None else None

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        return self._measure(plan, MeasureInput(seconds, warmup_seconds))

    def training_window(self, plan: Plan, *, steps: int) -> Window:
        return self._measure(plan, MeasureTraining(steps))

    def _measure(self, plan: Plan, order: StepRequest) -> Window:
        patched = plan is self._plan
        try:
            return self._held_scripts[patched].measure(ORIGINAL.name if patched else plan.name, order)
        except ScriptEnded as stopped:  # the measurements until then count
            self._interrupted = self._interrupted or stopped.interrupted_worker
            raise RunFailed(str(stopped)) from stopped

    # -- processes

    def verify_in_parallel(self) -> Verification | None:
        """Verifies with both processes at the same time; returns None if they may have interfered.

        They import in parallel; the second runs the user's script once the first is held. Rewrites that fail are
        removed from the patch, and the remaining patch is run again.
        """
        with self._starter.files() as undo, self._starter.held_script(patched=False, undo=undo) as original:
            found = self._verify_beside(original, undo)
            if self._may_have_interfered(found):
                return None
            return self._informed(self._with_validation_alone(found, original, undo), original)

    def _verify_beside(self, original: HeldScript, undo: str) -> Verification:
        for _ in range(_ROUNDS):
            with self._starter.held_script(patched=True, compare=True, undo=undo) as patched:
                answer = self._begin(patched, patched=True)
                if not answer.why and (self._session.validation is None or not answer.validation_why):
                    why = "" if False in self._held_scripts else self._begin(original, patched=False).why
                    return Verification(why) if why else self._confirm()
            if self._session.validation is not None:
                with_training = f"It was part of a patch that failed for training: {answer.why}"
                why = with_training if self._has_training_patch else answer.why
                self._drop_validation(answer.validation_why or why)
                if not self._has_training_patch:
                    break
            elif not self._remove_failed_rewrites(answer, original):
                break
        return Verification(answer.why, validation=self._dropped)

    def _informed(self, found: Verification, original: HeldScript) -> Verification:
        """Returns the result with what only informs, measured in the process of the original script."""
        if found.interrupted_worker is not None:
            return found
        if False not in self._held_scripts and self._begin(original, patched=False).why:
            return found
        self._on_progress("epochs and memory of the original input", decided=True)
        session_file.save(self._complete_session, Path(self._starter.job.session))  # no part of it was left out
        stays = found.verified or not self._covers_plan
        begun = time.monotonic()
        spent = self._session.seconds.get("budget", 0.0) + begun - self._begun - self.start_seconds
        try:
            informed = original.inform(self._session.plan if stays else None, spent_seconds=spent)
        except ScriptEnded as stopped:
            return replace(found, interrupted_worker=stopped.interrupted_worker, decided=True)
        after = found.seconds_after_proof + time.monotonic() - begun
        return replace(found, informed=informed, seconds_after_proof=after)

    def _drop_validation(self, why: str) -> None:
        """Goes on with the patch for training alone, if there is one."""
        self._dropped = ValidationProof(why)
        datasets = tuple(replace(one, patch=None) for one in self._session.datasets)
        self._session = replace(self._session, datasets=datasets)  # the plan for training is the same
        self._patched_answer = None
        session_file.save(self._session, Path(self._starter.job.session))

    def _remove_failed_rewrites(self, answer: StepReply, original: HeldScript) -> bool:
        """Replaces the patch by one without the rewrites that failed; returns False if there is none."""
        before = self._session.patch
        assert before is not None
        left = tuple(one.key for one in self._plan.rewrites if one.key not in answer.failed)
        if not answer.failed or not left:
            return False
        if False not in self._held_scripts and self._begin(original, patched=False).why:
            return False
        patch = original.write_patch(left)
        if patch is None or not patch.diff:
            return False
        failed = [one for one in self._plan.rewrites if one.key in answer.failed]
        rejected = tuple(Rejection(one.rule, one.node, answer.why) for one in failed)
        self.patch = replace(patch, not_covered=(*before.not_covered, *rejected, *patch.not_covered))
        self._use_session(replace(self._session, patch=self.patch))
        session_file.save(self._session, Path(self._starter.job.session))
        return True

    def verify_in_sequence(self) -> Verification:
        """Verifies with one process at a time, each freshly started."""
        self._passes, self._pass_problem = {False: [], True: []}, ""
        with self._stack:
            found = self._confirm(visit=self._switch_process)
        slow = self._session.seconds.get("capture", 0.0) >= SLOW_START_SECONDS
        if found.interrupted_worker is not None or (slow and not self._writes_distributed_form):
            return found
        self._held_scripts.pop(False, None)
        with self._starter.files() as undo, self._starter.held_script(patched=False, undo=undo) as original:
            return self._informed(self._with_validation_alone(found, original, undo), original)

    def _with_validation_alone(self, found: Verification, original: HeldScript, undo: str) -> Verification:
        """Returns the result with a patch for validation alone, which was run, if only that part was confirmed."""
        result, refuted = self._session.validation, found.confirmation is not None and not found.verified
        if not (refuted and found.validation_confirmed and result is not None) or found.interrupted_worker is not None:
            return found
        if False not in self._held_scripts and self._begin(original, patched=False).why:
            return found
        patch = original.write_patch(())
        if patch is None:
            return found
        datasets = tuple(  # without the plan for training
            replace(one, patch=patch) if one is result else replace(one, plan=None) for one in self._session.datasets
        )
        session_file.save(replace(self._session, datasets=datasets, patch=None), Path(self._starter.job.session))
        self._patched_answer = None
        with self._starter.held_script(patched=True, compare=True, undo=undo) as patched:
            answer = self._begin(patched, patched=True)
        assert found.validation is not None
        if answer.why or answer.validation_why:
            return replace(found, validation=replace(found.validation, why=answer.why or answer.validation_why))
        proof = replace(found.validation, checked=answer.validation_checked)
        return replace(found, validation=proof, validation_patch=patch)

    def check_without_validation(self) -> str:
        """Runs the patch for training alone to the first training step; returns why it is not as planned, or ''."""
        self._drop_validation("")
        with self._starter.files() as undo, self._starter.held_script(patched=True, compare=True, undo=undo) as patched:
            return self._begin(patched, patched=True).why

    def _may_have_interfered(self, found: Verification) -> bool:
        """Whether both ran at the same time and no gain was measured: they may have interfered.

        False if the user interrupted.
        """
        measured = found.confirmation is not None and found.confirmation.gain is not None
        both_ran = len(self._held_scripts) == 2 and found.interrupted_worker is None
        return self._has_training_patch and both_ran and not measured

    def _switch_process(self, plan: Plan) -> None:
        self._stack.close()
        patched = plan is self._plan
        checks = patched and self._patched_answer is None
        undo = self._stack.enter_context(self._starter.files())
        held = self._stack.enter_context(self._starter.held_script(patched=patched, compare=checks, undo=undo))
        answer = self._begin(held, patched=patched)
        if answer.why:
            raise RunFailed(answer.why)
        if answer.validation_why and self._session.validation is not None:
            self._drop_validation(answer.validation_why)
            return self._switch_process(plan)
        for _ in range(_PASSES_PER_VISIT):
            self._take_pass(patched)

    def _begin(self, held: HeldScript, *, patched: bool) -> StepReply:
        """Runs a script to its first training step and returns its answer, or why it did not get there.

        Raises:
            ScriptEnded: the user interrupted.
        """
        self._on_progress(f"running {held.name}")
        self._held_scripts[patched] = held
        begun = time.monotonic()
        try:
            answer = held.run_to_first_step()
        except ScriptEnded as stopped:
            if stopped.interrupted_worker is not None:
                raise
            answer = StepReply(str(stopped))
        self.start_seconds += time.monotonic() - begun
        if not patched:
            self._pass_problem = self._pass_problem or answer.validation_why
        if patched and self._patched_answer is None and not answer.why:
            self._patched_answer = answer
        return answer

    # -- passes over the validation data

    def _take_pass(self, patched: bool) -> None:
        """Takes one pass of a script; why it could not be measured is kept, and then no more are taken."""
        result = self._session.validation
        if result is None or result.cost is None or self._pass_problem:
            return
        script = self._held_scripts[patched]
        self._on_progress(f"one pass over {result.pipeline.name}: {script.name}")
        limit = max(1.0, self._pass_seconds)
        try:
            seconds = script.window(MeasurePass(result.cost.epoch_elements or 1, limit)).wall_seconds
        except RunFailed as problem:
            self._pass_problem = str(problem)
        except ScriptEnded as stopped:
            self._interrupted = self._interrupted or stopped.interrupted_worker
            self._pass_problem = str(stopped)
        else:
            self._passes[patched].append(seconds)

    def _prove_validation(self, *, in_turn: bool) -> ValidationProof | None:
        """Returns what pairs of passes show; with both processes held they are taken here, in an order drawn each."""
        if self._session.validation is None:
            return self._dropped
        draw = random.Random(self._settings.seed + 2)
        for _ in range(self._pairs_of_passes() if not in_turn else 0):
            for patched in draw.sample((True, False), 2):
                self._take_pass(patched)
        ratios = [one / other for one, other in zip(self._passes[False], self._passes[True], strict=False)]
        answer = self._patched_answer or StepReply()
        if self._pass_problem or len(ratios) < VALIDATION_PAIRS:
            return ValidationProof(self._pass_problem or "Its passes were not measured.")
        found = ValidationProof(
            checked=answer.validation_checked,
            speedup=ratio_interval(ratios),
            written_seconds=statistics.geometric_mean(self._passes[False]),
            patched_seconds=statistics.geometric_mean(self._passes[True]),
        )
        return found if found.confirmed else replace(found, why="It is not proven faster.")

    # -- results

    def _confirm(self, *, visit: Callable[[Plan], None] | None = None) -> Verification:
        training = self._session.training
        bound = training.bound_step_ms if training is not None else None
        time_plan = TimePlan.of(self._settings, spent=self._session.seconds.get("budget", 0.0))
        proof: Confirmation | None = None
        if self._has_training_patch:
            proof = confirm(
                self._plan,
                self,
                baselines={ORIGINAL.name: ORIGINAL, AUTOTUNE: Plan(AUTOTUNE)},
                settings=self._settings,
                seconds=time_plan.left(Part.VERIFICATION) - 2 * self._pass_seconds * self._pairs_of_passes(),
                claimed=self._accepted_trial(),
                step_seconds=self._profile.consumer.real_seconds if self._profile is not None else None,
                bound_step_seconds=None if bound is None else bound / 1000,
                notify=self._notify,
                visit=visit,
                beside_seconds=time_plan.of_sixty(INFORMATION_WITH_PATCH),
            )
        elif visit is not None:
            for plan in (self._plan, ORIGINAL, ORIGINAL, self._plan):
                visit(plan)
        after_proof = time.monotonic() - self._proven_at if self._proven_at is not None else 0.0
        validation = self._prove_validation(in_turn=visit is not None)
        arrived = self._patched_answer or StepReply()
        return Verification(
            reason="" if proof is None or proof.confirmed else proof.why,
            comparison=arrived.checked,
            confirmation=proof,
            peak_rss_mib=arrived.peak_rss_mib,
            rate=arrived.window.rate if arrived.window is not None else None,
            interrupted_worker=self._interrupted,
            seconds_after_proof=after_proof,
            validation=validation,
        )

    def _pairs_of_passes(self) -> int:
        """Returns how many pairs of passes are taken: more than the fewest where they are short."""
        each = 2 * self._pass_seconds
        return min(_MOST_PAIRS, max(VALIDATION_PAIRS, int(_SHORT_PASSES_SECONDS / each) if each else 0))

    @property
    def _pass_seconds(self) -> float:
        """Seconds of a pass over the validation data as written; 0 if there is no plan for it."""
        cost = self._session.validation.cost if self._session.validation is not None else None
        return (cost.epoch_wall_seconds or 0.0) if cost is not None else 0.0

    def _accepted_trial(self) -> Trial | None:
        """The trial by which the search accepted the plan; None if the patch does not cover the whole plan."""
        plan = self._session.plan
        accepted = (
            trial
            for trial in reversed(self._session.trials)
            if trial.kind == "search" and trial.outcome is Outcome.ACCEPTED and plan and trial.plan.key == plan.key
        )
        return next(accepted, None) if self._covers_plan else None

    def _notify(self, event: str, /, **details: object) -> None:
        if event == "pair":
            pairs = int(details["pairs"])  # type: ignore[call-overload]
            self._on_progress(f"pair {pairs}: {details['ratio']:.2f}x so far", pairs=pairs)
        if event == "proven":
            self._proven_at = time.monotonic()
            proven = f"{details['median']:.2f}x faster"
            self._on_progress("AUTOTUNE everywhere, for comparison", proven=proven, decided=True)
