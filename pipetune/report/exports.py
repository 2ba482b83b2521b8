"""A session for other programs: tables of pandas (operators, trials, rates), its operators as CSV, where what was not
measured is NaN, and a trace: steps as measured, and operators by thread; opens in Perfetto and chrome://tracing.

The format is the JSON of Chrome's Trace Event Format: complete events ("X") with microseconds, and metadata ("M") that
names processes and threads (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from typing import TYPE_CHECKING

from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Interval, Rate, StepSeries
from pipetune.core.pipeline import Node
from pipetune.core.profile import OperatorProfile, Profile, Stage
from pipetune.core.session import DatasetResult, Session
from pipetune.core.summary import RATES
from pipetune.report import words
from pipetune.report.places import Places, places_of
from pipetune.report.why import step_seconds

if TYPE_CHECKING:
    import pandas


COLUMNS = ("dataset", "role", "node", "operator", "function", "source", "stage", "cpu_us", "wall_us", "cpu_share",
           "elements", "elements_in_per_out", "bytes_in", "bytes_out", "buffered_bytes", "random", "python",
           "bottleneck", "cpu_us_low", "cpu_us_high", "waiting_us", "cost_source")  # fmt: skip
"""Costs are microseconds per element put out; the share is a fraction of the input's CPU time."""

_FIGURES = ("cpu_us", "wall_us", "cpu_share", "elements", "elements_in_per_out", "bytes_in", "bytes_out", "cpu_us_low",
            "cpu_us_high", "waiting_us", "buffered_bytes")  # fmt: skip

TRIAL_COLUMNS = ("plan", "kind", "unit", "outcome", "gain", "low", "high", "pairs", "seconds", "why")
RATE_COLUMNS = ("variant", *(field.name for field in fields(Rate)))
_TRIAL_FIGURES = ("gain", "low", "high", "pairs", "seconds")

# A spreadsheet takes a cell that begins so for a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def to_frame(session: Session) -> pandas.DataFrame:
    """Returns one row per operator of every studied dataset, see `COLUMNS`."""
    places = places_of(session)
    rows = [_row(result, node, places) for result in session.profiled_datasets for node in result.pipeline]
    return _frame(rows, COLUMNS, figures=_FIGURES)


def csv(session: Session) -> str:
    """The operators as CSV (RFC 4180, with line feeds); a text that a spreadsheet would run is quoted."""

    def harmless(value: object) -> object:
        return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value

    return to_frame(session).map(harmless).to_csv(index=False, lineterminator="\n")


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


def _frame(rows: Sequence[Sequence[object]], columns: Sequence[str], *, figures: Sequence[str]) -> pandas.DataFrame:
    import pandas

    frame = pandas.DataFrame(rows, columns=list(columns))
    for name in figures:
        frame[name] = pandas.to_numeric(frame[name])
    return frame


def _row(result: DatasetResult, node: Node, places: Places) -> list[object]:
    profile = result.profile
    seen = profile.operator(node.id) if profile is not None else None
    operator = seen or OperatorProfile(node.id, Stage.TRANSFORM)
    function = node.function
    span = operator.cpu_interval
    bytes_out = operator.bytes_out if operator.bytes_out is not None else node.element_bytes
    return [
        words.clean(result.pipeline.name),
        words.clean(result.role),
        words.clean(node.id),
        words.clean(node.title),
        words.clean(function.name) if function and not places.confidential else "",
        places.location(node.location),
        operator.stage.value if seen else "",
        _microseconds(operator.cpu_seconds),
        _microseconds(operator.wall_seconds),
        _share(operator, profile),
        operator.elements,
        operator.ratio,
        operator.bytes_in,
        bytes_out,
        operator.buffered_bytes,
        operator.random or bool(function and function.random),
        operator.python or bool(function and function.python),
        result.diagnosis is not None and node.id == result.diagnosis.bottleneck,
        _microseconds(span.low) if span else None,
        _microseconds(span.high) if span else None,
        _microseconds(operator.waiting_seconds),
        operator.cost_source.value if operator.cpu_seconds is not None else "",
    ]


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def _share(operator: OperatorProfile, profile: Profile | None) -> float | None:
    """The share of the CPU time of the whole input."""
    times = [step_seconds(one) for one in profile.operators] if profile is not None else []
    total = sum(time[0] for time in times if time is not None)
    own = step_seconds(operator)
    return own[0] / total if own is not None and total else None


