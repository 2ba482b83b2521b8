"""The session: everything measured, the only value that crosses from measuring to showing."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from pipetune.core.autotuned import AutotuneReading
from pipetune.core.believed import Load
from pipetune.core.comparison import Comparison
from pipetune.core.course import Course, DatasetCost
from pipetune.core.coverage import AsWritten, Coverage
from pipetune.core.edits import Plan, Rewrite, Silence
from pipetune.core.handover import Handover
from pipetune.core.machine import Machine
from pipetune.core.measurement import Interval, Rate, Trial
from pipetune.core.optimisations import Optimisations
from pipetune.core.pipeline import Pipeline
from pipetune.core.prediction import PredictedRate
from pipetune.core.profile import Diagnosis, Finding, Profile
from pipetune.core.service import ServiceNeed, StoredPrefix
from pipetune.core.skew import InputSkew
from pipetune.core.what_if import Scenario

SCHEMA = 1


@dataclass(frozen=True)
class Offer:
    """A rewrite that needs consent, measured all the same."""

    rewrite: Rewrite
    gain: Interval | None
    consent: str  # what to add: "--allow reorder"
    why: str = ""


class Reason(enum.StrEnum):
    """Why the search left a rewrite out of the plan."""

    NOT_EQUAL = "not-equal"  # the comparison found other data
    NOT_COMPARED = "not-compared"  # the comparison could not show that the data are the same
    FAILED = "failed"  # it raised, hung or was killed
    REFUSED = "refused"  # above the memory limit, or it cannot be measured here
    EXCLUDED = "excluded"  # it must not stand beside what is in the plan
    OTHER_KIND = "other-kind"  # another of its group, or another number, was tried in its place
    PREDICTED_SLOWER = "predicted-slower"  # not run
    NOT_EXPECTED = "not-expected"  # model and short windows together expect no gain that counts; no pairs
    NOT_FASTER = "not-faster"  # measured in pairs, and not proven faster
    ADDS_NOTHING = "adds-nothing"  # measured in pairs beside the rest of the plan
    UNDECIDED = "undecided"  # the time was up while it was measured in pairs
    NO_TIME = "no-time"  # a gain was possible, and the time was up before it was measured in pairs
    NEEDS_CONSENT = "needs-consent"


@dataclass(frozen=True)
class Rejection:
    """A rewrite that did not make it, and why."""

    rule: str
    node: str
    why: str
    gain: Interval | None = None
    reason: Reason | None = None  # None: the plan has it, and it is not in the patch

    @property
    def open(self) -> bool:
        """Whether no measurement decided on it, for the time was over."""
        return self.reason in (Reason.UNDECIDED, Reason.NO_TIME)


@dataclass(frozen=True)
class Order:
    """Whether order and draws repeat from run to run, and whether epochs stay apart."""

    reproducible_before: bool
    reproducible_after: bool
    epochs_kept: bool
    why: str = ""


@dataclass(frozen=True)
class DatasetResult:
    """One dataset of the script: its pipeline, and for the tuned ones all results."""

    pipeline: Pipeline
    role: str  # "training", "validation", "evaluation", "preview", "adapt", "other"
    consumer: str = ""  # how it is consumed, in words
    consumed_elements: int = 0
    file: str = ""  # where it is consumed
    line: int = 0
    profile: Profile | None = None
    diagnosis: Diagnosis | None = None
    rates: dict[str, Rate] = field(default_factory=dict)  # "off", "defaults", "autotune", "tuned"
    plan: Plan | None = None  # the confirmed plan; None: nothing to change
    gains: dict[str, Interval] = field(default_factory=dict)  # per rewrite key, by ablation
    input_speedup: Interval | None = None  # tuned over defaults
    input_speedup_over_autotune: Interval | None = None
    predicted: Rate | None = None
    offered: tuple[Offer, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    silences: tuple[Silence, ...] = ()
    comparison: Comparison | None = None
    order: Order | None = None
    tuned: Pipeline | None = None  # the pipeline with the plan applied
    predictions: tuple[PredictedRate, ...] = ()  # of the baselines and every plan tried
    what_if: tuple[Scenario, ...] = ()  # of the tuned pipeline, where there is one
    autotuned: dict[str, AutotuneReading] = field(default_factory=dict)  # "defaults", "autotune", "tuned"
    optimisations: Optimisations | None = None  # TensorFlow's own graph passes
    course: Course | None = None  # of a run: first element, epoch borders, drift
    cost: DatasetCost | None = None  # over the whole process
    handover: Handover | None = None  # how a strategy takes it to the replicas that train; None: nothing is between
    skew: InputSkew | None = None  # between the inputs of several workers in step
    as_written: AsWritten | None = None  # what each worker of the job gets; None: it has one, or it was not counted


@dataclass(frozen=True)
class Training:
    """Milliseconds per training step, and the speedup of the whole."""

    defaults_step_ms: float | None = None
    tuned_step_ms: float | None = None
    bound_step_ms: float | None = None
    autotune_step_ms: float | None = None
    speedup: Interval | None = None
    why: str = ""  # why a figure is missing
    speedup_over_autotune: Interval | None = None


@dataclass(frozen=True)
class PatchResult:
    """The source patch: what it covers, and whether running it proved it."""

    diff: str = ""
    files: tuple[str, ...] = ()
    digests: dict[str, str] = field(default_factory=dict)  # sha256 of each file as captured
    covered: tuple[str, ...] = ()  # rewrite keys
    not_covered: tuple[Rejection, ...] = ()
    shared: tuple[str, ...] = ()  # of those covered, what changes every dataset of the calls that it changes
    verified: bool | None = None
    verification: str = ""  # what running it showed
    expected: tuple[str, ...] = ()  # digests of the first elements the patched source must yield
    texts: dict[str, str] = field(default_factory=dict)  # each file as captured: what its places are found by
    process_mib: float | None = None  # that a process needs to run the script to its first step and measure there


@dataclass(frozen=True)
class DistributedResult:
    """The emitted distributed form, and the proof of its coverage."""

    kind: str
    module: str  # source text
    file: str
    notes: tuple[str, ...] = ()
    checks: tuple[dict[str, object], ...] = ()  # per worker count: workers, elements, missing, ...
    companions: tuple[str, ...] = ()  # files written beside the module
    coverage: tuple[Coverage, ...] = ()  # the checks in numbers, where elements were counted
    as_written: AsWritten | None = None  # what as many workers would get of the script as it is
    advice: tuple[str, ...] = ()  # whether it is the form to use, and what could take its place; sentences
    service: ServiceNeed | None = None  # of `service`
    stored: StoredPrefix | None = None  # beside a service: what could take its place; None: nothing could


@dataclass(frozen=True)
class Session:
    """One run of pipetune on one script (or one dataset)."""

    version: str
    command: dict[str, object]  # script, arguments, options, seed, date
    machine: Machine | None = None
    datasets: tuple[DatasetResult, ...] = ()
    trials: tuple[Trial, ...] = ()
    training: Training | None = None
    findings: tuple[Finding, ...] = ()
    advice: tuple[Finding, ...] = ()  # on what consumes the data: no bug, and no edit of the pipeline follows it
    patch: PatchResult | None = None
    distributed: DistributedResult | None = None
    side_effects: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # how the search ended, and what it could not do
    load: Load | None = None  # who used the granted cores while measuring
    status: str = "running"  # "running", "done", "interrupted", "failed", "no-dataset"
    status_detail: str = ""
    complete: bool = False

    @property
    def studied(self) -> tuple[DatasetResult, ...]:
        """The datasets that were profiled or diagnosed, the others left out."""
        return tuple(dataset for dataset in self.datasets if dataset.diagnosis or dataset.profile)

    @property
    def tuned_dataset(self) -> DatasetResult | None:
        """The dataset the session is about: the first that was diagnosed."""
        return next(iter(self.studied), None)

    @property
    def plan(self) -> Plan | None:
        dataset = self.tuned_dataset
        return dataset.plan if dataset else None
