"""Step 3: what TensorFlow does by itself: the values that AUTOTUNE chose, the graph passes that were applied.

Read after the verdict. None of it is ever credited to pipetune.
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
_WATCH_SHARE, _WATCH_SECONDS = 0.05, 3.0  # of the trial budget, and at most


def read_own_work(study: Study) -> None:
    """Stores which graph passes were applied, why others were not, and the values in effect so far, in the session.

    Takes a few tenths of a second.
    """
    journal = study.journal
    if _PASSES.key in study.failed:  # TensorFlow's passes are native code: one that crashes may do so only once
        found = Optimisations(note=f"Reading TensorFlow's passes {study.failed[_PASSES.key]}.")
    else:
        journal.notify("trying", plan=_PASSES)
        found = optimisations.read(study.subject.source)
        journal.notify("stage", name="reading what TensorFlow did by itself")
    journal.dataset(optimisations=found)
    note_autotuned(study, {"defaults": AS_WRITTEN})


def watch_autotune(study: Study) -> None:
    """Reads the values that AUTOTUNE settles on for the original pipeline, if it has any to choose."""
    so_far = study.runner.readings.get(AS_WRITTEN.key)
    if so_far is None or not any(value.tunable for value in so_far.values):
        return
    study.journal.say("waiting for AUTOTUNE to settle")
    seconds = min(_WATCH_SECONDS, _WATCH_SHARE * study.settings.budget_seconds)
    with suppress(RunFailed):  # the baselines will report the failure
        study.runner.watch_autotune(AS_WRITTEN, seconds=seconds)


def note_autotuned(study: Study, plans: dict[str, Plan]) -> None:
    """Stores the values in effect under these plans in the session, as far as they were read in their windows."""
    seen = {
        name: study.runner.readings[plan.key]
        for name, plan in plans.items()
        if plan.key in study.runner.readings and name != "off"
    }
    study.journal.dataset(autotuned={**study.journal.result.autotuned, **seen})
