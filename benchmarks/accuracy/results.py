"""The results of `pipetune bench --accuracy`: the contents of accuracy.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.claims import Claim
from benchmarks.figures import Results
from pipetune.core.codec import Json, encode
from pipetune.core.machine import Machine

FIGURES: Mapping[str, str] = {
    "attribution": "Cost per operator",
    "bottleneck": "Injected bottlenecks",
    "prediction": "Predicted rates",
    "false_positives": "False positives",
    "overhead": "Overhead of the hooks",
    "sharing": "Several processes on one machine",
}
"""Titles by name, in the order of accuracy.json. Each is measured by the module of this package with its name."""


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
