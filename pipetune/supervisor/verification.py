"""Verifies a patch: runs the patched and the original script in two processes, each held at its first training step.

Both measure on request, one at a time, so that the ratio in the report is that of this very patch. The idle one waits
for its next order: it has no iterator, so no buffer is filled in the background.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.core import sessionfile
from pipetune.core.edits import Plan
from pipetune.core.in_step import Answer, Begin, Leave, Link, MeasureInput, MeasureTraining, Order, Prepare, WritePatch
from pipetune.core.json_lines import LinkBroken
from pipetune.core.measurement import Outcome, Rate, RunFailed, Trial, Window
from pipetune.core.messages import Job, Message
from pipetune.core.session import PatchResult, Rejection, Session
from pipetune.core.settings import Settings
from pipetune.search.confirmation import AUTOTUNE, Confirmation, confirm
from pipetune.supervisor.cluster import Cluster
from pipetune.supervisor.conversation import Conversation, Ending
from pipetune.supervisor.interrupts import Interrupts
from pipetune.supervisor.limits import Limits
from pipetune.supervisor.outcome import last_line
from pipetune.supervisor.watch import Watch

_ROUNDS = 3  # of running a patch: each removes the rewrites that failed
_ORIGINAL = Plan("defaults")
_MARGIN = 0.2  # share of the memory kept free for what cannot be predicted, as in `stages.study`
_ANSWER_SECONDS = 60.0  # for the rest of an answer that has begun to arrive


class Stopped(Exception):
    """A script ended without an answer; `conversation` holds how its process ended."""

    def __init__(self, script: str, conversation: Conversation) -> None:
        super().__init__(f"{script} {_how(conversation)}")
        self.conversation = conversation


@dataclass(frozen=True)
class Verification:
    """The result of verifying a patch."""

    why: str = ""  # the reason, if it was not measured, yields other elements or is not confirmed
    checked: str = ""  # how the patched pipeline was compared with the plan, in words
    proof: Confirmation | None = None
    peak_rss_mib: float | None = None  # of the patched input pipeline alone
    rate: Rate | None = None  # of the same, in the first window
    start_seconds: float = 0.0  # until the processes had reached their first training steps, in total
    interrupted: Conversation | None = None  # set if the user interrupted
    patch: PatchResult | None = None  # the remaining patch, if failed rewrites were removed from it

    @property
    def verified(self) -> bool:
        return self.proof is not None and self.proof.confirmed


class Held:
    """A script held at its first training step, or about to run to it."""

    def __init__(self, name: str, link: Link, watched: Watch, *, end_seconds: float) -> None:
        self.name, self._link, self._watched, self._end_seconds = name, link, watched, end_seconds
        self._prepared, self._over = _ORIGINAL.name, False

    def begin(self) -> Answer:
        """Run the script to its first training step. Returns what it reports there.

        Raises:
            Stopped: it did not get there.
        """
        return self._ask(Begin())

    def measure(self, plan: str, order: Order) -> Window:
        """Measure a window of the pipeline that the script has built, or of a baseline of it.

        Args:
            plan: name of the baseline; "defaults" for the pipeline that the script has built.
            order: `MeasureInput` or `MeasureTraining`.

        Raises:
            RunFailed: no window could be measured.
            Stopped: the process ended, or had to be ended.
        """
        if plan != self._prepared:
            self._ask(Prepare(Plan(plan)))
            self._prepared = plan
        answer = self._ask(order)
        if answer.window is None:
            raise RunFailed(answer.why or "no window was taken")
        return answer.window

    def patch_of(self, rewrites: tuple[str, ...]) -> PatchResult | None:
        """Write the patch of only these rewrites, given by key; None if that is not possible.

        Raises:
            Stopped: the process ended, or had to be ended.
        """
        return self._ask(WritePatch(rewrites)).patch

    def leave(self) -> None:
        """Let the process exit by itself, so that it releases its resources.

        Raises:
            Stopped: the user interrupted meanwhile.
        """
        if self._over:
            return
        with contextlib.suppress(LinkBroken):
            self._link.order(Leave())
        self._watched.wait(seconds=self._end_seconds)
        stopped = Stopped(self.name, self._watched.end())
        if _interrupted(stopped):
            raise stopped

    def _ask(self, order: Order) -> Answer:
        try:
            self._link.order(order)
            if self._watched.wait(self._link.fileno()):
                return self._link.next_answer(_ANSWER_SECONDS)
        except LinkBroken:  # it is exiting: wait for that
            self._watched.wait(seconds=self._end_seconds)
        self._over = True
        raise Stopped(self.name, self._watched.end())


@dataclass(frozen=True)
class Starter:
    """Starts the processes of a script."""

    job: Job  # of mode VERIFY, for the original script
    processes: Callable[[Job], contextlib.AbstractContextManager[Cluster]]
    files: Callable[[], contextlib.AbstractContextManager[str]]  # yields the folder for undo journals; restores on exit
    limits: Limits
    interrupts: Interrupts
    on_message: Callable[[Message], None]

    @contextlib.contextmanager
    def started(self, *, patched: bool, checks: bool = False, undo: str = "") -> Iterator[Held]:
        """Start a process that waits for the order to run the script; on exit, it has ended.

        Args:
            patched: run the patched source.
            checks: compare the elements with those of the plan, and measure the memory.
            undo: folder yielded by `files`, at whose exit the files changed by the script's loop are restored.
        """
        near, far = socket.socketpair()
        with contextlib.ExitStack() as stack, far:
            link = Link(near.detach())
            stack.callback(link.close)
            job = replace(self.job, patched=patched, checks=checks, orders=far.fileno(), undo=undo)
            cluster = stack.enter_context(self.processes(job))
            far.close()  # now only the worker holds it
            watched = Watch(
                cluster.chief,
                limits=self.limits,
                interrupts=self.interrupts,
                on_message=self.on_message,
                phase="verification",
                others=cluster.others,
            )
            name = "the patched script" if patched else "the script as it is"
            held = Held(name, link, watched, end_seconds=self.limits.ending)
            yield held
            held.leave()


def verify(
    session: Session,
    starter: Starter,
    *,
    settings: Settings,
    together: bool,
    told: Callable[[str], None],
) -> Verification:
    """Checks the patch of a session, and measures it.

    Args:
        session: holds the patch, and what was measured before.
        starter: starts the processes.
        settings: of the analysis.
        together: both processes may run at the same time; else they run one after the other, each started twice for
            six pairs (ABBA). If they interfere after all (a port, a file that one of them locks), that is tried next.
        told: called with the progress, in words.
    """
    race = _Scripts(session, starter, settings, told)
    try:
        found = race.side_by_side() if together else race.in_turn()
        if together and race.disturbed(found):
            told("once more, one after the other")
            found = race.in_turn()
    except Stopped as stopped:
        found = Verification(str(stopped), interrupted=_interrupted(stopped))
    return replace(found, start_seconds=race.start_seconds, patch=race.patch)


def fits_twice(session: Session, *, processes: int) -> bool:
    """Whether both scripts can run at the same time: they need less memory than is free, minus a margin.

    False on an accelerator, as a process allocates all of its memory.

    Args:
        session: holds the machine and the memory that a process needs.
        processes: number of processes per script.
    """
    machine, patch = session.machine, session.patch
    if machine is None or patch is None or patch.process_mib is None or machine.device != "cpu":
        return False
    free = (1 - _MARGIN) * min(machine.memory_available_bytes, machine.memory_limit_bytes)
    return 2 * processes * patch.process_mib * 2**20 <= free


class _Scripts:
    """The original and the patched script; implements `search.confirmation.Windows`, with one process per script."""

    def __init__(self, session: Session, starter: Starter, settings: Settings, told: Callable[[str], None]) -> None:
        dataset = session.tuned_dataset
        assert dataset is not None
        self._starter, self._settings, self._told = starter, settings, told
        self._take(session)
        self._profile, self._pipeline = dataset.profile, dataset.pipeline
        self._there: dict[bool, Held] = {}  # keyed by whether it is patched
        self._arrived: Answer | None = None  # the first answer of the patched script
        self._interrupted: Conversation | None = None
        self._stack = contextlib.ExitStack()
        self.patch: PatchResult | None = None  # the remaining patch, if rewrites were removed
        self.start_seconds = 0.0

    def _take(self, session: Session) -> None:
        """Use the patch of this session from now on."""
        assert session.patch is not None and session.plan is not None
        covered = [one for one in session.plan.rewrites if one.key in session.patch.covered]
        self._session, self._whole = session, len(covered) == len(session.plan.rewrites)
        self._plan = Plan("the patched script", tuple(covered))

    # -- the interface for `confirm`

    @property
    def trains(self) -> bool:
        return self._profile is not None and self._profile.consumer.real_seconds is not None

    @property
    def epoch_steps(self) -> int | None:
        return self._pipeline.epoch_elements((self._profile.cardinality if self._profile else None) or {})

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        return self._measure(plan, MeasureInput(seconds, warmup_seconds))

    def training_window(self, plan: Plan, *, steps: int) -> Window:
        return self._measure(plan, MeasureTraining(steps))

    def _measure(self, plan: Plan, order: Order) -> Window:
        patched = plan is self._plan
        try:
            return self._there[patched].measure(_ORIGINAL.name if patched else plan.name, order)
        except Stopped as stopped:  # the measurements until then count
            self._interrupted = self._interrupted or _interrupted(stopped)
            raise RunFailed(str(stopped)) from stopped

    # -- processes

    def side_by_side(self) -> Verification:
        """Verify with both processes at the same time.

        They import in parallel; the second runs the user's script once the first is held. Rewrites that fail are
        removed from the patch, and the remaining patch is run again.
        """
        with self._starter.files() as undo, self._starter.started(patched=False, undo=undo) as original:
            for _ in range(_ROUNDS):
                with self._starter.started(patched=True, checks=True, undo=undo) as patched:
                    answer = self._begin(patched, patched=True)
                    if not answer.why:
                        why = "" if False in self._there else self._begin(original, patched=False).why
                        return Verification(why) if why else self._measured()
                if not self._take_out(answer, original):
                    break
            return Verification(answer.why)

    def _take_out(self, answer: Answer, original: Held) -> bool:
        """Replace the patch by one without the rewrites that failed. False if there is none."""
        before = self._session.patch
        assert before is not None
        left = tuple(one.key for one in self._plan.rewrites if one.key not in answer.failed)
        if not answer.failed or not left:
            return False
        if False not in self._there and self._begin(original, patched=False).why:
            return False
        patch = original.patch_of(left)
        if patch is None or not patch.diff:
            return False
        failed = [one for one in self._plan.rewrites if one.key in answer.failed]
        rejected = tuple(Rejection(one.rule, one.node, answer.why) for one in failed)
        self.patch = replace(patch, not_covered=(*before.not_covered, *rejected, *patch.not_covered))
        self._take(replace(self._session, patch=self.patch))
        sessionfile.save(self._session, Path(self._starter.job.session))
        return True

    def in_turn(self) -> Verification:
        """Verify with one process at a time, each freshly started."""
        with self._stack:
            return self._measured(visit=self._visit)

    def disturbed(self, found: Verification) -> bool:
        """Whether both ran at the same time and no gain was measured: they may have interfered.

        False if the user interrupted.
        """
        without = found.proof is None or found.proof.gain is None
        return without and len(self._there) == 2 and found.interrupted is None

    def _visit(self, plan: Plan) -> None:
        self._stack.close()
        patched = plan is self._plan
        checks = patched and self._arrived is None
        undo = self._stack.enter_context(self._starter.files())
        held = self._stack.enter_context(self._starter.started(patched=patched, checks=checks, undo=undo))
        why = self._begin(held, patched=patched).why
        if why:
            raise RunFailed(why)

    def _begin(self, held: Held, *, patched: bool) -> Answer:
        """Run a script to its first training step. Returns its answer, or why it did not get there.

        Raises:
            Stopped: the user interrupted.
        """
        self._told(f"running {held.name}")
        self._there[patched] = held
        begun = time.monotonic()
        try:
            answer = held.begin()
        except Stopped as stopped:
            if _interrupted(stopped):
                raise
            answer = Answer(str(stopped))
        self.start_seconds += time.monotonic() - begun
        if patched and self._arrived is None and not answer.why:
            self._arrived = answer
        return answer

    # -- results

    def _measured(self, *, visit: Callable[[Plan], None] | None = None) -> Verification:
        training = self._session.training
        bound = training.bound_step_ms if training is not None else None
        proof = confirm(
            self._plan,
            self,
            baselines={_ORIGINAL.name: _ORIGINAL, AUTOTUNE: Plan(AUTOTUNE)},
            settings=self._settings,
            claimed=self._claimed(),
            step_seconds=self._profile.consumer.real_seconds if self._profile is not None else None,
            bound_step_seconds=None if bound is None else bound / 1000,
            notify=self._notify,
            visit=visit,
        )
        arrived = self._arrived or Answer()
        return Verification(
            why="" if proof.confirmed else proof.why,
            checked=arrived.checked,
            proof=proof,
            peak_rss_mib=arrived.peak_rss_mib,
            rate=_rate(arrived.window),
            interrupted=self._interrupted,
        )

    def _claimed(self) -> Trial | None:
        """The trial by which the search accepted the plan; None if the patch does not cover the whole plan."""
        plan = self._session.plan
        accepted = (
            trial
            for trial in reversed(self._session.trials)
            if trial.kind == "search" and trial.outcome is Outcome.ACCEPTED and plan and trial.plan.key == plan.key
        )
        return next(accepted, None) if self._whole else None

    def _notify(self, event: str, /, **details: object) -> None:
        if event == "pair":
            self._told(f"pair {details['pairs']}: {details['ratio']:.2f} times as fast so far")


def _rate(window: Window | None) -> Rate | None:
    if window is None:
        return None
    return Rate(
        examples_per_second=window.examples_per_second,
        batches_per_second=1 / window.step_seconds,
        cpu_us_per_example=window.cpu_seconds_per_example * 1e6,
        first_batch_seconds=window.first_seconds,
    )


def _interrupted(stopped: Stopped) -> Conversation | None:
    return stopped.conversation if stopped.conversation.ending is Ending.INTERRUPTED else None


def _how(conversation: Conversation) -> str:
    cause = conversation.cause
    if cause.script_failed:
        return f"raised: {last_line(cause.script_failed.traceback)}"
    if cause.failed:
        return f"came to no training step: {cause.failed.message}"
    return conversation.why or "ended without a result"
