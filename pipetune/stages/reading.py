"""Next to the verdict: notes on what TensorFlow Datasets reads for the script."""

from __future__ import annotations

from pipetune.core.tfds_reading import readings, sentence
from pipetune.stages.study import Study


def tell_reading(study: Study) -> None:
    """Adds a note for every call of TensorFlow Datasets in the studied pipeline."""
    if not study.journal.studies_training:
        return
    pipeline = study.subject.source.pipeline
    notes = tuple(sentence(pipeline, reading) for reading in readings(pipeline))
    if notes:
        study.journal.update(notes=(*study.journal.session.notes, *dict.fromkeys(notes)))
