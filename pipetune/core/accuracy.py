"""How right pipetune is: the figures of `pipetune bench --accuracy`, and accuracy.json, the file that keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipetune.core.codec import Json, Malformed, decode, encode
from pipetune.core.errors import PipetuneError
from pipetune.core.files import read_json, write_json
from pipetune.core.machine import Machine

SCHEMA = 1

FIGURES = ("attribution", "bottleneck", "prediction", "false_positives", "overhead", "sharing")
"""The figures by the names they have in accuracy.json, in its order."""


@dataclass(frozen=True)
class Claim:
    """One number of a figure in words, beside what is wanted of it."""

    what: str  # "mean error of attributed CPU time"
    measured: str  # "4.1 % (3.2 % to 5.0 %)"
    wanted: str = ""  # "at most 10 %"; "" where nothing is promised
    met: bool | None = None  # None: nothing is promised, or it could not be told


@dataclass(frozen=True)
class Figure:
    """One figure as it was measured; `values` are its keys in accuracy.json."""

    values: Mapping[str, object]
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    date: str = ""
    machine: Machine | None = None  # where it was measured; None: on the machine of the file

    @property
    def met(self) -> bool:
        """Whether nothing that is promised was missed."""
        return all(claim.met is not False for claim in self.claims)


@dataclass(frozen=True)
class Accuracy:
    """Everything measured so far of how right pipetune is; figures not measured yet are absent."""

    version: str
    machine: Machine | None = None
    date: str = ""
    quick: bool = False  # the short form: fewer cases, wider intervals
    seed: int = 0
    figures: Mapping[str, Figure] = field(default_factory=dict)

    def on(self, machine: Machine) -> Accuracy:
        """This, to be gone on with on `machine`: what was measured on another one keeps that one's name."""
        figures = {
            name: replace(figure, machine=None if where is None or _alike(where, machine) else where)
            for name, figure in self.figures.items()
            for where in (figure.machine or self.machine,)
        }
        return replace(self, machine=machine, figures=figures)

    def with_figure(self, name: str, figure: Figure) -> Accuracy:
        """This and one figure more, in place of an earlier one."""
        return replace(self, figures={**self.figures, name: figure}, date=figure.date or self.date)


def _alike(one: Machine, other: Machine) -> bool:
    """Whether what is measured on both may stand under one heading."""
    return (one.processor, one.cores_granted, one.device, one.tensorflow) == (
        other.processor,
        other.cores_granted,
        other.device,
        other.tensorflow,
    )


def accuracy_data(accuracy: Accuracy) -> dict[str, Json]:
    """As accuracy.json holds it: the documented keys first, null for a figure that is missing."""
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
    """Write accuracy.json in one step.

    Raises:
        PipetuneError: the folder cannot be written to.
    """
    write_json(path, accuracy_data(accuracy))


def load(path: Path) -> Accuracy | None:
    """What accuracy.json at `path` holds; None where there is none.

    Raises:
        PipetuneError: it is damaged, or another release wrote it.
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
    except Malformed as error:
        raise PipetuneError(f"{path} is damaged. {error.message}", hint="Remove it, and measure again.") from error
