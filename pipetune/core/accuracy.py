"""Accuracy figures of `pipetune bench --accuracy`, and accuracy.json, the file that stores them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipetune.core.codec import Json, MalformedData, decode, encode
from pipetune.core.errors import PipetuneError
from pipetune.core.files import read_json, write_json
from pipetune.core.machine import Machine

SCHEMA = 1  # schema version of accuracy.json; files with a different one are not read

FIGURES = ("attribution", "bottleneck", "prediction", "false_positives", "overhead", "sharing")
"""Names of the figures, in the order of accuracy.json."""


@dataclass(frozen=True)
class Claim:
    """One measured value of a figure in words, and its target."""

    what: str  # "mean error of attributed CPU time"
    measured: str  # "4.1 % (3.2 % to 5.0 %)"
    wanted: str = ""  # "at most 10 %"; "" if there is no target
    met: bool | None = None  # None: there is no target, or it could not be decided


@dataclass(frozen=True)
class AccuracyFigure:
    """One measured figure; `values` holds its keys in accuracy.json."""

    values: Mapping[str, object]
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    date: str = ""
    machine: Machine | None = None  # where it was measured; None: on `Accuracy.machine`

    @property
    def met(self) -> bool:
        """Whether no target was missed."""
        return all(claim.met is not False for claim in self.claims)


@dataclass(frozen=True)
class Accuracy:
    """All accuracy figures measured so far; figures not measured yet are absent."""

    version: str
    machine: Machine | None = None
    date: str = ""
    quick: bool = False  # a quick run: fewer cases, wider intervals
    seed: int = 0
    figures: Mapping[str, AccuracyFigure] = field(default_factory=dict)

    def continued_on(self, machine: Machine) -> Accuracy:
        """Returns a copy to be continued on `machine`; figures from a different machine keep a reference to it."""
        figures = {
            name: replace(figure, machine=where if where is not None and where.difference(machine) else None)
            for name, figure in self.figures.items()
            for where in (figure.machine or self.machine,)
        }
        return replace(self, machine=machine, figures=figures)

    def with_figure(self, name: str, figure: AccuracyFigure) -> Accuracy:
        """Returns a copy with this figure added or replaced."""
        return replace(self, figures={**self.figures, name: figure}, date=figure.date or self.date)


def accuracy_data(accuracy: Accuracy) -> dict[str, Json]:
    """Returns the contents of accuracy.json: the documented keys first, null for a missing figure."""
    values: dict[str, Json] = {
        name: encode(accuracy.figures[name].values) if name in accuracy.figures else None for name in FIGURES
    }
    about: dict[str, Json] = {}
    for name, figure in accuracy.figures.items():
        fields = encode(figure)
        assert isinstance(fields, dict)
        about[name] = {key: value for key, value in fields.items() if key != "values"}
    return {
        "schema": SCHEMA,
        "pipetune": accuracy.version,
        "machine": encode(accuracy.machine),
        "date": accuracy.date,
        **values,
        "quick": accuracy.quick,
        "seed": accuracy.seed,
        "about": about,
    }


def save(accuracy: Accuracy, path: Path) -> None:
    """Writes accuracy.json atomically.

    Raises:
        PipetuneError: the folder cannot be written to.
    """
    write_json(path, accuracy_data(accuracy))


def load(path: Path) -> Accuracy | None:
    """Returns the contents of the accuracy.json at `path`; None if there is no such file.

    Raises:
        PipetuneError: the file is damaged, or was written by another release.
    """
    if not path.exists():
        return None
    data = read_json(path, kind="accuracy", schema=SCHEMA)
    about = data.get("about")
    about = about if isinstance(about, dict) else {}
    figures = {
        name: {**about[name], "values": data[name]} for name in FIGURES if data.get(name) is not None and name in about
    }
    try:
        return decode(Accuracy, {**data, "version": data.get("pipetune"), "figures": figures})
    except MalformedData as error:
        raise PipetuneError(f"{path} is damaged. {error.message}", hint="Remove it, and measure again.") from error
