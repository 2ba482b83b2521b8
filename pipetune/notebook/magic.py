"""The magic `%%pipetune`: its arguments, and what it says about the cell."""

from __future__ import annotations

import argparse
import keyword
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

from IPython.core.error import UsageError

from pipetune.core.errors import PipetuneError
from pipetune.core.settings import Settings, consents_of
from pipetune.interactive import running_shell
from pipetune.notebook.tuning import CellTuning
from pipetune.source.cells import Cells
from pipetune.supervisor.user_files import warnings
from pipetune.tuned_session import TunedSession


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
