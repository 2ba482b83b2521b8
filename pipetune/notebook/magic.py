"""The magic `%%pipetune`: its arguments, tuning the pipeline that a cell trains on (the cell is compiled and run, and
analyzed at its first training step), and what is said about the cell."""

from __future__ import annotations

import argparse
import contextlib
import keyword
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile
from types import CodeType, TracebackType
from typing import Any, NoReturn, cast

from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import UsageError

from pipetune import workflow
from pipetune.capture import protection
from pipetune.capture.consumption import Consumer, Consumption, ScriptStopped
from pipetune.capture.loops import extend_loops
from pipetune.capture.observed_script import ObservedScript
from pipetune.core import restoration
from pipetune.core.errors import PipetuneError
from pipetune.core.settings import Settings, consents_of
from pipetune.journal import Journal, Listener
from pipetune.live_progress import showing_progress
from pipetune.notebook.observed_cell import ObservedCell
from pipetune.pipelines import call_sites, replay, resume_points
from pipetune.source.cells import Cells, running_shell
from pipetune.stages.study import Subject, new_study, other_pipelines
from pipetune.supervisor.user_files import warnings
from pipetune.tuned_session import TunedSession, finished


class _Parser(argparse.ArgumentParser):
    """Raises a UsageError, which IPython shows in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%pipetune: {message}")


def run(line: str, cell: str) -> TunedSession | None:
    """Runs the magic, and returns the session for the notebook to show; None if the cell did not train.

    Raises:
        UsageError: the arguments are wrong.
        BaseException: what the cell raised, or what ended the measurements.
    """
    parser = _Parser("%%pipetune", add_help=False, allow_abbrev=False)
    parser.add_argument("--budget", type=float, default=Settings().budget_seconds)
    parser.add_argument("--allow", action="append", default=[])
    parser.add_argument("name", nargs="?", default="_pipetune")
    given = parser.parse_args(line.split())
    if not given.name.isidentifier() or keyword.iskeyword(given.name):
        raise UsageError(f"%%pipetune: {given.name!r} is not a name that the session can be bound to.")
    if not 0 < given.budget < math.inf:
        raise UsageError("%%pipetune: --budget takes a number of seconds above 0.")
    try:
        allow = consents_of(word for words in given.allow for word in words.split(",") if word)
    except ValueError as error:
        raise UsageError(f"%%pipetune: --allow: {error}") from None
    shell = running_shell()
    assert shell is not None
    tuning = CellTuning(shell, cell, Settings(budget_seconds=given.budget, allow=allow, distribute="none"))
    try:
        tuned = tuning.run()
    except KeyboardInterrupt:
        partial = tuning.interrupted()
        if partial is not None:
            shell.push({given.name: partial})
            print(f"Interrupted. What was measured until then is {given.name}.")
        raise KeyboardInterrupt from None
    except PipetuneError as error:
        text = f"pipetune: {error}"
        error._render_traceback_ = lambda: [text]  # type: ignore[attr-defined]  # its frames are of no use to the user
        raise
    if tuned is None:
        seen = Cells().named(tuning.observed.script.describe_other_uses())
        print(
            f"The cell ran to its end and trained on no tf.data.Dataset{f': {seen}' if seen else ''}. pipetune tunes "
            "tf.data pipelines: pass a tf.data.Dataset to fit, or loop over one. A loop is taken for training once it "
            "has taken 20 elements and changes weights."
        )
        return None
    shell.push({given.name: tuned})
    print("\n".join(_remarks(tuning, tuned, given.name, shell.user_ns)))
    return tuned


def _remarks(tuning: CellTuning, tuned: TunedSession, name: str, namespace: dict[str, Any]) -> Iterator[str]:
    """Yields what to know about the cell, and what to do next."""
    yield (
        f"The cell was stopped at its first training step: {tuning.training}. The rest of it did not run, and what the "
        "measured steps changed was put back."
    )
    if tuning.kept:
        yield f"It could not be put back in {', '.join(tuning.kept)}: make them again before you train."
    yield from warnings(replace(tuning.observed.files, unexplained=[]))
    main = tuned.session.main_dataset
    dataset = (main.pipeline.name if main is not None else "").strip()
    if main is not None and not any(node.location for node in main.pipeline):
        yield (
            f"No places in your code are known, as the cells that build {dataset} ran before pipetune was loaded. Run "
            "them again, or build the dataset in `with pipetune.record():`."
        )
    if tuned.plan is not None and tuned.plan.edits:
        load = "" if "pipetune" in namespace else "import pipetune; "
        yield f"To train with the plan: {load}{tuning.variable} = pipetune.apply_plan({tuning.variable}, {name}.plan)"


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
        self.training = Cells().named(f"{use.title}{place}")
        if self._shell.user_ns.get(use.name) is use.dataset:
            self.variable = use.name
        source = replay.read(use.dataset, name=use.name)
        if not source.pipeline.nodes:
            raise PipetuneError("No operator of the dataset can be read.")
        if consumer.kind in ("loop", "keras-fit"):
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
