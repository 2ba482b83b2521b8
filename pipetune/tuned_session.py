"""The session that `tune`, `profile` and `load` return: its answer as properties, as tables, and in a notebook."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.core import session_file
from pipetune.core.edits import Safety
from pipetune.core.measurement import Interval
from pipetune.core.pipeline import location_of
from pipetune.core.plan_file import PlanFile, plan_file, save_plan
from pipetune.core.profile import Finding, Verdict
from pipetune.core.session import Session, SessionOutcome, outcome_of

if TYPE_CHECKING:
    import pandas

_HEIGHT_PIXELS = 560  # of the report in a notebook: its first screen, without taking the cells around it off the screen


@dataclass(frozen=True)
class PlannedRewrite:
    """One rewrite of the plan: its rule, the call that it changes, what it may change in the data, and its gain."""

    rule: str
    file: str | None  # None: the call was not recorded
    line: int | None
    safety: Safety
    gain: Interval | None  # ratio of the rate with the plan to that without this rewrite; None: not measured


class TunedSession:
    """A session with its plan, its report and its tables."""

    def __init__(self, session: Session) -> None:
        """Takes a session as it was measured or loaded."""
        self.session = session

    @property
    def outcome(self) -> SessionOutcome:
        """What came of it: "proven", "likely", "undecided", "none", "not-input-bound", "untried" or "failed"."""
        return outcome_of(self.session)

    @property
    def verdict(self) -> Verdict:
        """Whether the input holds training back."""
        return self.session.diagnosis.verdict if self.session.diagnosis is not None else Verdict.UNDETERMINED

    @property
    def speedup(self) -> Interval | None:
        """Ratio of the rates of training with the plan and without it; None if that was not measured."""
        return self.session.training.speedup if self.session.training is not None else None

    @property
    def input_speedup(self) -> Interval | None:
        """Ratio of the rates of the input alone with the plan and without it; None if that was not measured."""
        main = self.session.main_dataset
        return main.input_speedup if main is not None else None

    @property
    def input_wait(self) -> Interval | None:
        """Share of a training step spent waiting for input, from 0 to 1; None if no step was measured."""
        return self.session.diagnosis.wait_share if self.session.diagnosis is not None else None

    @property
    def rewrites(self) -> tuple[PlannedRewrite, ...]:
        """The rewrites of the proven plan; empty without one."""
        main, plan = self.session.main_dataset, self.session.plan
        if main is None or plan is None:
            return ()
        return tuple(
            PlannedRewrite(
                rewrite.rule,
                place.file if (place := location_of(rewrite.node, main.pipeline, main.tuned)) else None,
                place.line if place else None,
                rewrite.safety,
                main.gains.get(rewrite.key),
            )
            for rewrite in plan.rewrites
        )

    @property
    def patch(self) -> str:
        """The proven plan as a diff of the source, of cells in a notebook; "" if there is none."""
        return self.session.patch.diff if self.session.patch is not None else ""

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What is wrong in the script, whatever pipetune changes."""
        return self.session.findings

    @property
    def plan(self) -> PlanFile | None:
        """The confirmed plan; without edits if nothing was proven faster, None if nothing was profiled."""
        return plan_file(self.session)

    def report(self, path: str | os.PathLike[str], *, format: str = "html") -> None:
        """Writes the report.

        Args:
            path: the file to write.
            format: "html", "markdown", "json" or "csv".
        """
        from pipetune.report.render import render

        render(self.session, format, Path(path))

    def to_frame(self) -> pandas.DataFrame:
        """Returns a table with one row per operator of the studied pipeline."""
        from pipetune.report.exports import to_frame

        return to_frame(self.session)

    def trials_frame(self) -> pandas.DataFrame:
        """Returns a table with one row per trial: the plan, what it was compared in, its outcome and its gain."""
        from pipetune.report.exports import trials_frame

        return trials_frame(self.session)

    def rates_frame(self) -> pandas.DataFrame:
        """Returns a table with one row per variant of the input alone: how fast it is, and what it takes."""
        from pipetune.report.exports import rates_frame

        return rates_frame(self.session)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes session.json.

        Raises:
            PipetuneError: the folder cannot be written to.
        """
        session_file.save(self.session, Path(path))

    def save_plan(self, path: str | os.PathLike[str]) -> None:
        """Writes plan.json, for `apply_plan` in another process; does nothing if there is no plan."""
        if self.plan is not None:
            save_plan(self.plan, Path(path))

    def __repr__(self) -> str:
        return f"<pipetune session: {', '.join(self._answer())}>"

    def _answer(self) -> Iterator[str]:
        """Yields the answer in a few words: outcome, gain and wait, each with its interval."""
        from pipetune.report import words
        from pipetune.report.words import interval

        candidate = self.session.candidate
        yield self.outcome.value
        if candidate is not None:
            yield f"{candidate.unit} {interval(candidate.gain, words.ratio).text} not proven"
        elif self.speedup is not None:
            yield f"training {interval(self.speedup, words.ratio).text}"
        elif self.input_speedup is not None:
            yield f"input alone {interval(self.input_speedup, words.ratio).text}"
        if self.input_wait is not None:
            yield f"input wait {interval(self.input_wait, words.percent).text}"

    def _repr_html_(self) -> str:
        """Returns the report for a notebook, in a frame of its own: neither page can change how the other looks."""
        from pipetune.report.render import render_text

        page = html.escape(render_text(self.session, "html"))
        return (
            f'<iframe srcdoc="{page}" title="pipetune report" sandbox="allow-scripts allow-popups allow-downloads" '
            f'width="100%" height="{_HEIGHT_PIXELS}" style="border: 0"></iframe>'
        )


def finished(session: Session) -> TunedSession:
    """Returns a session that was measured in this process; in a notebook, its places are those of cells."""
    from pipetune.source.cells import Cells

    return TunedSession(Cells().finish(session))
