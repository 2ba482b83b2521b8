"""Step 3: what TensorFlow does by itself: the numbers AUTOTUNE chose, the graph passes that fired.

Read after the verdict is given. None of it is ever credited to pipetune.
"""

from __future__ import annotations

from contextlib import suppress

from pipetune.core.edits import Plan
from pipetune.core.measurement import RunFailed
from pipetune.core.optimisations import Optimisations
from pipetune.stages.profiling import AS_WRITTEN
from pipetune.stages.study import Study
from pipetune.tf.pipelines import optimisations

_PASSES = Plan("tensorflow-passes")
_WATCH_SHARE, _WATCH_SECONDS = 0.05, 3.0  # of the budget for trials, and at most


def read_own_work(study: Study) -> None:
    """Which passes fired and why others did not, and the numbers in force so far; costs some tenths of a second."""
    journal = study.journal
    if _PASSES.key in study.failed:  # TensorFlow's passes are native code: should one end the process, then once
        found = Optimisations(note=f"Reading TensorFlow's passes {study.failed[_PASSES.key]}.")
    else:
        journal.notify("trying", plan=_PASSES)
        found = optimisations.read(study.subject.source)
        journal.notify("stage", name="reading what TensorFlow did by itself")
    journal.dataset(optimisations=found)
    note_autotuned(study, {"defaults": AS_WRITTEN})


def watch_autotune(study: Study) -> None:
    """Sees what AUTOTUNE settles on for the pipeline as written, where it has something to choose."""
    so_far = study.runner.readings.get(AS_WRITTEN.key)
    if so_far is None or not any(value.tunable for value in so_far.values):
        return
    study.journal.say("waiting for AUTOTUNE to settle")
    seconds = min(_WATCH_SECONDS, _WATCH_SHARE * study.settings.budget_seconds)
    with suppress(RunFailed):  # what it failed of, the baselines will say
        study.runner.watch_autotune(AS_WRITTEN, seconds=seconds)


def note_autotuned(study: Study, plans: dict[str, Plan]) -> None:
    """The values in force under these plans, as far as their windows were watched, into the session."""
    seen = {
        name: study.runner.readings[plan.key]
        for name, plan in plans.items()
        if plan.key in study.runner.readings and name != "off"
    }
    study.journal.dataset(autotuned={**study.journal.result.autotuned, **seen})
