"""Runs the user's script under the hooks until training begins, and ends it once the work there is done."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable

from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import RunFailed
from pipetune.core.messages import Failed, Job, MessageWriter, ScriptExited, ScriptFailed, Suppressed
from pipetune.tf.error_text import first_line
from pipetune.tf.script import capture, consumers, consumption, hooks, loop_consumer, saving, turns
from pipetune.worker import lasting, script

Work = Callable[[consumption.Consumption, consumers.Consumer, hooks.Hooks], int]
"""What to do with the training pipeline; returns the exit code."""

_GLANCE = 1  # elements that `next(iter(dataset))` or `take(1)` takes to look at them

NO_DATASET = 4
SCRIPT_FAILED = 3


class Observation:
    """One run of the script: hands its training pipeline to `work`, whatever thread that has to run on."""

    def __init__(self, job: Job, writer: MessageWriter, work: Work) -> None:
        self._job, self._writer, self._work = job, writer, work
        self._hooks = hooks.Hooks(self._training, wanted=_wanted(job), in_step=job.task is not None)
        self._thread: threading.Thread | None = None
        self._suppressed: Counter[str] = Counter()
        self._process = os.getpid()
        self._raised = ""  # in a turn that pipetune had the script's loop begin anew
        self._lasting = lasting.Lasting(self._taken_here)
        self.code: int | None = None

    def run(self) -> int:
        """Runs the script; the exit code of the whole job."""
        with capture.Recorder(), self._hooks:
            ended = self._run_script()
            if self._thread is not None:
                self._leave_loop(ended)
                self._thread.join()
            if self.code is None and not ended:
                self._work_on_most_consumed()
        if self.code is not None and not ended:
            return self.code
        return self._explain(ended)

    # -- the script's side

    def _run_script(self) -> str:
        """Runs the script; '' when it came to its end or was stopped, else how it ended."""
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
            if self._lasting.begun_anew:  # in a turn that the script does not take by itself
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

    def _training(self, use: consumption.Consumption, consumer: consumers.Consumer) -> None:
        if os.getpid() != self._process:
            return  # a child process the script has forked
        self._silence()
        if isinstance(consumer, loop_consumer.LoopConsumer):
            self._thread = threading.Thread(target=self._in_thread, args=(use, consumer), name="pipetune")
            self._thread.start()
        else:
            self._do(use, consumer)

    def _in_thread(self, use: consumption.Consumption, consumer: loop_consumer.LoopConsumer) -> None:
        try:
            consumer.wait_until_ready()
            self._do(use, consumer)
        finally:
            consumer.stop()

    def _do(self, use: consumption.Consumption, consumer: consumers.Consumer) -> None:
        try:
            with turns.workflow_at_work():
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
        """A pipeline that cannot be run: the user's own error where there is one."""
        if failure.__cause__ is not None:
            self._writer.send(ScriptFailed(script.users_traceback(failure.__cause__)))
            return SCRIPT_FAILED
        self._writer.send(Failed(str(failure), "Nothing can be measured without an element.", NO_DATASET))
        return NO_DATASET

    def _work_on_most_consumed(self) -> None:
        """No consumer trained for long enough: take what was consumed most, alone."""
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
        self._silence()
        taken = (
            f"only {use.elements} elements were taken" if use.elements else f"it was consumed by {use.how}"
        )
        self._do(use, consumers.NoConsumer(f"No training step could be timed: {taken}."))

    def _silence(self) -> None:
        """From here to the end of the process nothing of the user's is written."""
        saving.switch_off(self._count_suppressed)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: os._exit(130))

    def _count_suppressed(self, name: str) -> None:
        kind = "summaries_suppressed" if name.startswith("tf.summary") else "saves_suppressed"
        self._suppressed[kind] += 1
        self._writer.send(Suppressed(kind, self._suppressed[kind]))


def _wanted(job: Job) -> str | None:
    name = job.settings.dataset
    return None if name in (None, "all") else name


def _own_fault(error: BaseException) -> tuple[str, str, int]:
    import traceback

    text = "".join(traceback.format_exception(error))
    return (f"pipetune itself failed: {type(error).__name__}: {error}", f"Please report this:\n{text}", 1)
