"""Runs the user's script under the hooks until training begins, and exits its process once the work there is done.

From the first element of the training loop, or from the call of `fit`, until the process has exited, nothing of the
user's changes: saving is switched off, and whatever the script still writes is recorded in an undo journal. The script
is not unwound at the end (`shutdown`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from pipetune.core import file_events, undo
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import RunFailed
from pipetune.core.messages import Failed, Job, MessageWriter, ScriptExited, ScriptFailed, Suppressed
from pipetune.tf.error_text import first_line
from pipetune.tf.pipelines import file_caches
from pipetune.tf.script import (
    buffers,
    capture,
    consumers,
    consumption,
    hooks,
    loop_consumer,
    native_writers,
    pending_cleanup,
    saving,
    turns,
)
from pipetune.worker import lasting, script, shutdown
from pipetune.worker.stopping import Stopping

Work = Callable[[consumption.Consumption, consumers.Consumer, hooks.Hooks], int]
"""Works on the training pipeline; returns the exit code."""

Conclude = Callable[[int, str], int]
"""Takes the exit code so far and a sentence on what of the script does not run; returns the exit code of the job."""

_MOST_FLUSHES = 16  # each scans all live objects, which takes a tenth of a second; a script may begin many loops
_MARK = "_pipetune_undo_mark"  # attribute of a dataset: the undo generation in which the script first iterated it
_GLANCE = 1  # elements taken by `next(iter(dataset))` or `take(1)`, only to look at them

NO_DATASET = 4
SCRIPT_FAILED = 3


class Observation:
    """One run of the script: calls `work` with its training pipeline, on whichever thread that requires."""

    def __init__(self, job: Job, writer: MessageWriter, work: Work, conclude: Conclude = lambda code, _: code) -> None:
        """Prepares the run; nothing of the script runs yet.

        Args:
            work: called where training begins.
            conclude: called when all is over, as the process may exit right after.
        """
        self._job, self._writer, self._work, self._conclude = job, writer, work, conclude
        self._hooks = hooks.Hooks(
            self._training,
            wanted=_wanted(job),
            in_step=job.task is not None,
            on_loop=self._loop_begins,
            stop=self._hold,
        )
        self._thread: threading.Thread | None = None
        self._suppressed: Counter[str] = Counter()
        self._process = os.getpid()
        self._stopping = Stopping(lambda: shutdown.end(130, None, self._journal))
        self._raised = ""  # what the script raised in a loop that pipetune restarted
        self._lasting = lasting.Lasting(self._taken_here)
        self._journal = undo.journal_in(job.undo)
        self._exit_handlers = pending_cleanup.ExitHandlers()
        self._flushes = 0
        self._left = False  # the script has left its loop
        self._leaving = threading.Lock()
        self.code: int | None = None

    def run(self) -> int:
        """Runs the script and returns the exit code of the job, but only if the script did not reach training.

        Otherwise the process exits with that code, after sending all messages.
        """
        file_events.tell(self._journal)
        self._stopping.listen()
        with capture.Recorder(), self._hooks:
            native_writers.watch(self._hooks.patches)
            self._exit_handlers.watch(self._hooks.patches)
            ended = self._run_script()
            if self._thread is not None:
                self._leave_loop(ended)
                self._thread.join()
            if self.code is None and not ended:
                self._work_on_most_consumed()
            code = self.code if self.code is not None and not ended else self._explain(ended)
            if self._hooks.begun:
                self._end(code, None)
        if self._journal is not None:
            self._journal.discard()
            file_events.tell(None)
        return self._conclude(code, "")

    # -- running the script

    def _run_script(self) -> str:
        """Runs the script; returns '' if it reached its end or was stopped, else "exit" or "error"."""
        try:
            self._lasting.put_in_place()
            script.run(self._job, lasting.compiled, modules=lambda path: not capture.is_library(path))
        except consumers.ScriptStopped:
            return ""
        except SystemExit as leaving:
            if leaving.code not in (None, 0) and self.code is None and self._thread is None:
                code = leaving.code if isinstance(leaving.code, int) else 1
                self._writer.send(
                    ScriptExited(code, "" if isinstance(leaving.code, int) else str(leaving.code))
                )
                return "exit"
        except PipetuneError:
            raise
        except BaseException as error:
            if self._lasting.begun_anew:  # raised in an iteration that the script would not run by itself
                self._raised = f"; begun anew it raised {type(error).__name__}: {first_line(error)}"
                return ""
            if self.code is None or (self._thread is not None and self._thread.is_alive()):
                self._writer.send(ScriptFailed(script.users_traceback(error)))
                return "error"
        return ""

    def _taken_here(self) -> int:
        loop = self._hooks.loop
        return loop.taken if loop is not None and loop.thread == threading.get_ident() else 0

    def _leave_loop(self, ended: str) -> None:
        loop = self._hooks.loop
        with self._leaving:
            self._left = True
        if loop is not None:
            all_taken = f"The script's loop ended after {loop.taken:,} elements{self._raised}: measuring takes more."
            loop.abandon("The script raised in its loop." if ended else all_taken)

    def _explain(self, ended: str) -> int:
        if ended:
            return SCRIPT_FAILED
        wanted = _wanted(self._job)
        if wanted is not None and self._hooks.seen:
            names = ", ".join(dict.fromkeys(use.name for use in self._hooks.seen))
            self._writer.send(
                Failed(f"No dataset named {wanted} was consumed.", f"The script consumed: {names}.", NO_DATASET)
            )
            return NO_DATASET
        glances = [
            f"of {use.name} it took one element only ({os.path.basename(use.file)}:{use.line})"
            for use in self._hooks.seen
            if use.role == "preview" and use.elements == _GLANCE
        ]
        notes = "; ".join(dict.fromkeys([*self._hooks.notes, *glances]))
        self._writer.send(
            Failed(
                "The script trained on no tf.data dataset" + (f": {notes}." if notes else "."),
                "pipetune tunes tf.data pipelines: pass a tf.data.Dataset to fit, or loop over one. A process that "
                "the script starts is not looked into: analyse what runs in it.",
                NO_DATASET,
            )
        )
        return NO_DATASET

    # -- where training begins

    def _loop_begins(self, dataset: Any) -> None:
        """Called when the script iterates a dataset: if that turns out to be training, later writes are undone."""
        if os.getpid() == self._process and not self._hooks.begun and not hasattr(dataset, _MARK):
            object.__setattr__(dataset, _MARK, self._mark(dataset))

    def _mark(self, dataset: Any) -> int:
        """Begins a new generation of the undo journal, after flushing buffered writes; returns its number."""
        if self._journal is None:
            return 0
        if self._flushes < _MOST_FLUSHES and self._journal.open_files():
            self._flushes += 1
            buffers.flush()
        generation = self._journal.mark()
        for name in file_caches.files_written_by(dataset):
            self._journal.before_files_named(os.path.abspath(name), changing=False)
        return generation

    def _training(self, use: consumption.Consumption, consumer: consumers.Consumer) -> None:
        if os.getpid() != self._process:
            return  # in a child process that the script has forked
        consumer = self._begin(consumer, getattr(use.dataset, _MARK, 0) or self._mark(use.dataset))
        if isinstance(consumer, loop_consumer.LoopConsumer):
            self._thread = threading.Thread(target=self._in_thread, args=(use, consumer), name="pipetune")
            self._thread.start()
        else:
            self._do(use, consumer)
            self._end(self.code or 0, sys._getframe())

    def _begin(self, consumer: consumers.Consumer, generation: int) -> consumers.Consumer:
        """Protects the user's files from `generation` of the undo journal on; returns the consumer that may train."""
        large = self._journal.begin(generation) if self._journal is not None else ()
        self._silence()
        if not isinstance(consumer, loop_consumer.LoopConsumer):
            return consumer
        if self._journal is None:
            return consumers.NoConsumer("There is nowhere to keep what the script's loop may overwrite.")
        self._journal.on_full = self._too_large
        return consumers.NoConsumer(_TOO_LARGE.format(large[0])) if large else consumer

    def _too_large(self, path: str) -> None:
        """Called when the script would change more than can be copied: the change is refused and its loop held."""
        why, loop = _TOO_LARGE.format(path), self._hooks.loop
        if loop is not None:
            loop.abandon(why)
            if loop.thread == threading.get_ident():
                self._hold()
        raise undo.TooLarge(why)

    def _hold(self) -> NoReturn:
        """Blocks a thread of the script forever, without unwinding it; its process exits when the work is done."""
        if os.getpid() != self._process:
            raise consumers.ScriptStopped  # in a child process that the script has forked
        while True:
            threading.Event().wait()

    def _in_thread(self, use: consumption.Consumption, consumer: loop_consumer.LoopConsumer) -> None:
        consumer.wait_until_ready()
        self._do(use, consumer)
        with self._leaving:
            if not self._left:
                self._end(self.code or 0, sys._current_frames().get(consumer.thread))

    def _end(self, code: int, frame: FrameType | None) -> NoReturn:
        """Exits the process while the script stands at `frame`; None if the script has reached its end."""
        code = self._conclude(code, pending_cleanup.described(frame, self._exit_handlers.count))
        shutdown.end(code, self._writer, self._journal)

    def _do(self, use: consumption.Consumption, consumer: consumers.Consumer) -> None:
        try:
            with turns.workflow_at_work(), file_caches.apart():
                self.code = self._work(use, consumer, self._hooks)
        except RunFailed as failure:
            self.code = self._report_failure(failure)
        except PipetuneError as error:
            self._writer.send(Failed(error.message, error.hint, error.exit_code))
            self.code = error.exit_code
        except BaseException as error:
            self._writer.send(Failed(*_own_fault(error)))
            self.code = 1

    def _report_failure(self, failure: RunFailed) -> int:
        """Reports a pipeline that cannot be run, as the user's own error if there is one; returns the exit code."""
        if failure.__cause__ is not None:
            self._writer.send(ScriptFailed(script.users_traceback(failure.__cause__)))
            return SCRIPT_FAILED
        self._writer.send(Failed(str(failure), "Nothing can be measured without an element.", NO_DATASET))
        return NO_DATASET

    def _work_on_most_consumed(self) -> None:
        """Works on the most consumed dataset, without a training step, if no consumer trained for long enough."""
        wanted = _wanted(self._job)
        uses = [
            use
            for use in self._hooks.seen
            if (use.role in ("preview", "other") and wanted in (None, use.name)) or wanted == use.name
        ]
        uses = [use for use in uses if use.elements != _GLANCE or wanted == use.name]
        if not uses:
            return
        use = max(uses, key=lambda one: one.elements)
        use.role = "training"
        self._hooks.begun = True
        self._begin(consumers.NoConsumer(""), self._mark(use.dataset))  # what the script wrote until now stays
        taken = (
            f"only {use.elements} elements were taken" if use.elements else f"it was consumed by {use.how}"
        )
        self._do(use, consumers.NoConsumer(f"No training step could be timed: {taken}."))

    def _silence(self) -> None:
        """Switches off, to the end of the process, saving of models, checkpoints and summaries, and of bytecode."""
        sys.dont_write_bytecode = True
        saving.switch_off(self._count_suppressed)
        self._stopping.listen()

    def _count_suppressed(self, name: str) -> None:
        kind = "summaries_suppressed" if name.startswith("tf.summary") else "saves_suppressed"
        self._suppressed[kind] += 1
        self._writer.send(Suppressed(kind, self._suppressed[kind]))


_TOO_LARGE = (
    "Its loop changes more than 1 GB of files, which cannot be copied first: {}. It was held there, and no window of "
    "training steps was taken."
)


def _wanted(job: Job) -> str | None:
    name = job.settings.dataset
    return None if name in (None, "all") else name


def _own_fault(error: BaseException) -> tuple[str, str, int]:
    import traceback

    text = "".join(traceback.format_exception(error))
    return (f"pipetune itself failed: {type(error).__name__}: {error}", f"Please report this:\n{text}", 1)
