"""Runs the user's script under the hooks until training begins, and exits its process once the work there is done.

From the first element of the training loop, or from the call of `fit`, until the process has exited, no file of the
user changes: saving is switched off, and whatever the script still writes is recorded in an undo journal. The script
is not unwound at the end (`exits`).
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from pipetune.capture import consumption, hooks, loops, pending_cleanup, protection, repeatability, written_files
from pipetune.capture.loop_consumer import LoopConsumer
from pipetune.capture.observed_script import PREVIEW_ELEMENTS, ObservedScript
from pipetune.core import file_events, undo
from pipetune.core.errors import PipetuneError
from pipetune.core.files import is_library
from pipetune.core.measurement import RunFailed
from pipetune.core.messages import ActionSuppressed, AnalysisFailed, Job, LogLine, MessageWriter, Mode, ScriptFailed
from pipetune.pipelines import call_sites, files
from pipetune.pipelines.errors import first_line
from pipetune.worker import exits, script

Work = Callable[[consumption.Consumption, consumption.Consumer, ObservedScript], int]
"""Works on the training pipeline; returns the exit code."""

Conclude = Callable[[int, str], int]
"""Takes the exit code so far and a sentence on the part of the script not run; returns the exit code of the job."""

_MARK = "_pipetune_undo_mark"  # attribute of a dataset: the undo generation in which the script first iterated it

NO_DATASET = 4  # exit code: the script consumed no dataset
SCRIPT_FAILED = 3  # exit code: the script failed


class ObservedRun:
    """One run of the script: calls `work` with its training pipeline, on whichever thread that requires."""

    def __init__(
        self,
        job: Job,
        writer: MessageWriter,
        work: Work,
        conclude: Conclude = lambda code, _: code,
        *,
        training_loop: int | None = None,
    ) -> None:
        """Prepares the run; nothing of the script runs yet.

        Args:
            work: called where training begins.
            conclude: called when all is over, as the process may exit right after.
            training_loop: which of the script's loops was found to train when it ran before; None if none was.
        """
        self._job, self._writer, self._work, self._conclude = job, writer, work, conclude
        self._script = ObservedScript(
            self._on_training,
            target_dataset=_requested_dataset(job),
            lockstep=job.lockstep_role is not None,
            training_loop=training_loop,
            on_iteration=self._on_loop,
            on_other_data=self._announce_other_data,
            adapts_to=repeatability.with_seeds,
            stop=self._block_forever,
        )
        self._thread: threading.Thread | None = None
        self._suppressed: Counter[str] = Counter()
        self._stop_signals = exits.StopSignalHandler(lambda: exits.exit_process(130, None, self._journal))
        self._error_beyond_its_end = ""  # what the script raised in an iteration that it would not run by itself
        self._journal = undo.open_journal(job.undo)
        if self._journal is not None:
            self._journal.on_write = self._script.written_files.add
        self._files = protection.FileProtection(self._journal)
        self._exit_handlers: pending_cleanup.ExitHandlers  # from `run` on
        self._loop_left = False  # the script has left its loop
        self._leave_lock = threading.Lock()
        self.code: int | None = None

    def run(self) -> int:
        """Runs the script and returns the exit code of the job, but only if the script did not reach training.

        Otherwise the process exits with that code, after sending all messages.
        """
        file_events.set_journal(self._journal)
        self._stop_signals.install()
        with call_sites.Recorder(), hooks.installed(self._script):
            written_files.watch(self._script.patches)
            self._exit_handlers = pending_cleanup.ExitHandlers(self._script.patches)
            ended = self._run_script()
            if self._thread is not None:
                self._leave_loop(ended)
                self._thread.join()
            if self.code is None and not ended:
                self._work_on_most_consumed()
            code = self.code if self.code is not None and not ended else self._report_no_training(ended)
            if self._script.training_begun:
                self._exit(code, None)
        if self._journal is not None:
            self._journal.discard()
            file_events.set_journal(None)
        return self._conclude(code, "")

    # -- running the script

    def _run_script(self) -> str:
        """Runs the script; returns '' if it reached its end or was stopped, else "exit" or "error"."""
        try:
            self._script.loop_extender.install()
            with repeatability.repeatable(until=lambda: self._script.training_begun, began=self._job.began):
                script.run(
                    self._job,
                    loops.compile_with_extended_loops,
                    compiles_module=lambda path: not is_library(path),
                )
                script.wait_for_threads(self._loop_has_ended)
        except consumption.ScriptStopped:
            return ""
        except SystemExit as leaving:
            exited = script.failed_exit(leaving)
            if exited is not None and self.code is None and self._thread is None:
                self._writer.send(exited)
                return "exit"
        except PipetuneError:
            raise
        except BaseException as error:
            if self._script.is_beyond_its_end(error):
                self._error_beyond_its_end = f"; asked for more, it raised {type(error).__name__}: {first_line(error)}"
                return ""
            if self.code is None or (self._thread is not None and self._thread.is_alive()):
                self._writer.send(ScriptFailed(script.user_traceback(error)))
                return "error"
        return ""

    def _loop_has_ended(self) -> bool:
        """Whether the loop that trains was one of this thread, which runs no more of the script, or of an ended one."""
        loop, here = self._script.loop, threading.get_ident()
        return loop is not None and loop.thread not in {one.ident for one in threading.enumerate()} - {here}

    def _leave_loop(self, ended: str) -> None:
        loop = self._script.loop
        with self._leave_lock:
            self._loop_left = True
        if loop is not None:
            taken = f"{loop.elements_taken:,} elements{self._error_beyond_its_end}"
            all_taken = f"The script's loop ended after {taken}. The measurement needs more."
            loop.abandon("The script raised an exception in its loop." if ended else all_taken)

    def _report_no_training(self, ended: str) -> int:
        if ended:
            return SCRIPT_FAILED
        requested = _requested_dataset(self._job)
        if requested is not None and self._script.uses:
            names = ", ".join(dict.fromkeys(use.name for use in self._script.uses))
            why, hint = f"No dataset named {requested} was consumed.", f"The script consumed: {names}."
        else:
            notes = self._script.describe_other_uses()
            why = "The script did not train on a tf.data dataset" + (f": {notes}." if notes else ".")
            hint = (
                "pipetune tunes tf.data pipelines: pass a tf.data.Dataset to fit, or loop over one. Processes "
                "that the script starts are not analyzed: analyze the program that runs in them instead."
            )
        self._writer.send(AnalysisFailed(why, hint, NO_DATASET))
        return NO_DATASET

    # -- where training begins

    def _on_loop(self, dataset: Any) -> None:
        """Called when the script iterates a dataset: if that turns out to be training, later writes are undone."""
        if not self._script.training_begun and not hasattr(dataset, _MARK):
            object.__setattr__(dataset, _MARK, self._files.begin(dataset))

    def _on_training(self, use: consumption.Consumption, consumer: consumption.Consumer) -> None:
        consumer = self._protect(consumer, getattr(use.first_dataset, _MARK, 0) or self._files.begin(use.dataset))
        if isinstance(consumer, LoopConsumer):
            self._thread = threading.Thread(target=self._in_thread, args=(use, consumer), name="pipetune", daemon=True)
            self._thread.start()
        else:
            self._run_work(use, consumer)
            self._exit(self.code or 0, sys._getframe())

    def _announce_other_data(self, given: str) -> None:
        """Says, the first time, that the script is about to train as it would without pipetune."""
        if self._job.mode is Mode.ANALYZE and self._job.attempt == 1 and len(self._script.notes) == 1:
            self._writer.send(LogLine(f"{given}. This training is not ended: it runs and saves as without pipetune."))

    def _protect(self, consumer: consumption.Consumer, generation: int) -> consumption.Consumer:
        """Protects the user's files from `generation` of the undo journal on; returns the consumer that may train.

        To the end of the process, no models, checkpoints, summaries and bytecode are saved.
        """
        consumer = self._files.confirm(consumer, generation, on_too_large=self._script.refuse_change)
        sys.dont_write_bytecode = True
        protection.disable_saving(self._count_suppressed)
        self._stop_signals.install()
        return consumer

    def _block_forever(self) -> NoReturn:
        """Blocks a thread of the script forever, without unwinding it; its process exits when the work is done."""
        while True:
            threading.Event().wait()

    def _in_thread(self, use: consumption.Consumption, consumer: LoopConsumer) -> None:
        consumer.wait_until_ready()
        self._run_work(use, consumer)
        with self._leave_lock:
            if not self._loop_left:
                self._exit(self.code or 0, sys._current_frames().get(consumer.thread))

    def _exit(self, code: int, frame: FrameType | None) -> NoReturn:
        """Exits the process while the script stands at `frame`; None if the script has reached its end."""
        code = self._conclude(code, pending_cleanup.describe_pending(frame, self._exit_handlers.count))
        exits.exit_process(code, self._writer, self._journal)

    def _run_work(self, use: consumption.Consumption, consumer: consumption.Consumer) -> None:
        try:
            with call_sites.running_workflow(), files.private_files():
                self.code = self._work(use, consumer, self._script)
        except RunFailed as failure:
            if failure.__cause__ is not None:  # the user's own error
                self._writer.send(ScriptFailed(script.user_traceback(failure.__cause__)))
                self.code = SCRIPT_FAILED
            else:
                hint = "Nothing can be measured without an element."
                self._writer.send(AnalysisFailed(str(failure), hint, NO_DATASET))
                self.code = NO_DATASET
        except PipetuneError as error:
            self._writer.send(AnalysisFailed(error.message, error.hint, error.exit_code))
            self.code = error.exit_code
        except BaseException as error:
            what = f"pipetune itself failed: {type(error).__name__}: {error}"
            text = "".join(traceback.format_exception(error))
            self._writer.send(AnalysisFailed(what, f"Please report this:\n{text}", 1))
            self.code = 1

    def _work_on_most_consumed(self) -> None:
        """Works on the most consumed dataset, if no consumer trained for long enough.

        There is no training step, except where `predict` or `evaluate` has read it.
        """
        requested = _requested_dataset(self._job)
        uses = self._script.uses
        if requested is not None:
            uses = [use for use in uses if use.name == requested]
        else:
            uses = [use for use in uses if use.role in ("preview", "other") and use.elements != PREVIEW_ELEMENTS]
        longest = [max(uses, key=lambda one: one.elements)] if uses else []
        if requested is None and not self._script.notes:  # otherwise it trains, on other data
            longest += [use for use in self._script.uses if use.inference is not None]
        if not longest:
            return
        use = max(longest, key=lambda one: one.wall_seconds)
        use.role = "training"
        self._script.training_begun = True
        use.settle_epochs()
        # What the script has written until now is kept.
        protection.flush()
        self._protect(consumption.NoConsumer(""), self._files.begin(use.dataset))
        taken = f"it was consumed by {use.consumer_call}"
        if use.elements:
            taken = f"the script ended after {use.elements:,} elements, on which it did not seem to train"
            taken += ", and what it wrote is kept"
            if requested is None and use.variable and use.elements >= consumption.FIRST_ELEMENTS:
                taken += f". With --dataset {use.variable} that loop is taken for training"
        none = consumption.NoConsumer(f"No training step could be timed: {taken}.")
        self._run_work(use, use.inference or none)

    def _count_suppressed(self, name: str) -> None:
        kind = "summaries_suppressed" if name.startswith("tf.summary") else "saves_suppressed"
        self._suppressed[kind] += 1
        self._writer.send(ActionSuppressed(kind, self._suppressed[kind]))


def _requested_dataset(job: Job) -> str | None:
    name = job.settings.dataset
    return None if name in (None, "all") else name
