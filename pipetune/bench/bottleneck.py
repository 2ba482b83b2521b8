"""How many injected bottlenecks are named: real pipelines through the real profile and diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipetune.bench import Say
from pipetune.core import files
from pipetune.core.accuracy import Claim
from pipetune.core.command import Command
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Cause, Diagnosis
from pipetune.core.session import Session
from pipetune.core.settings import Settings
from pipetune.core.time_plan import TimePlan
from pipetune.core.version import VERSION
from pipetune.journal import Journal, Listener
from pipetune.timing.iterators import shortened_pauses

if TYPE_CHECKING:
    from pipetune.bench.injected import Injected

_INJECTED_MAP = "injected"  # the name of the function of the slow map, where there are several maps


@dataclass(frozen=True)
class Row:
    """One pipeline of the confusion table."""

    injected: str
    how: str
    wanted: str  # cause and operator, "operator: map"
    named: str
    evidence: str  # the three measurements of the step, and the verdict

    @property
    def right(self) -> bool:
        return self.wanted == self.named


@dataclass(frozen=True)
class Bottleneck:
    """The confusion table."""

    cases: int
    named: int  # cases in which cause and operator were both named
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        """Injected against named, one line per case; the wrong ones marked."""
        lines = [
            f"{'' if row.right else 'WRONG':6}{f'{row.injected} ({row.how})':55}{row.named:28}{row.evidence}"
            for row in self.rows
        ]
        return "\n".join(lines)


def measure(*, quick: bool, seed: int, say: Say) -> Bottleneck:
    """Diagnoses every injected pipeline; `quick` with the windows of `analyze --quick`."""
    from pipetune.bench.injected import cases

    rows = []
    with shortened_pauses(), files.temporary_folder("bench") as folder:
        for case in cases():
            say(f"{case.name} ({case.how})")
            rows.append(_row(case, folder, quick=quick, seed=seed))
    note = "Real pipelines through the profile and the diagnosis of `analyze`; cause and operator must both be right."
    return Bottleneck(len(rows), sum(row.right for row in rows), tuple(rows), (note,))


def claims(found: Bottleneck, *, quick: bool) -> Sequence[Claim]:
    """Each kind of injection, then all of them."""
    kinds = dict.fromkeys(row.injected for row in found.rows)
    claimed = []
    for kind in kinds:
        rows = [row for row in found.rows if row.injected == kind]
        wrong = "; ".join(f"{row.how}: {row.named}" for row in rows if not row.right)
        measured = f"{sum(row.right for row in rows)} of {len(rows)} named" + (f" ({wrong})" if wrong else "")
        claimed.append(Claim(kind, measured, "all", not wrong))
    return [*claimed, Claim("all", f"{found.named} of {found.cases} named", "all", found.named == found.cases)]


def _row(case: Injected, folder: str, *, quick: bool, seed: int) -> Row:
    from pipetune.capture.consumption import Consumption
    from pipetune.measure import machine
    from pipetune.pipelines import live
    from pipetune.stages.planning import give_verdict
    from pipetune.stages.profiling import take_profile
    from pipetune.stages.study import Study, Subject

    settings = Settings(trials=False, quick=quick, steps=case.steps, seed=seed)
    source = live.read(case.dataset(folder))
    subject = Subject(source, case.consumer(), Consumption(source.dataset, "dataset", "training", "pipetune bench"))
    here = machine.read_machine()
    journal = Journal(
        Session(VERSION, Command(), machine=here, datasets=subject.results()), TimePlan.of(settings), Listener()
    )
    study = Study(subject, settings, here, journal)
    try:
        profile = take_profile(study)
        diagnosis = give_verdict(study, profile)
    finally:
        study.runner.close()
    step = profile.consumer
    figures = [
        f"{name} {1e3 * seconds:.1f} ms"
        for name, seconds in (("real", step.real_seconds), ("bound", step.bound_seconds), ("input", step.input_seconds))
        if seconds is not None
    ]
    return Row(
        injected=case.name,
        how=case.how,
        wanted=_words(case.cause, case.operator),
        named=_named(diagnosis, source.pipeline),
        evidence=", ".join([*figures, diagnosis.verdict.value, step.why]).rstrip(", "),
    )


def _named(diagnosis: Diagnosis, pipeline: Pipeline) -> str:
    """Cause and operator, a map that is not the injected one by its function too."""
    if diagnosis.cause_node is None:
        return _words(diagnosis.cause, "")
    node = pipeline[diagnosis.cause_node]
    other = node.op == "map" and node.function is not None and node.function.name != _INJECTED_MAP
    return _words(diagnosis.cause, f"{node.op} {node.function.name}" if other and node.function else node.op)


def _words(cause: Cause | None, operator: str) -> str:
    return f"{cause.value if cause else 'nothing'}{f': {operator}' if operator else ''}"
