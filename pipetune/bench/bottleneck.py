"""The accuracy of diagnoses: how many injected bottlenecks are named, on real pipelines with real measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pipetune.bench import ProgressCallback
from pipetune.bench.dataset_study import create_study
from pipetune.bench.injected import SLOW_MAP, InjectedBottleneck, injected_bottlenecks
from pipetune.bench.resumable import ResumableResults
from pipetune.core import files
from pipetune.core.figures import Claim
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Cause, Diagnosis
from pipetune.core.settings import Settings
from pipetune.stages.planning import give_verdict
from pipetune.stages.profiling import take_profile
from pipetune.timing.iterators import shortened_pauses


@dataclass(frozen=True)
class Row:
    """One pipeline, as a row of the confusion table."""

    injected: str
    how: str
    wanted: str  # expected cause and operator, such as "operator: map"
    named: str  # those of the diagnosis
    evidence: str  # measurements of the training step, and the verdict

    @property
    def right(self) -> bool:
        """Whether the diagnosis named the injected bottleneck."""
        return self.wanted == self.named


@dataclass(frozen=True)
class Bottleneck:
    """The figure, with the confusion table."""

    cases: int
    named: int  # cases with the right cause and operator
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def measure(*, quick: bool, seed: int, progress: ProgressCallback, saved: ResumableResults) -> Bottleneck:
    """Diagnoses every pipeline; with `quick`, windows are as short as those of `analyze --quick`."""
    rows = []
    with shortened_pauses(), files.temporary_folder("bench") as folder:
        for case in injected_bottlenecks():
            progress(f"{case.name} ({case.how})")
            diagnose = partial(_row, case, folder, quick=quick, seed=seed)
            rows.append(saved.get(Row, f"{case.name} ({case.how})", diagnose))
    note = "Real pipelines through the profile and the diagnosis of `analyze`; cause and operator must both be right."
    return Bottleneck(len(rows), sum(row.right for row in rows), tuple(rows), (note,))


def claims(result: Bottleneck, *, quick: bool) -> Sequence[Claim]:
    """Returns a claim for each kind of bottleneck, and one for all of them."""
    found = []
    for kind in dict.fromkeys(row.injected for row in result.rows):
        rows = [row for row in result.rows if row.injected == kind]
        wrong = "; ".join(f"{row.how}: {row.named}" for row in rows if not row.right)
        measured = f"{sum(row.right for row in rows)} of {len(rows)} named" + (f" ({wrong})" if wrong else "")
        found.append(Claim(kind, measured, "all", not wrong))
    return [*found, Claim("all", f"{result.named} of {result.cases} named", "all", result.named == result.cases)]


def _row(case: InjectedBottleneck, folder: str, *, quick: bool, seed: int) -> Row:
    settings = Settings(trials=False, quick=quick, steps=case.steps, seed=seed)
    study = create_study(case.dataset(folder), consumer=case.consumer(), settings=settings)
    try:
        profile = take_profile(study)
        diagnosis = give_verdict(study, profile)
    finally:
        study.runner.close()
    step = profile.consumer
    times = [
        f"{name} {1e3 * seconds:.1f} ms"
        for name, seconds in (("real", step.real_seconds), ("bound", step.bound_seconds), ("input", step.input_seconds))
        if seconds is not None
    ]
    return Row(
        injected=case.name,
        how=case.how,
        wanted=_describe(case.cause, case.operator),
        named=_named(diagnosis, study.subject.source.pipeline),
        evidence=", ".join([*times, diagnosis.verdict.value, step.why]).rstrip(", "),
    )


def _named(diagnosis: Diagnosis, pipeline: Pipeline) -> str:
    """Returns cause and operator of a diagnosis; of a map other than the slow one also the function."""
    if diagnosis.cause_node is None:
        return _describe(diagnosis.cause, "")
    node = pipeline[diagnosis.cause_node]
    if node.op == "map" and node.function is not None and node.function.name != SLOW_MAP:
        return _describe(diagnosis.cause, f"{node.op} {node.function.name}")
    return _describe(diagnosis.cause, node.op)


def _describe(cause: Cause | None, operator: str) -> str:
    return f"{cause.value if cause else 'nothing'}{f': {operator}' if operator else ''}"
