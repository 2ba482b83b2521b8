"""Keeps the session of one analysis: every step replaces it by a more complete one, which is saved."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pipetune.core.edits import Plan
from pipetune.core.measurement import Interval
from pipetune.core.profile import Diagnosis, Finding, Verdict
from pipetune.core.results import Trial
from pipetune.core.session import DatasetResult, Session
from pipetune.core.time_plan import TimePlan


class Listener:
    """Receives the events of an analysis; this one ignores them. In a worker, they are sent to the supervisor."""

    def progress(self, phase: str, doing: str, *, best: str, left: float | None) -> None:
        """The current activity has changed.

        Args:
            phase: name of the phase: "capture", "profile", "trials".
            doing: the activity in words.
            best: the best plan so far in words; "" if there is none.
            left: seconds of the budget that are left; None before the first training step.
        """

    def verdict(self, diagnosis: Diagnosis, findings: tuple[Finding, ...]) -> None:
        """The verdict is known."""

    def bottleneck(self, sentence: str) -> None:
        """The bottleneck of the input is known."""

    def saved(self, session: Session) -> None:
        """The session has changed and should be saved."""

    def trial_started(self, plan: Plan) -> None:
        """A trial of the plan begins."""

    def trial_ended(self, key: str) -> None:
        """The trial of the plan with this key has ended."""


class Journal:
    """The session so far, the current phase, and the listener that is notified."""

    def __init__(self, session: Session, time_plan: TimePlan, listener: Listener) -> None:
        self.session = session
        self.time_plan = time_plan
        self._listener = listener
        self._started = time.monotonic()
        self._phase = "capture"
        self._best = ""
        self._trying: str | None = None
        self._current = 0
        self._standing = ""  # of the race that runs: pairs so far, and the ratio of the leading plan

    def go_on_with(self, session: Session, time_plan: TimePlan) -> None:
        """Goes on with the session of another process, whose main dataset is studied here."""
        main = session.main_dataset
        self.session, self.time_plan = session, time_plan
        self._current = next(index for index, one in enumerate(session.datasets) if one is main)

    def select_dataset(self, index: int, time_plan: TimePlan) -> None:
        """Selects the dataset with this index, whose result `update_dataset` then updates, and its own time plan."""
        self._current, self.time_plan = index, time_plan

    @contextmanager
    def phase(self, name: str, doing: str) -> Iterator[None]:
        """Context manager for one phase of the analysis: stores its duration in the session, even if it fails."""
        started = time.monotonic()
        self._phase = name
        self.report_progress(doing)
        try:
            yield
        finally:
            spent = dict(self.session.seconds)
            spent[name] = round(spent.get(name, 0.0) + time.monotonic() - started, 3)
            spent["total"] = round(time.monotonic() - self._started, 3)
            spent["budget"] = round(self.time_plan.spent(), 3)
            self.update(seconds=spent)

    def report_progress(self, doing: str) -> None:
        """Reports the current activity as progress."""
        left = None if self._phase == "capture" else max(0.0, self.time_plan.seconds - self.time_plan.spent())
        self._listener.progress(self._phase, doing, best=self._best, left=left)

    @property
    def result(self) -> DatasetResult:
        """The studied dataset's result so far."""
        return self.session.datasets[self._current]

    @property
    def studies_training(self) -> bool:
        """Whether the dataset being studied is the one that training consumes."""
        return self._current == 0

    def update(self, **changes: Any) -> Session:
        """Replaces fields of the session, saves it, and returns it."""
        self.session = replace(self.session, **changes)
        self._listener.saved(self.session)
        return self.session

    def update_dataset(self, **changes: Any) -> None:
        """Replaces fields of the studied dataset's result, and saves the session."""
        results = list(self.session.datasets)
        results[self._current] = replace(results[self._current], **changes)
        self.update(datasets=tuple(results))

    def add_notes(self, *notes: str, **changes: Any) -> None:
        """Adds notes to the session, saved together with other changes of it; without either nothing is saved."""
        if notes or changes:
            self.update(notes=(*self.session.notes, *notes), **changes)

    def add_findings(self, found: Iterable[Finding], **changes: Any) -> None:
        """Adds findings to the session, each once, saved together with other changes of it, as in `add_notes`."""
        findings = tuple(dict.fromkeys((*self.session.findings, *found)))
        if changes or findings != self.session.findings:
            self.update(findings=findings, **changes)

    def report_verdict(self, diagnosis: Diagnosis) -> None:
        """Reports the verdict and the findings."""
        self._listener.verdict(diagnosis, self.session.findings)

    def report_bottleneck(self, diagnosis: Diagnosis) -> None:
        """Reports the bottleneck of an input that may hold training back; call it once costs are final."""
        if diagnosis.bottleneck_sentence and diagnosis.verdict is not Verdict.NOT_INPUT_BOUND:
            self._listener.bottleneck(diagnosis.bottleneck_sentence)

    def notify(self, event: str, /, **details: Any) -> None:
        """Receives events of the search (`search.runner.Notify`): reports progress and records finished trials.

        Args:
            event: "stage", "trying", "pair", "trial" or "best"; others are ignored.
            details: "name" of a stage, "plan" and "gain" of a trial, "pairs" and "ratio" of a plan, or the "trial".
        """
        plan, gain = details.get("plan"), details.get("gain")
        match event:
            case "stage":
                self._end_trial()
                self._standing = ""
                self.report_progress(_STAGES.get(str(details["name"]), str(details["name"])))
            case "trying" if isinstance(plan, Plan):
                self._begin_trial(plan)
            case "pair" if isinstance(plan, Plan):
                self._standing = f"{plan.title}: pair {details['pairs']}, {details['ratio']:.2f}x so far"
                self.report_progress(self._standing)
            case "trial":
                self._end_trial()
                trial: Trial = details["trial"]
                self.update(trials=(*self.session.trials, trial))
            case "best" if isinstance(plan, Plan) and isinstance(gain, Interval):  # without a gain it is a guess
                self._best = f"{plan.title}, {gain.median:.2f}x"

    def _begin_trial(self, plan: Plan) -> None:
        self._end_trial()
        self._trying = plan.key
        self._listener.trial_started(plan)
        self.report_progress(self._standing or f"trying {plan.title}")

    def _end_trial(self) -> None:
        if self._trying is not None:
            self._listener.trial_ended(self._trying)
            self._trying = None


_STAGES = {
    "windows": "measuring the current pipeline",
    "baselines": "measuring the baselines",
    "screening": "screening rewrites",
    "decision": "measuring the best plans in pairs",
    "ablation": "leaving out each rewrite in turn",
    "inside": "trying rewrites that only gain inside the training step",
    "offers": "measuring rewrites that need consent",
}
