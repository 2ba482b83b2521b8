"""The operators as a table: a pandas DataFrame or CSV, one row per operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipetune.core.session import Session
from pipetune.report.view import make_view

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
    rows: list[list[object]] = []
    for dataset in make_view(session).studied:
        for row in dataset.operators.rows:
            figures = (row.cpu, row.wall, row.share, row.elements, row.ratio, row.bytes_in, row.bytes_out)
            values: list[object] = [
                dataset.name,
                dataset.role,
                row.node,
                row.title,
                row.function,
                row.where,
                row.stage,
            ]
            values += [figure.value for figure in figures]
            values += [row.buffered.value, row.random, row.python]
            values += [int(row.parallelism) if row.parallelism else None, row.bottleneck]
            values += [row.cpu.low, row.cpu.high, row.waiting.value, row.cost_source]
            rows.append(values)
    return rows


def _harmless(value: object) -> object:
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
