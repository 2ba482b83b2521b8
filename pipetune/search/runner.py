"""What the search needs from the outside: something that measures a plan, the gate that proves once per plan that its
data are the same, and a listener.

Tests give it invented times, the worker gives it TensorFlow.
"""

from __future__ import annotations

from typing import Protocol

from pipetune.core.edits import Plan, Rewrite, needs_comparison
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Pause, RunFailed, Window
from pipetune.core.results import Comparison, Outcome, RejectionReason, Trial
from pipetune.core.time_plan import Clock

DEFAULTS = "defaults"
"""The baseline every gain is over: the pipeline as written, TensorFlow's default optimisations on."""


class Notify(Protocol):
    """Hears what the search does, as it does it.

    Events: "stage" (name), "trying" (plan: a window or a comparison of it begins), "pair" (plan, pairs, ratio: the
    leading plan of a race after a round), "trial" (trial: a finished `Trial`), "best" (plan, gain). A listener saves
    the session here: what was measured survives an interrupt, and which plan ran when the process died is known.
    """

    def __call__(self, event: str, /, **details: object) -> None: ...


def silent(event: str, /, **details: object) -> None:
    """A listener that listens to nothing."""


class Windows(Protocol):
    """Takes windows, each on a fresh iterator; whatever one changes is put back. Both kinds may raise `RunFailed`."""

    @property
    def trains(self) -> bool:
        """Whether training windows are possible: the consumer can be given another input."""

    @property
    def epoch_steps(self) -> int | None:
        """Elements of the pipeline per epoch, a training step each; None where nobody knows."""

    @property
    def pause(self) -> Pause | None:
        """The pauses of the input as written, if it comes in bursts; the start of an epoch is none."""

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        """Consumes the input as fast as it delivers, for `seconds` after `warmup_seconds`."""

    def training_window(self, plan: Plan, *, steps: int) -> Window:
        """Runs `steps` training steps."""


class Runner(Windows, Protocol):
    """Measures plans on the pipeline being tuned. Every method may raise `RunFailed`."""

    @property
    def shares_processors(self) -> bool:
        """Whether the model and the input compute on the same processors."""

    def compare(self, plan: Plan) -> Comparison:
        """Checks that the plan yields the data the pipeline yields as written, as far as its class promises."""

    def seconds_to_fill(self, plan: Plan, epoch_seconds: float | None) -> float | None:
        """Returns how long the caches that a plan adds take to be filled before its first window; None if unknown.

        Args:
            plan: the plan.
            epoch_seconds: what a pass over all elements takes; None if that is unknown.
        """

    def predicted_bytes(self, plan: Plan) -> float:
        """Returns the peak bytes predicted under `plan`, in the terms of the memory limit given to the search."""


class EqualityGate:
    """Compares plans through the runner; remembers the answers, and which rewrites are to blame."""

    def __init__(self, runner: Runner, clock: Clock, *, notify: Notify) -> None:
        self._runner, self._clock, self._notify = runner, clock, notify
        self._seconds: list[float] = []
        self._known: dict[str, Comparison | None] = {}
        self.blamed: dict[str, tuple[RejectionReason, str]] = {}  # by rewrite key
        self.trials: list[Trial] = []

    def cost(self, guess: float) -> float:
        """Seconds a comparison takes: the longest so far, or `guess`."""
        return max(self._seconds, default=guess)

    def comparison(self, plan: Plan) -> Comparison | None:
        """The comparison made of this plan; None where none was made or it could not be made."""
        return self._known.get(plan.key)

    def blame(self, rewrite: Rewrite, plan: Plan) -> None:
        """Keep that `rewrite` is why `plan`, which is not shown to be equal, is not."""
        why = next(trial.why for trial in self.trials if trial.plan.key == plan.key)
        comparison = self._known[plan.key]
        different = comparison is not None and not comparison.equal and not comparison.undecided
        reason = RejectionReason.NOT_EQUAL if different else RejectionReason.NOT_COMPARED
        self.blamed.setdefault(rewrite.key, (reason, why))

    def forget(self, plan: Plan) -> None:
        """Drops what an undecided comparison left of a plan that is not tried after all."""
        self.trials = [trial for trial in self.trials if trial.plan.key != plan.key]
        for rewrite in plan.rewrites:
            self.blamed.pop(rewrite.key, None)

    def equal(self, plan: Plan) -> bool:
        """Whether the plan yields the same data; a plan that does not, or is not shown to, is a trial."""
        if plan.key not in self._known:
            self._notify("trying", plan=plan)
            before = self._clock.now()
            try:
                comparison = self._runner.compare(plan)
                unmade = [f"{check.name}: {check.detail}" for check in comparison.checks if check.equal is None]
                why = comparison.why or "; ".join(unmade) or "no check of equality could be made"
            except (RunFailed, PipetuneError) as problem:
                comparison, why = None, f"could not be compared: {problem}"
            self._seconds.append(self._clock.now() - before)
            self._known[plan.key] = comparison
            if comparison is None or not allows(comparison, plan):
                undecided = comparison is not None and comparison.undecided
                unknown = comparison is None or comparison.equal or undecided
                reason = "not proven to be the same data" if unknown else "not the same data"
                outcome = Outcome.UNDECIDED if undecided else Outcome.REJECTED
                trial = Trial(plan, outcome, f"{reason}: {why}")
                self.trials.append(trial)
                self._notify("trial", trial=trial)
                if len(plan.rewrites) == 1:
                    self.blame(plan.rewrites[0], plan)
        known = self._known[plan.key]
        return known is not None and allows(known, plan)


def allows(comparison: Comparison, plan: Plan) -> bool:
    """Whether the plan may be used: proven equal, or of a kind that needs no proof and nothing found different."""
    return comparison.proven or (comparison.equal and not needs_comparison(plan.edits))
