"""Claims: measured values in words beside their targets, and tables of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from pipetune.core.machine import Machine
from pipetune.report import words
from pipetune.report.console import unit_text
from pipetune.report.words import escape, table


@dataclass(frozen=True)
class Claim:
    """One measured value of a figure in words, and its target."""

    what: str  # "mean error of attributed CPU time"
    measured: str  # "4.1 % (3.2 % to 5.0 %)"
    wanted: str = ""  # "at most 10 %"; "" if there is no target
    met: bool | None = None  # None: there is no target, or it could not be decided


_MET = {True: "met", False: "missed", None: ""}
_STYLE = {"met": "green", "missed": "bold red", "": ""}


def claims_table(claims: Sequence[Claim]) -> Table:
    """Returns a table with a row for each claim: what was measured, its value, the target and whether it was met."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(ratio=5)
    table.add_column(ratio=5)
    table.add_column(ratio=3, style="dim")
    table.add_column(no_wrap=True, justify="right")
    for claim in claims:
        met = _MET[claim.met]
        table.add_row(
            words.clean(claim.what),
            unit_text(words.clean(claim.measured)),
            unit_text(words.clean(claim.wanted)),
            Text(met, style=_STYLE[met]),
        )
    return table


def claims_markdown(claims: Sequence[Claim]) -> list[str]:
    """Returns the lines of a Markdown table with a row for each claim, as `claims_table`."""
    rows = [(claim.what, claim.measured, claim.wanted, _MET[claim.met]) for claim in claims]
    cells = ([escape(words.clean(text)) for text in row] for row in rows)
    return table(("what", "measured", "wanted", ""), cells)


def machine_line(machine: Machine) -> str:
    """Returns one line of Markdown about a machine."""
    return (
        f"{machine.cores_granted:g} of {machine.cores_host} cores, {words.byte_size(machine.memory_limit_bytes)}, "
        f"{words.clean(machine.processor)}, TensorFlow {words.clean(machine.tensorflow)}."
    )
