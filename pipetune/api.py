"""The Python interface: tunes and profiles live datasets and applies plans to them, without a script or a worker."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pipetune.core import session_file
from pipetune.core.plan_file import PlanFile, load_plan
from pipetune.core.settings import Settings, consents_of
from pipetune.journal import Listener
from pipetune.tuned_session import TunedSession, finished


def tune(
    dataset: Any,
    *,
    step: Callable[..., Any] | None = None,
    budget: float = 60.0,
    allow: Iterable[str] = (),
    memory_limit: int | None = None,
    seed: int = 0,
    progress: bool = True,
    listener: Listener | None = None,
) -> TunedSession:
    """Profiles a live `tf.data.Dataset`, tries rewrites, and returns the session with the plan that was proven.

    Args:
        dataset: any dataset, created before or after pipetune was imported.
        step: called with each element (`step(x, y)` or `step(element)`); TensorFlow and Keras variables that it
            changes are restored. Without it, the input is measured alone.
        budget: seconds that the analysis may take.
        allow: consents in addition to the default, as for `--allow`.
        memory_limit: the most memory that a plan may use, in bytes; None: the available memory minus a margin.
        seed: seed of the order of trials.
        progress: whether to show progress on standard error, where that is a terminal or a notebook.
        listener: receives the events of the analysis; None for none.

    Returns:
        The session, with the plan that was proven faster, or without one.

    Warns:
        UserWarning: before anything runs, if the step can change models, optimizers or arrays of PyTorch or JAX:
            their state cannot be restored.

    Raises:
        TypeError: `dataset` is not a `tf.data.Dataset`, or `step` cannot be called.
        ValueError: `allow` contains a word that `--allow` does not accept.
        StepFailed: `step` raised; the cause is its own exception.
        RunFailed: the dataset cannot be run; the cause is its own exception.
    """
    settings = Settings(
        budget_seconds=budget,
        allow=consents_of([allow] if isinstance(allow, str) else allow),
        memory_limit_bytes=memory_limit,
        seed=seed,
        force=step is None,
    )
    return _analyze(dataset, step, settings, progress=progress, listener=listener, caller="pipetune.tune")


def profile(
    dataset: Any,
    *,
    step: Callable[..., Any] | None = None,
    budget: float = 20.0,
    progress: bool = True,
    listener: Listener | None = None,
) -> TunedSession:
    """Profiles a live dataset without trying anything; `to_frame()` has one row per operator.

    Args:
        dataset: any dataset, created before or after pipetune was imported.
        step: as in `tune`, with the same warning.
        budget: seconds that the profile may take; with more, its intervals are narrower.
        progress: as in `tune`.
        listener: as in `tune`.

    Returns:
        The session, with the costs, and whether the input slows the step down.

    Raises:
        TypeError: `dataset` is not a `tf.data.Dataset`, or `step` cannot be called.
        StepFailed: `step` raised; the cause is its own exception.
        RunFailed: the dataset cannot be run; the cause is its own exception.
    """
    settings = Settings(budget_seconds=budget, trials=False)
    return _analyze(dataset, step, settings, progress=progress, listener=listener, caller="pipetune.profile")


def apply_plan(dataset: Any, plan: PlanFile | TunedSession | str | os.PathLike[str] | None) -> Any:
    """Returns the dataset with a plan's edits applied; its traced functions and seeds are reused.

    Args:
        dataset: the dataset for which the plan was created.
        plan: a plan, the session that contains it, or the path of a plan.json. None, or a plan without edits, changes
            nothing.

    Raises:
        TypeError: `dataset` is not a `tf.data.Dataset`.
        PlanMismatch: the plan was created for another pipeline; the message names the first operator that differs.
        PipetuneError: the file is missing or damaged.
    """
    from pipetune.capture import substitution
    from pipetune.pipelines.live import require_dataset

    require_dataset(dataset, caller="pipetune.apply_plan")
    if plan is None:
        return dataset
    if isinstance(plan, TunedSession):
        return apply_plan(dataset, plan.plan)
    return substitution.apply_plan(dataset, plan if isinstance(plan, PlanFile) else load_plan(Path(plan)))


@contextlib.contextmanager
def record() -> Iterator[None]:
    """Context manager for code that builds a dataset: lets pipetune report its source lines."""
    from pipetune.pipelines import call_sites

    with call_sites.Recorder():
        yield


def load(path: str | os.PathLike[str]) -> TunedSession:
    """Returns the session saved in a session.json, or in the folder that contains it.

    Raises:
        PipetuneError: the file does not exist, is damaged, or was written by another release.
    """
    return TunedSession(session_file.load(Path(path)))


def _analyze(
    dataset: Any,
    step: Callable[..., Any] | None,
    settings: Settings,
    *,
    progress: bool,
    listener: Listener | None,
    caller: str,
) -> TunedSession:
    from pipetune import workflow
    from pipetune.capture import consumption, loop_consumer
    from pipetune.capture.protection import unrestorable_state
    from pipetune.live_progress import showing_progress
    from pipetune.pipelines import files, live, resume_points
    from pipetune.stages.study import Subject, new_study
    from pipetune.timing.iterators import shortened_pauses

    shown = showing_progress(listener or Listener(), requested=progress)
    with files.private_files(), shortened_pauses(), shown as listening:
        live.require_dataset(dataset, caller=caller)
        if step is not None and not callable(step):
            raise TypeError(f"step must be a function that is called with each element, not a {type(step).__name__}.")
        kept = unrestorable_state(step) if step is not None else []
        changed = (
            f"The step can change {', '.join(kept)}, which pipetune cannot restore: the training steps that it "
            "measures stay in these objects. Pass a step that works on copies of them."
        )
        if kept:
            warnings.warn(changed, stacklevel=3)
        consumer: consumption.Consumer = (
            loop_consumer.StepConsumer(step)
            if step is not None
            else consumption.NoConsumer("No step was given: the input was measured alone.")
        )
        use = consumption.Consumption(dataset, "dataset", "training", "pipetune.tune")
        source = live.read(dataset)
        subject = Subject(source, consumer, use, resuming=tuple(resume_points.find(source)))
        study = new_study(subject, settings, listening, notes=(changed,) if kept else ())
        return finished(workflow.analyze(study))