_TRAINING = 1  # thread

Event = dict[str, object]


def trace(session: Session) -> str:
    """Returns the trace as JSON.

    Steps and waits are as measured. Operators are drawn with their mean times, in the thread they share, so that they
    end when the step takes the element; those of the tuned pipeline are not known one by one.

    Raises:
        PipetuneError: no single steps were recorded.
    """
    result = session.main_dataset
    series = {name: one for name, one in (result.step_series if result else {}).items() if one.step_seconds}
    if result is None or not series:
        reasons = [one.why for one in result.step_series.values() if one.why] if result else []
        why = f" {words.sentence(reasons[0])}" if reasons else ""
        raise PipetuneError(
            f"This session has no recorded training steps, which a trace consists of.{why}",
            hint="They are recorded after the decision, where a training step could be measured: analyze the script "
            "again, with a larger --budget if time was short.",
        )
    events: list[Event] = []
    for number, (name, one) in enumerate(series.items(), start=1):
        operators_of = result if name == "defaults" else None
        events += _process(number, words.VARIANTS.get(name, name), one, operators_of, places_of(session))
    data = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"pipetune": session.version, "date": words.clean(session.command.date)},
    }
    return json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"


def _process(
    number: int, name: str, series: StepSeries, result: DatasetResult | None, places: Places
) -> Iterator[Event]:
    yield _name("process_name", number, 0, f"{name} steps")
    yield _name("thread_name", number, _TRAINING, "training")
    starts = list(itertools.accumulate(series.step_seconds, initial=0.0))
    waits = series.wait_seconds or (0.0,) * len(series.step_seconds)
    ends = set(series.epoch_ends)
    for step, (start, seconds, wait) in enumerate(zip(starts, series.step_seconds, waits, strict=False)):
        details: Event = {"step": step, "new_epoch": step in ends}
        if series.wait_seconds is not None:
            yield _slice("waiting for data", number, _TRAINING, start, wait, details)
        label = "model" if series.wait_seconds is not None else "step"
        yield _slice(label, number, _TRAINING, start + wait, seconds - wait, details)
    taken = [start + wait for start, wait in zip(starts, waits, strict=False)]
    for thread, (label, operators) in enumerate(_threads(result, places) if result else (), start=_TRAINING + 1):
        yield _name("thread_name", number, thread, label)
        for step, moment in enumerate(taken):
            begin = moment - sum(seconds for _, seconds, _ in operators)
            for title, seconds, place in operators:
                yield _slice(title, number, thread, begin, seconds, {"step": step, "mean": True, "source": place})
                begin += seconds


def _threads(result: DatasetResult, places: Places) -> Iterator[tuple[str, list[tuple[str, float, str]]]]:
    """The operators of each thread with their mean seconds per step, sources first; parallel ones in their own."""
    pipeline, profile = result.pipeline, result.profile
    if profile is None:
        return
    times = {one.node: step_seconds(one) for one in profile.operators}
    segments = list(result.diagnosis.sequential_segments) if result.diagnosis else []
    shared = {node for segment in segments for node in segment}
    segments += [(node.id,) for node in pipeline if node.id not in shared]
    for index, segment in enumerate(segments):
        operators = []
        for node in (one for one in pipeline if one.id in segment):
            time = times.get(node.id)
            if time is not None and sum(time) > 0:
                operators.append((words.clean(node.title), sum(time), places.location(node.location)))
        if operators:
            names = words.joined([words.clean(pipeline[node].title) for node in segment if node in pipeline])
            yield f"input thread {index + 1}: {names}", operators


def _slice(name: str, process: int, thread: int, start: float, seconds: float, details: Event) -> Event:
    return {
        "name": name,
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": round(1e6 * start, 3),
        "dur": round(1e6 * max(0.0, seconds), 3),
        "args": details,
    }


def _name(kind: str, process: int, thread: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
