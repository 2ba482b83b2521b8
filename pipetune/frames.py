"""The trials of a session and the rates of its variants as tables of pandas; what was not measured is NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields

import pandas

from pipetune.core.results import Interval, Rate
from pipetune.core.session import Session
from pipetune.core.summary import RATES

TRIAL_COLUMNS = ("plan", "kind", "unit", "outcome", "gain", "low", "high", "pairs", "seconds", "why")
RATE_COLUMNS = ("variant", *(field.name for field in fields(Rate)))

_TRIAL_FIGURES = ("gain", "low", "high", "pairs", "seconds")


def trials_frame(session: Session) -> pandas.DataFrame:
    """Returns one row per trial, in the order in which they ended.

    `gain` is the ratio of the rate under the plan to that of what it was compared with, with its interval of 95 % from
    `low` to `high`; `unit` says of what: "training", or "input" alone.
    """
    rows = [
        (trial.plan.title, trial.kind, trial.unit, trial.outcome.value, *_figures(trial.gain), trial.seconds, trial.why)
        for trial in session.trials
    ]
    return _frame(rows, TRIAL_COLUMNS, figures=_TRIAL_FIGURES)


def rates_frame(session: Session) -> pandas.DataFrame:
    """Returns one row per variant of the main dataset's input that was measured alone.

    The variants are "off" (without TensorFlow's graph optimizations), "defaults" (the pipeline as it is), "autotune"
    (everywhere) and, with a plan, "tuned".
    """
    main = session.main_dataset
    rates = main.rates if main is not None else {}
    names = [name for name in RATES if name in rates and (name != "tuned" or session.plan is not None)]
    return _frame([(name, *astuple(rates[name])) for name in names], RATE_COLUMNS, figures=RATE_COLUMNS[1:])


def _figures(gain: Interval | None) -> tuple[float | None, ...]:
    return (gain.median, gain.low, gain.high, gain.pairs) if gain is not None else (None,) * 4


def _frame(rows: Sequence[tuple[object, ...]], columns: Sequence[str], *, figures: Sequence[str]) -> pandas.DataFrame:
    frame = pandas.DataFrame(rows, columns=list(columns))
    for name in figures:
        frame[name] = pandas.to_numeric(frame[name])
    return frame
