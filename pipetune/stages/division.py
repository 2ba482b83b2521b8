"""After the trials: what each worker of the script's job gets of the data, if the environment names several."""

from __future__ import annotations

from pipetune.stages.study import Study
from pipetune.tf.measure import as_written
from pipetune.tf.pipelines import findings
from pipetune.tf.script import workers

_CODES = frozenset(
    {"unsharded-workers", "data-left-out", "data-repeated", "too-few-files", "idle-workers", "uneven-workers",
     "read-by-all-workers", "shuffled-apart"}
)  # fmt: skip
_MOST_BYTES = 64 * 2**20  # of files; each worker reads them about twice


def count_division(study: Study) -> None:
    """Counts what each worker gets of the training data of the unchanged script; the warnings include the counts."""
    journal, subject = study.journal, study.subject
    if not journal.studies_training:
        return
    job = workers.job(subject.use)
    if job is None:
        return
    with journal.phase("division", f"counting what each of {job.workers} workers gets"):
        found = as_written.divide(subject.source, job, most_bytes=_MOST_BYTES)
        study.runner.restore()
    told = findings.of_division(subject.source, subject.use, found)
    earlier = [one for one in journal.session.findings if one.code not in _CODES]
    journal.dataset(as_written=found)
    journal.update(findings=tuple(dict.fromkeys((*earlier, *told))))
