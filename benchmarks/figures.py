"""The figures of `pipetune bench`: what is measured of pipetune itself, and the files that keep it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pipetune.core.codec import Json, decode, encode
from pipetune.core.errors import MalformedData, PipetuneError
from pipetune.core.files import read_value, write_json
from pipetune.core.machine import Machine

SCHEMA = 1  # schema version of the files; those with a different one are not read


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

    def make(data: dict[str, object]) -> AnyResults:
        try:
            return kind.from_data({**data, "version": data.get("pipetune")})
        except MalformedData as error:
            raise PipetuneError(f"{path} is damaged. {error.message}", hint="Remove it, and measure again.") from error

    return read_value(path, make, kind=kind.__name__.lower(), schema=SCHEMA) if path.exists() else None


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
