"""The session: all results of a run, and the only value passed from measuring to reporting."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from pipetune.core import results
from pipetune.core.distribution import INFERENCE, Coverage, InputDistribution, InputSkew, ModuleCheck, OriginalSharding
from pipetune.core.edits import NoProposal, Plan, Rewrite
from pipetune.core.machine import CpuLoad, Machine
from pipetune.core.measurement import Interval, Rate, StepSeries
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Diagnosis, Finding, Profile, Verdict
from pipetune.core.results import Comparison, Outcome, RejectionReason, Trial
from pipetune.core.settings import Command

SCHEMA = 1  # schema version of session.json and plan.json; files with a different one are not read


@dataclass(frozen=True)
class OptionalRewrite:
    """An optional rewrite: not in the plan, because it needs consent, but measured if time allows."""

    rewrite: Rewrite
    gain: Interval | None
    consent: str  # the option to add: "--allow reorder"
    why: str = ""


@dataclass(frozen=True)
class Rejection:
    """A rewrite that was left out, and why."""

    rule: str
    node: str
    why: str
    gain: Interval | None = None
    reason: RejectionReason | None = None  # None: it is in the plan, but not in the patch

    @property
    def undecided(self) -> bool:
        """Whether it is undecided because time ran out."""
        return self.reason in (RejectionReason.UNDECIDED, RejectionReason.NO_TIME)


@dataclass(frozen=True)
class Reproducibility:
    """Whether order and random draws are reproducible from run to run, and whether epochs stay separate."""

    reproducible_before: bool
    reproducible_after: bool
    epochs_kept: bool
    why: str = ""


LIKELY_FROM = 0.8
"""Probability of a gain above 3 % from which on an unproven plan is called likely."""

SHOWN_FROM = 0.5
"""Probability of such a gain from which on the patch of an unproven plan is shown."""

LIKELY_PAIRS = 3
"""Pairs of windows without which no plan is called likely, whatever the cost model expects."""

WORTH_APPROVAL = 1.03
"""Gain from which on the user is asked to allow a change: less makes no plan."""

NOTHING_BELOW = 0.1
"""Probability of such a gain below which there is nothing to gain from a plan."""


@dataclass(frozen=True)
class Candidate:
    """A plan that yields the same data and may be faster, but is not proven: the user decides whether to use it."""

    plan: Plan
    gain: Interval  # the middle 80 % of what the gain may be, from the cost model and all windows
    probability: float  # of a gain above 3 %
    unit: str  # what the gain is about: "training" or "input"
    why: str  # what is missing to a proof, a sentence
    comparison: Comparison | None = None
    patch: PatchResult | None = None  # None: it was not written, or the source cannot express it

    @property
    def diff(self) -> str:
        """Its patch; "" if there is none."""
        return self.patch.diff if self.patch is not None else ""

    @property
    def is_worth_a_patch(self) -> bool:
        """Whether it is more likely to gain 3 % than not to."""
        return self.probability >= SHOWN_FROM

    @property
    def is_shown(self) -> bool:
        return bool(self.diff) and self.is_worth_a_patch

    @property
    def likely(self) -> bool:
        """Whether it is probably faster, by windows and not by the cost model alone."""
        return self.probability >= LIKELY_FROM and self.gain.pairs >= LIKELY_PAIRS


@dataclass(frozen=True)
class DatasetResult:
    """One dataset of the script: its pipeline and, if it was tuned, all results."""

    pipeline: Pipeline
    role: str  # "training", "validation", "evaluation", "preview", "adapt", "other"
    consumer: str = ""  # how it is consumed, in words
    in_turn: bool = False  # each training step takes an element of it, too
    consumed_elements: int = 0
    file: str = ""  # where it is consumed
    line: int = 0
    loop: int | None = None  # which of the script's loops over datasets consumes it, from 0; None: no loop
    profile: Profile | None = None
    diagnosis: Diagnosis | None = None
    rates: dict[str, Rate] = field(default_factory=dict)  # "off", "defaults", "autotune", "tuned"
    plan: Plan | None = None  # the confirmed plan; None: no change
    candidate: Candidate | None = None  # the best plan that is not proven, where none is
    gains: dict[str, Interval] = field(default_factory=dict)  # per rewrite key, by ablation
    input_speedup: Interval | None = None  # tuned over defaults
    input_speedup_over_autotune: Interval | None = None
    predicted: Rate | None = None
    offered: tuple[OptionalRewrite, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    silences: tuple[NoProposal, ...] = ()
    comparison: Comparison | None = None
    order: Reproducibility | None = None
    tuned: Pipeline | None = None  # the pipeline with the plan applied
    predictions: tuple[results.PredictedRate, ...] = ()  # of the baselines and every plan tried
    what_if: tuple[results.Scenario, ...] = ()  # of the tuned pipeline, if there is one
    autotuned: dict[str, results.AutotuneValues] = field(default_factory=dict)  # "defaults", "autotune", "tuned"
    optimisations: results.OptimizationPasses | None = None  # TensorFlow's own graph passes
    course: results.RunDynamics | None = None  # of a run: first element, epoch boundaries, drift
    cost: results.DatasetCost | None = None  # over the whole process
    handover: InputDistribution | None = None  # how a strategy distributes it to the replicas; None: without one
    skew: InputSkew | None = None  # between the inputs of several workers in lockstep
    as_written: OriginalSharding | None = None  # what each worker receives; None: one worker, or not counted
    share: float | None = None  # of validation: what its input takes of an epoch of training and validation
    patch: PatchResult | None = None  # of validation: the session's patch with its own plan in it, to be verified
    step_series: dict[str, StepSeries] = field(default_factory=dict)  # "defaults", "tuned"; empty: nothing trains
    calls: dict[str, str] = field(default_factory=dict)  # source lines of the call that made each operator, by node id


@dataclass(frozen=True)
class TrainingResult:
    """Milliseconds per training step, and the speedup of the step."""

    defaults_step_ms: float | None = None
    tuned_step_ms: float | None = None
    bound_step_ms: float | None = None
    autotune_step_ms: float | None = None
    speedup: Interval | None = None
    why: str = ""  # why a figure is missing
    speedup_over_autotune: Interval | None = None


@dataclass(frozen=True)
class PatchResult:
    """The source patch: what it covers, and whether a run verified it."""

    diff: str = ""
    files: tuple[str, ...] = ()
    digests: dict[str, str] = field(default_factory=dict)  # sha256 of each file as captured
    covered: tuple[str, ...] = ()  # rewrite keys
    not_covered: tuple[Rejection, ...] = ()
    shared: tuple[str, ...] = ()  # covered rewrites that change every dataset created by the calls they edit
    verified: bool | None = None
    verification: str = ""  # result of the verification run
    expected: tuple[str, ...] = ()  # digests of the first elements that the patched source must yield
    texts: dict[str, str] = field(default_factory=dict)  # each file as captured; used to find the places to edit
    process_mib: float | None = None  # memory of a process that runs the script to its first step and measures
    gpu_mib: float | None = None  # the same on its fullest GPU; None: unknown
    of_cells: bool = False  # the diff names cells of a notebook, which pipetune does not write

    def covered_part(self, plan: Plan, name: str = "") -> Plan:
        """Returns the rewrites of `plan` that the patch covers, as a plan with this name or that of `plan`."""
        return Plan(name or plan.name, tuple(one for one in plan.rewrites if one.key in self.covered))


@dataclass(frozen=True)
class DistributedResult:
    """The generated module for distributed training, and the proof of its coverage."""

    kind: str
    module: str  # source text
    file: str
    notes: tuple[str, ...] = ()
    checks: tuple[ModuleCheck, ...] = ()  # one per number of workers
    companions: tuple[str, ...] = ()  # other files written to the same folder
    coverage: tuple[Coverage, ...] = ()  # the checks as counts, if elements were counted
    as_written: OriginalSharding | None = None  # the same for the original script on as many workers
    advice: tuple[str, ...] = ()  # sentences on whether to use it, and on alternatives
    service: results.ServiceNeed | None = None  # for the kind "service"
    stored: results.StoredPrefix | None = None  # alternative to a service; None: there is none


@dataclass(frozen=True)
class Session:
    """One run of pipetune on one script (or one dataset)."""

    version: str
    command: Command
    machine: Machine | None = None
    datasets: tuple[DatasetResult, ...] = ()
    trials: tuple[Trial, ...] = ()
    training: TrainingResult | None = None
    findings: tuple[Finding, ...] = ()
    advice: tuple[Finding, ...] = ()  # about the consumer of the data: no bugs, and no edits of the pipeline
    patch: PatchResult | None = None
    distributed: DistributedResult | None = None
    side_effects: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # how the search ended, and what was not possible
    load: CpuLoad | None = None  # usage of the available cores during the measurements
    status: str = "running"  # "running", "done", "interrupted", "failed", "no-dataset"
    status_detail: str = ""
    complete: bool = False

    @property
    def profiled_datasets(self) -> tuple[DatasetResult, ...]:
        """The datasets that were profiled or diagnosed, and validation if it has a plan or an offer."""
        return tuple(one for one in self.datasets if one.diagnosis or one.profile or one.plan or one.offered)

    @property
    def validation(self) -> DatasetResult | None:
        """The validation data if its plan is in a patch that was verified or is to be; None if it has none."""
        return next((one for one in self.datasets if one.patch is not None), None)

    @property
    def patch_to_verify(self) -> PatchResult | None:
        """The patch with the plans of training and validation; None if there is neither."""
        return self.validation.patch if self.validation is not None else self.patch

    @property
    def main_dataset(self) -> DatasetResult | None:
        """The main dataset of the session: the first one that was profiled or diagnosed."""
        return next((one for one in self.datasets if one.diagnosis or one.profile), None)

    @property
    def work(self) -> str:
        """What the script does with the main dataset: "training", or "inference" where it trains on none."""
        result = self.main_dataset
        return "inference" if result is not None and result.consumer in INFERENCE else "training"

    @property
    def diagnosis(self) -> Diagnosis | None:
        return self.main_dataset.diagnosis if self.main_dataset else None

    @property
    def candidate(self) -> Candidate | None:
        """The unproven plan of the main dataset; None if there is none, or one is proven."""
        return self.main_dataset.candidate if self.main_dataset else None

    @property
    def plan(self) -> Plan | None:
        """The confirmed plan of the main dataset; None if there is none."""
        return self.main_dataset.plan if self.main_dataset else None


class SessionOutcome(enum.StrEnum):
    PROVEN = "proven"  # a plan was confirmed
    LIKELY = "likely"  # a plan is probably faster, but not confirmed
    UNDECIDED = "undecided"  # something may be faster, but was not tried, not decided or not confirmed
    NONE = "none"  # no legal rewrite has more than a small chance to be faster
    NOT_INPUT_BOUND = "not-input-bound"  # a better input cannot save time
    UNTRIED = "untried"  # trials were not requested
    FAILED = "failed"  # the analysis did not complete


NOTHING_TO_CHANGE = frozenset({SessionOutcome.NONE, SessionOutcome.NOT_INPUT_BOUND})


def outcome_of(session: Session) -> SessionOutcome:
    dataset = session.main_dataset
    if session.status != "done" or dataset is None or dataset.diagnosis is None:
        return SessionOutcome.FAILED
    if dataset.plan is not None and dataset.plan.rewrites:
        return SessionOutcome.PROVEN
    if dataset.candidate is not None:
        return SessionOutcome.LIKELY if dataset.candidate.likely else SessionOutcome.UNDECIDED
    if dataset.diagnosis.verdict is Verdict.NOT_INPUT_BOUND:
        return SessionOutcome.NOT_INPUT_BOUND
    if has_accepted_trial(session) or undecided_trials(session) or untried_rewrites(session):
        return SessionOutcome.UNDECIDED
    tried = session.trials or dataset.rejected or session.command.options.trials
    return SessionOutcome.NONE if tried else SessionOutcome.UNTRIED


def best_offer(dataset: DatasetResult | None) -> tuple[OptionalRewrite, Interval] | None:
    """Returns what gained most of what needs approval and surely gains, with its gain; None if nothing surely does."""
    offers = offers_to_approve(dataset)
    sure = [(one, one.gain) for one in offers if one.gain is not None and one.gain.low > WORTH_APPROVAL]
    return max(sure, key=lambda one: one[1].median, default=None)


def offers_to_approve(dataset: DatasetResult | None) -> tuple[OptionalRewrite, ...]:
    """Returns what needs approval, without what needs more of it than another of its kind and surely gains no more."""
    offers = dataset.offered if dataset is not None else ()
    return tuple(one for one in offers if not any(_asks_less(other, one) for other in offers))


def _asks_less(offer: OptionalRewrite, other: OptionalRewrite) -> bool:
    """Whether an offer was measured to gain, needs less approval than another of its kind, and may gain as much."""
    less = offer.consent != other.consent and offer.rewrite.consents < other.rewrite.consents
    if offer.gain is None or offer.rewrite.group != other.rewrite.group or not less:
        return False
    return offer.gain.low > WORTH_APPROVAL and (other.gain is None or other.gain.low <= offer.gain.high)


def asks_for_approval(session: Session) -> bool:
    """Whether what needs approval is the answer: it surely gains, and nothing else is shown to."""
    shown = session.candidate is not None and session.candidate.is_shown
    nothing = outcome_of(session) in (SessionOutcome.NONE, SessionOutcome.UNDECIDED) and not shown
    return nothing and best_offer(session.main_dataset) is not None


def found_rewrites(session: Session) -> bool:
    """Whether any rewrite could be applied to the main dataset, tried or not."""
    dataset = session.main_dataset
    return bool(decisive_trials(session) or (dataset and (dataset.rejected or dataset.offered)))


def decisive_trials(session: Session) -> tuple[Trial, ...]:
    """Returns all trials except the baselines, which decide nothing."""
    return tuple(trial for trial in session.trials if trial.kind != "baseline")


def has_accepted_trial(session: Session) -> bool:
    """Whether a plan was faster in its trials; meant for sessions in which no plan was confirmed afterwards."""
    return any(trial.outcome is Outcome.ACCEPTED for trial in decisive_trials(session))


def undecided_trials(session: Session) -> int:
    """Returns the number of trials that were undecided when time ran out."""
    return sum(trial.outcome is Outcome.UNDECIDED for trial in decisive_trials(session))


def untried_rewrites(session: Session) -> int:
    """Returns the number of legal rewrites that are undecided because time ran out."""
    dataset = session.main_dataset
    return sum(rejection.undecided for rejection in dataset.rejected) if dataset else 0
