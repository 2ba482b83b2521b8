"""Keeps the session of one analysis: every step replaces it by a more complete one and has it saved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from pipetune.core.edits import Plan
from pipetune.core.measurement import Interval, Trial
from pipetune.core.profile import Diagnosis, Finding
from pipetune.core.session import DatasetResult, Session
from pipetune.core.settings import Settings


class Listener(Protocol):
    """Receives the events of an analysis: in a worker, it sends them to the supervisor; in `tune`, it is optional."""

    def progress(self, phase: str, doing: str, *, best: str, elapsed: float, left: float | None) -> None: ...

    def verdict(self, diagnosis: Diagnosis, findings: tuple[Finding, ...]) -> None: ...

    def bottleneck(self, sentence: str) -> None: ...

    def saved(self, session: Session) -> None: ...

    def trial_started(self, key: str) -> None: ...

    def trial_ended(self, key: str) -> None: ...


class Silence:
    """A listener that ignores all events."""

    def progress(self, phase: str, doing: str, *, best: str, elapsed: float, left: float | None) -> None: ...

    def verdict(self, diagnosis: Diagnosis, findings: tuple[Finding, ...]) -> None: ...

    def bottleneck(self, sentence: str) -> None: ...

    def saved(self, session: Session) -> None: ...

    def trial_started(self, key: str) -> None: ...

    def trial_ended(self, key: str) -> None: ...


class Journal:
    """The session so far, the current phase, and the listener that is notified."""

    def __init__(self, session: Session, settings: Settings, listener: Listener) -> None:
        self.session = session
        self._settings = settings
        self._listener = listener
        self._started = time.monotonic()
        self._trials_started: float | None = None
        self._phase = "capture"
        self._best = ""
        self._trying: str | None = None
        self._current = 0

    def study_dataset(self, index: int) -> None:
        """Selects the dataset whose result `dataset` updates from now on."""
        self._current = index

    @contextmanager
    def phase(self, name: str, doing: str) -> Iterator[None]:
        """Context of one phase of the analysis: its duration goes into the session, even if it fails."""
        started = time.monotonic()
        self._phase = name
        if name == "trials":
            self._trials_started = started
        self.say(doing)
        try:
            yield
        finally:
            spent = dict(self.session.seconds)
            spent[name] = round(spent.get(name, 0.0) + time.monotonic() - started, 3)
            spent["total"] = round(time.monotonic() - self._started, 3)
            self.update(seconds=spent)

    def say(self, doing: str) -> None:
        """Reports the current activity as progress."""
        left = None
        if self._trials_started is not None:
            left = max(0.0, self._trials_started + self._settings.budget_seconds - time.monotonic())
        elapsed = time.monotonic() - self._started
        self._listener.progress(self._phase, doing, best=self._best, elapsed=elapsed, left=left)

    @property
    def result(self) -> DatasetResult:
        """The studied dataset's result so far."""
        return self.session.datasets[self._current]

    @property
    def studies_training(self) -> bool:
        """Whether the dataset studied now is the one training consumes."""
        return self._current == 0

    def update(self, **changes: Any) -> Session:
        """Replaces fields of the session and has it saved."""
        self.session = replace(self.session, **changes)
        self._listener.saved(self.session)
        return self.session

    def dataset(self, **changes: Any) -> DatasetResult:
        """Replaces fields of the studied dataset's result and has it saved."""
        results = list(self.session.datasets)
        results[self._current] = replace(results[self._current], **changes)
        self.update(datasets=tuple(results))
        return results[self._current]

    def verdict(self, diagnosis: Diagnosis) -> None:
        self._listener.verdict(diagnosis, self.session.findings)

    def bottleneck(self, diagnosis: Diagnosis) -> None:
        """Reports what bounds the input; only once its costs are final, as earlier it might name another line."""
        if diagnosis.bottleneck_sentence:
            self._listener.bottleneck(diagnosis.bottleneck_sentence)

    def notify(self, event: str, /, **details: Any) -> None:
        """Receives events of the search (`search.runner.Notify`): reports progress, records finished trials."""
        plan, gain = details.get("plan"), details.get("gain")
        match event:
            case "stage":
                self._end_trial()
                self.say(_STAGES.get(str(details["name"]), str(details["name"])))
            case "trying" if isinstance(plan, Plan):
                self._begin_trial(plan)
            case "trial":
                self._end_trial()
                trial: Trial = details["trial"]
                self.update(trials=(*self.session.trials, trial))
            case "best" if isinstance(plan, Plan) and isinstance(gain, Interval):  # without a gain it is a guess
                self._best = f"{_words(plan)}, {gain.median:.2f}x"

    def _begin_trial(self, plan: Plan) -> None:
        self._end_trial()
        self._trying = plan.key
        self._listener.trial_started(plan.key)
        self.say(f"trying {_words(plan)}")

    def _end_trial(self) -> None:
        if self._trying is not None:
            self._listener.trial_ended(self._trying)
            self._trying = None


_STAGES = {
    "baselines": "measuring the baselines",
    "screening": "screening rewrites",
    "decision": "measuring the best plans in pairs",
    "numbers": "trying numbers in AUTOTUNE's place",
    "ablation": "leaving out each rewrite in turn",
    "inside": "trying what gains inside the training step only",
    "offers": "measuring what consent would buy",
}


def _words(plan: Plan) -> str:
    rules = list(dict.fromkeys(rewrite.rule.removeprefix("baseline-") for rewrite in plan.rewrites))
    return " + ".join(rules) if rules else plan.name
