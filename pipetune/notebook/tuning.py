"""Tunes the pipeline that a cell trains on: compiles and runs the cell, and analyzes it at its first training step."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile
from types import CodeType, TracebackType
from typing import Any, cast

from IPython.core.displaypub import DisplayPublisher

from pipetune import workflow
from pipetune.capture import protection
from pipetune.capture.consumption import Consumer, Consumption, ScriptStopped
from pipetune.capture.loops import extend_loops
from pipetune.capture.observed_script import ObservedScript
from pipetune.core import restoration
from pipetune.core.errors import PipetuneError
from pipetune.core.settings import Settings
from pipetune.journal import Journal, Listener
from pipetune.live_progress import showing_progress
from pipetune.notebook.observed_cell import ObservedCell
from pipetune.pipelines import call_sites, replay, resume_points
from pipetune.source.cells import Cells
from pipetune.stages.study import Subject, new_study, other_pipelines
from pipetune.tuned_session import TunedSession, finished

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class CellTuning:
    """The analysis of one cell."""

    def __init__(self, shell: Any, cell: str, settings: Settings) -> None:
        """Compiles the cell, which is given by its text below the line of the magic.

        Raises:
            SyntaxError: the cell is not Python.
        """
        self._shell, self._settings = shell, settings
        self._code, self._extends_loops = _compiled(shell, cell)
        self._journal: Journal | None = None
        self._listener = Listener()
        self.observed: ObservedCell  # from `run` on
        self._started = time.monotonic()
        self.training = ""
        """What was taken for training, in words."""
        self.variable = "dataset"
        """The notebook's variable that holds the dataset that is trained on; "dataset" if none does."""
        self.kept: list[str] = []
        """Objects that hold the measured steps, as they cannot be restored."""

    def run(self) -> TunedSession | None:
        """Runs the cell and returns the session; None if the cell ran to its end without training on a dataset.

        Raises:
            BaseException: what the cell raised, or what ended the analysis.
        """
        showing = showing_progress(Listener(), requested=True)
        with restoration.journal_folder() as folder, showing as self._listener:
            self._listener.progress("cell", "running to its first training step", best="", left=None)
            silence = _silencer(self._shell)
            self.observed = ObservedCell(self._shell.user_ns, self._work, undo_folder=folder, silence=silence)
            try:
                self.observed.run(
                    lambda: exec(self._code, self._shell.user_global_ns, self._shell.user_ns),
                    extends_loops=self._extends_loops,
                )
            except BaseException as error:
                _show_as_of_cell(error, self._code.co_filename, self._shell)
                raise
        return finished(self._journal.session) if self._journal is not None else None

    def interrupted(self) -> TunedSession | None:
        """Returns the session as far as it was measured; None if nothing was."""
        if self._journal is None:
            return None
        return finished(replace(self._journal.session, status="interrupted", complete=True))

    def _work(self, use: Consumption, consumer: Consumer, script: ObservedScript) -> None:
        place = f", {use.file}:{use.line}" if use.file else ""
        self.training = Cells().named(f"{use.consumer_call} over {use.name}{place}")
        if self._shell.user_ns.get(use.name) is use.dataset:
            self.variable = use.name
        source = replay.read(use.dataset, name=use.name)
        if not source.pipeline.nodes:
            raise PipetuneError("No operator of the dataset can be read.")
        if consumer.kind == "loop":
            self.kept = protection.unrestorable_names(self._code, self._shell.user_ns)
        resuming = (*script.resuming, *resume_points.find(source))
        subject = Subject(source, consumer, use, other_pipelines(script.uses, use), resuming, script.written_files)
        listener = cast(Listener, _Stoppable(self._listener, self.observed))
        study = new_study(subject, self._settings, listener)
        self._journal = study.journal
        study.journal.update(seconds={"capture": round(time.monotonic() - self._started, 3)})
        workflow.analyze(study)
        if self.observed.suppressed:
            study.journal.update(side_effects={"saves_suppressed": self.observed.suppressed})


class _Stoppable:
    """A listener that ends the analysis at its next event once the cell has failed or was interrupted."""

    def __init__(self, listener: Listener, observed: ObservedCell) -> None:
        self._listener, self._observed = listener, observed

    def __getattr__(self, event: str) -> Any:
        if self._observed.stopped:
            raise ScriptStopped
        return getattr(self._listener, event)


def _silencer(shell: Any) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Returns what makes a context manager that shows nothing; on exit the streams are those of now."""
    before = sys.stdout, sys.stderr, shell.display_pub

    @contextlib.contextmanager
    def silenced() -> Iterator[None]:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            sys.stdout = sys.stderr = nowhere
            shell.display_pub = _NoDisplay()  # type: ignore[no-untyped-call]
            try:
                yield
            finally:
                sys.stdout, sys.stderr, shell.display_pub = before

    return silenced


class _NoDisplay(DisplayPublisher):
    def publish(self, *_data: Any, **_more: Any) -> None:
        """Shows nothing."""

    def clear_output(self, wait: bool = False) -> None:
        """Clears nothing."""


def _compiled(shell: Any, cell: str) -> tuple[CodeType, bool]:
    """Returns the code of a cell, its lines counted from that of the magic, and whether it has extended loops."""
    empty = len(list(takewhile(lambda line: not line.strip(), cell.splitlines())))  # IPython removes them
    text = "\n" * (1 + empty) + shell.transform_cell(cell)
    file = shell.compile.cache(text, _number_of_running_cell(shell), raw_code=text)
    call_sites.forget(file)
    tree = shell.transform_ast(shell.compile.ast_parse(text, filename=file))
    extends_loops = extend_loops(tree)
    code: CodeType = shell.compile(tree, file, "exec")
    return code, extends_loops


def _number_of_running_cell(shell: Any) -> int:
    """Returns the number that the notebook shows beside the cell which runs the magic."""
    for frame, _ in traceback.walk_stack(sys._getframe()):
        label = shell.compile.format_code_name(frame.f_code.co_filename)
        if label is not None:
            return int(label[1].removeprefix("In[").removesuffix("]"))
    return int(shell.execution_count)


def _show_as_of_cell(error: BaseException, file: str, shell: Any) -> None:
    """Makes IPython show an exception of the cell as if nothing else had run; one of pipetune stays as it is."""
    frames: list[TracebackType] = []
    outer = error.__traceback__
    while outer is not None:
        frames.append(outer)
        outer = outer.tb_next
    names = [frame.tb_frame.f_code.co_filename for frame in frames]
    if file not in names:
        return
    shown: TracebackType | None = None
    for frame in reversed(frames[names.index(file) :]):
        if not frame.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            shown = TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    render = shell.InteractiveTB.structured_traceback
    error._render_traceback_ = lambda: render(type(error), error, shown, tb_offset=0)  # type: ignore[attr-defined]
