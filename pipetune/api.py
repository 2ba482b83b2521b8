"""The Python interface: tune and profile live datasets, and apply plans to them, without a script or a worker."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipetune.core import sessionfile
from pipetune.core.planfile import PlanFile, load_plan, plan_file, save_plan
from pipetune.core.session import Session
from pipetune.core.settings import Settings, consents_of
from pipetune.core.version import VERSION
from pipetune.journal import Journal, Listener, Silence

if TYPE_CHECKING:
    import pandas

_PROFILE_SECONDS = 20.0  # budget shared by the parts of a profile: in a notebook, the user waits for it


class TunedSession:
    """A session with its plan, its report and its table of operators."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def plan(self) -> PlanFile | None:
        """The confirmed plan; without edits if nothing was proven faster, None if nothing was profiled."""
        return plan_file(self.session)

    def report(self, path: str | os.PathLike[str], *, format: str = "html") -> None:
        """Writes the report; `format` is "html", "markdown", "json" or "csv"."""
        from pipetune.report.render import render

        render(self.session, format, Path(path))

    def to_frame(self) -> pandas.DataFrame:
        """One row per operator of the studied pipeline."""
        from pipetune.report.tabular import to_frame

        return to_frame(self.session)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes session.json."""
        sessionfile.save(self.session, Path(path))

    def save_plan(self, path: str | os.PathLike[str]) -> None:
        """Writes plan.json, for `apply_plan` in another process; does nothing if there is no plan."""
        if self.plan is not None:
            save_plan(self.plan, Path(path))

    def __repr__(self) -> str:
        edits = len(self.plan.edits) if self.plan else 0
        return f"<pipetune session: {self.session.status}, {edits} edits>"


def tune(
    dataset: Any,
    *,
    step: Callable[..., Any] | None = None,
    budget: float = 60.0,
    allow: Iterable[str] = (),
    memory_limit: int | None = None,
    seed: int = 0,
    listener: Listener | None = None,
) -> TunedSession:
    """Profiles a live `tf.data.Dataset`, tries rewrites, and returns the session with the plan that was proven.

    Args:
        dataset: any dataset, made before or after pipetune was imported.
        step: called with each element (`step(x, y)` or `step(element)`); variables that it changes are restored.
            Without it, the input is measured alone.
        budget: time budget of the trials in seconds.
        allow: consents beyond the default, as for `--allow`.
        memory_limit: the most memory that a plan may use, in bytes; None: the available memory, less a margin.
        seed: seed of the order of trials.
        listener: receives progress; None for none.

    Returns:
        The session, with the plan that was proven faster, or without one.

    Raises:
        TypeError: `dataset` is no `tf.data.Dataset`, or `step` cannot be called.
        ValueError: `allow` has a word that `--allow` does not know.
        StepFailed: `step` raised; the cause is its own exception.
        RunFailed: the dataset cannot be run; the cause is its own exception.
    """
    from pipetune import workflow
    from pipetune.tf.pipelines import file_caches

    settings = Settings(
        budget_seconds=budget,
        allow=consents_of([allow] if isinstance(allow, str) else allow),
        memory_limit_bytes=memory_limit,
        seed=seed,
        force=step is None,
    )
    with file_caches.apart():
        study = _study(dataset, step, settings, listener or Silence(), caller="pipetune.tune")
        return TunedSession(workflow.analyze(study))


def profile(dataset: Any, *, step: Callable[..., Any] | None = None) -> TunedSession:
    """Profiles a live dataset without trying anything; `to_frame()` has one row per operator.

    Args:
        dataset: any dataset, made before or after pipetune was imported.
        step: as for `tune`.

    Returns:
        The session, with the costs and whether the input holds the step back.

    Raises:
        TypeError: `dataset` is no `tf.data.Dataset`, or `step` cannot be called.
        StepFailed: `step` raised; the cause is its own exception.
        RunFailed: the dataset cannot be run; the cause is its own exception.
    """
    from pipetune import workflow
    from pipetune.tf.pipelines import file_caches

    settings = Settings(budget_seconds=_PROFILE_SECONDS, trials=False)
    with file_caches.apart():
        study = _study(dataset, step, settings, Silence(), caller="pipetune.profile")
        return TunedSession(workflow.analyze(study))


def apply_plan(dataset: Any, plan: PlanFile | TunedSession | str | os.PathLike[str] | None) -> Any:
    """The dataset with a plan's edits applied; its traced functions and seeds are reused.

    Args:
        dataset: the dataset the plan was made for.
        plan: a plan, the session that has it, or the path of a plan.json. None, or a plan without edits, changes
            nothing.

    Returns:
        A dataset.

    Raises:
        TypeError: `dataset` is no `tf.data.Dataset`.
        PlanMismatch: the plan was made for another pipeline; the message names the first operator that differs.
        PipetuneError: the file is missing or damaged.
    """
    from pipetune.tf.pipelines import applying
    from pipetune.tf.pipelines.kinds import require_dataset

    require_dataset(dataset, caller="pipetune.apply_plan")
    if plan is None:
        return dataset
    if isinstance(plan, TunedSession):
        return apply_plan(dataset, plan.plan)
    return applying.apply(dataset, plan if isinstance(plan, PlanFile) else load_plan(Path(plan)))


@contextlib.contextmanager
def record() -> Iterator[None]:
    """Context manager for code that builds a dataset: lets pipetune report its source lines."""
    from pipetune.tf.script import capture

    with capture.Recorder():
        yield


def load(path: str | os.PathLike[str]) -> TunedSession:
    """Loads a saved session from a session.json, or from the folder that contains it.

    Raises:
        PipetuneError: there is none, or it is damaged.
    """
    return TunedSession(sessionfile.load(Path(path)))


def _study(
    dataset: Any, step: Callable[..., Any] | None, settings: Settings, listener: Listener, *, caller: str
) -> Any:
    from pipetune.stages.study import Study, Subject
    from pipetune.tf.measure import machine
    from pipetune.tf.measure.believed import read_believed
    from pipetune.tf.pipelines import replay, resuming
    from pipetune.tf.pipelines.kinds import require_dataset
    from pipetune.tf.script import consumers, consumption, step_consumers

    require_dataset(dataset, caller=caller)
    if step is not None and not callable(step):
        raise TypeError(f"step is a {type(step).__name__}; give a function that is called with each element.")
    consumer: consumers.Consumer = (
        step_consumers.StepConsumer(step)
        if step is not None
        else consumers.NoConsumer("No step was given: the input was measured alone.")
    )
    use = consumption.Consumption(dataset, "dataset", "training", "pipetune.tune")
    here = replace(machine.read_machine(), believed=read_believed())
    command: dict[str, object] = {
        "api": "tune",
        "seed": settings.seed,
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    journal = Journal(Session(VERSION, command=command, machine=here), settings, listener)
    source = replay.read(dataset)
    subject = Subject(source, consumer, use, resuming=tuple(resuming.find(source)))
    return Study(subject, settings, here, journal)
