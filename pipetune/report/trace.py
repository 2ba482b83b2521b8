"""A session as a trace: steps as measured, and operators by thread; opens in Perfetto and chrome://tracing.

The format is the JSON of Chrome's Trace Event Format: complete events ("X") with microseconds, and metadata ("M") that
names processes and threads (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from pipetune.core.errors import PipetuneError
from pipetune.core.results import StepSeries
from pipetune.core.session import DatasetResult, Session
from pipetune.report import words
from pipetune.report.places import Places, places_of
from pipetune.report.why import step_seconds

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
