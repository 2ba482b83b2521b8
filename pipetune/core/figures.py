"""The figures of `pipetune bench`: what is measured of pipetune itself, and the files that keep it.

A suite is a list of figures with a file of its own. The suite of the package is `Accuracy`; those that need the
examples are in the repository's benchmarks/ folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pipetune.core.codec import Json, MalformedData, decode, encode
from pipetune.core.errors import PipetuneError
from pipetune.core.files import read_json, write_json
from pipetune.core.machine import Machine

SCHEMA = 1  # schema version of the files; those with a different one are not read


@dataclass(frozen=True)
class Claim:
    """One measured value of a figure in words, and its target."""

    what: str  # "mean error of attributed CPU time"
    measured: str  # "4.1 % (3.2 % to 5.0 %)"
    wanted: str = ""  # "at most 10 %"; "" if there is no target
    met: bool | None = None  # None: there is no target, or it could not be decided


@dataclass(frozen=True)
class Results:
    """The figures of a suite that have been measured so far."""

    version: str
    machine: Machine | None = None
    date: str = ""
    quick: bool = False  # a quick run: fewer and shorter measurements, wider intervals
    seed: int = 0

    figure_type: ClassVar[type]  # dataclass of one figure

    @property
    def measured(self) -> Mapping[str, Any]:
        """Figures by name."""
        raise NotImplementedError

    @property
    def met(self) -> bool:
        """Whether no target was missed that the exit code of the command depends on."""
        return True

    def with_figure(self, name: str, figure: Any, machine: Machine | None) -> Self:
        """Returns a copy with this figure added or replaced, which was measured on `machine`."""
        raise NotImplementedError

    def updated(self) -> Self:
        """Returns a copy with what does not need to be measured as it is now."""
        return self

    def data(self) -> dict[str, Json]:
        """Returns the contents of the file, the documented keys first."""
        return {
            "schema": SCHEMA,
            "pipetune": self.version,
            "machine": encode(self.machine),
            "date": self.date,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Returns the results in the contents of a file; "version" is that of pipetune."""
        return decode(cls, data)


AnyResults = TypeVar("AnyResults", bound=Results)


def save(results: Results, path: Path) -> None:
    """Writes the file atomically.

    Raises:
        PipetuneError: the folder cannot be written to.
    """
    write_json(path, results.data())


def load(kind: type[AnyResults], path: Path) -> AnyResults | None:
    """Returns the results in the file at `path`; None if there is no such file.

    Raises:
        PipetuneError: the file is damaged, or was written by another release.
    """
    if not path.exists():
        return None
    data = read_json(path, kind=kind.__name__.lower(), schema=SCHEMA)
    try:
        return kind.from_data({**data, "version": data.get("pipetune")})
    except MalformedData as error:
        raise PipetuneError(f"{path} is damaged. {error.message}", hint="Remove it, and measure again.") from error


def check_names(names: Iterable[str], known: Iterable[str], *, kind: str) -> None:
    """Checks names of a command line; `kind` is what they name: "figure".

    Raises:
        PipetuneError: a name is unknown.
    """
    known = tuple(known)
    for name in names:
        if name not in known:
            raise PipetuneError(
                f"There is no {kind} called {name!r}.", hint=f"{kind.capitalize()}s: {', '.join(known)}"
            )


# -- the suite of the package

FIGURES: Mapping[str, str] = {
    "attribution": "Cost per operator",
    "bottleneck": "Injected bottlenecks",
    "prediction": "Predicted rates",
    "false_positives": "False positives",
    "overhead": "Overhead of the hooks",
    "sharing": "Several processes on one machine",
}
"""Titles by name, in the order of accuracy.json. Each figure is measured by the module of `bench` with its name."""


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
class Accuracy(Results):
    """The accuracy of pipetune, as `pipetune bench --accuracy` measures it."""

    figures: Mapping[str, AccuracyFigure] = field(default_factory=dict)

    figure_type = AccuracyFigure

    @property
    def measured(self) -> Mapping[str, AccuracyFigure]:
        return self.figures

    @property
    def met(self) -> bool:
        return all(figure.met for figure in self.figures.values())

    def with_figure(self, name: str, figure: AccuracyFigure, machine: Machine | None) -> Accuracy:
        """Returns a copy with this figure; those measured on a different machine keep a reference to that one."""
        others = {
            other: replace(known, machine=where if where and machine and where.difference(machine) else None)
            for other, known in self.figures.items()
            for where in (known.machine or self.machine,)
        }
        return replace(self, machine=machine, figures={**others, name: figure}, date=figure.date or self.date)

    def data(self) -> dict[str, Json]:
        values = {name: encode(self.figures[name].values) if name in self.figures else None for name in FIGURES}
        about: dict[str, Json] = {}
        for name, figure in self.figures.items():
            fields = encode(figure)
            assert isinstance(fields, dict)
            about[name] = {key: value for key, value in fields.items() if key != "values"}
        return {**super().data(), **values, "quick": self.quick, "seed": self.seed, "about": about}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Accuracy:
        about = data.get("about")
        about = about if isinstance(about, dict) else {}
        measured = (name for name in FIGURES if data.get(name) is not None and name in about)
        return super().from_data(
            {**data, "figures": {name: {**about[name], "values": data[name]} for name in measured}}
        )
