"""The operators as a table: a pandas DataFrame or CSV, one row per operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipetune.core.pipeline import Node
from pipetune.core.profile import OperatorProfile, Profile, Stage
from pipetune.core.session import DatasetResult, Session
from pipetune.report import words
from pipetune.report.places import Places, places_of
from pipetune.report.why import step_seconds

if TYPE_CHECKING:
    import pandas

COLUMNS = (
    "dataset",
    "role",
    "node",
    "operator",
    "function",
    "source",
    "stage",
    "cpu_us",
    "wall_us",
    "cpu_share",
    "elements",
    "elements_in_per_out",
    "bytes_in",
    "bytes_out",
    "buffered_bytes",
    "random",
    "python",
    "parallelism",
    "bottleneck",
    "cpu_us_low",
    "cpu_us_high",
    "waiting_us",
    "cost_source",
)
"""Costs are microseconds per element put out; the share is a fraction of the input's CPU time."""

_FIGURES = ("cpu_us", "wall_us", "cpu_share", "elements", "elements_in_per_out", "bytes_in", "bytes_out", "cpu_us_low",
            "cpu_us_high", "waiting_us")  # fmt: skip

# A spreadsheet takes a cell that begins so for a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def to_frame(session: Session) -> pandas.DataFrame:
    """One row per operator of every studied dataset, see `COLUMNS`; what was not measured is NaN."""
    return _frame(_rows(session))


def csv(session: Session) -> str:
    """The frame as CSV (RFC 4180, with line feeds); a text that a spreadsheet would run is quoted."""
    frame = _frame([[_harmless(value) for value in row] for row in _rows(session)])
    return frame.to_csv(index=False, lineterminator="\n")


def _frame(rows: list[list[object]]) -> pandas.DataFrame:
    import pandas

    frame = pandas.DataFrame(rows, columns=list(COLUMNS))
    for name in (*_FIGURES, "buffered_bytes", "parallelism"):
        frame[name] = pandas.to_numeric(frame[name])
    return frame


def _rows(session: Session) -> list[list[object]]:
    places = places_of(session)
    return [_row(result, node, places) for result in session.profiled_datasets for node in result.pipeline]


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
        operator.parallelism,
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


def _harmless(value: object) -> object:
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
