"""The gate every plan passes before it may be accepted: the same data, proven once per plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipetune.core.comparison import Comparison
from pipetune.core.edits import Plan, Rewrite, needs_proof
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Outcome, RunFailed, Trial
from pipetune.search.budget import Part
from pipetune.search.composing import Composer
from pipetune.search.runner import Clock, Notify, Runner


class EqualityGate:
    """Compares plans through the runner; remembers the answers, and which rewrites are to blame."""

    def __init__(self, runner: Runner, clock: Clock, *, notify: Notify) -> None:
        self._runner = runner
        self._clock = clock
        self._seconds: list[float] = []
        self._notify = notify
        self._known: dict[str, Comparison | None] = {}
        self.blamed: dict[str, str] = {}
        self.trials: list[Trial] = []

    def cost(self, guess: float) -> float:
        """Seconds a comparison takes: the longest so far, or `guess`."""
        return max(self._seconds, default=guess)

    def comparison(self, plan: Plan) -> Comparison | None:
        """The comparison made of this plan; None where none was made or it could not be made."""
        return self._known.get(plan.key)

    def equal(self, plan: Plan) -> bool:
        """Whether the plan yields the same data; a plan that does not, or is not shown to, is a trial."""
        if plan.key not in self._known:
            self._notify("trying", plan=plan, part=Part.SEARCH)
            before = self._clock.now()
            try:
                comparison = self._runner.compare(plan)
                why = comparison.why or _unproven(comparison)
            except (RunFailed, PipetuneError) as problem:
                comparison, why = None, f"could not be compared: {problem}"
            self._seconds.append(self._clock.now() - before)
            self._known[plan.key] = comparison
            if comparison is None or not allows(comparison, plan):
                unknown = comparison is None or comparison.equal
                said = "not proven to be the same data" if unknown else "not the same data"
                outcome = Outcome.UNDECIDED if comparison and comparison.undecided else Outcome.REJECTED
                trial = Trial(plan, outcome, f"{said}: {why}")
                self.trials.append(trial)
                self._notify("trial", trial=trial)
                if len(plan.rewrites) == 1:
                    self.blamed[plan.rewrites[0].key] = trial.why
        known = self._known[plan.key]
        return known is not None and allows(known, plan)

    def largest_equal(self, plan: Plan, composer: Composer, *, enough: Callable[[], bool]) -> Plan:
        """`plan` where it yields the same data, else what is left without the rewrites that change it.

        Found by halves: one culprit among n costs about 2 log n comparisons, and what is returned was
        compared as it is. Empty where nothing is left, or where `enough` says that the time for comparing is
        over.
        """
        kept = self._grown((), plan.rewrites, composer, enough)
        return composer.plan(kept)

    def _grown(
        self,
        kept: tuple[Rewrite, ...],
        more: Sequence[Rewrite],
        composer: Composer,
        enough: Callable[[], bool],
    ) -> tuple[Rewrite, ...]:
        """`kept`, known to be equal, and those of `more` that keep it so."""
        grown = composer.plan([*kept, *more])
        if not more or composer.conflict(grown):
            return kept
        if self._known and grown.key not in self._known and not enough():
            return kept
        if self.equal(grown):
            return grown.rewrites
        if len(more) == 1:
            self.blamed.setdefault(more[0].key, self.trials[-1].why)
            return kept
        middle = (len(more) + 1) // 2
        kept = self._grown(kept, more[:middle], composer, enough)
        return self._grown(kept, more[middle:], composer, enough)


def allows(comparison: Comparison, plan: Plan) -> bool:
    """Whether the plan may be used: proven equal, or of a kind that needs no proof and nothing found different."""
    return comparison.proven or (comparison.equal and not needs_proof(plan.edits))


def _unproven(comparison: Comparison) -> str:
    """Why values could not be compared."""
    missing = [check for check in comparison.checks if check.equal is None]
    return "; ".join(f"{check.name} {check.detail}" for check in missing) or "no check of equality could be made"
