"""Between verdict and trials, with an accelerator only: how long the copy of one element to the device takes."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.measurement import RunFailed
from pipetune.core.profile import Profile
from pipetune.stages.study import Study
from pipetune.tf.measure.transfer import measure_transfer


def time_the_copy(study: Study, profile: Profile) -> Profile:
    """Returns the profile with the copy to the GPU timed; unchanged if the device is no GPU. Takes half a second."""
    if study.machine.device != "gpu":
        return profile
    journal = study.journal
    journal.say("timing the copy to the device")
    try:
        profile = replace(profile, transfer=measure_transfer(study.subject.source.dataset, "/GPU:0"))
    except RunFailed as failure:
        journal.update(notes=(*journal.session.notes, str(failure)))
    finally:
        study.runner.restore()
    study.runner.profile = profile
    journal.dataset(profile=profile)
    return profile
