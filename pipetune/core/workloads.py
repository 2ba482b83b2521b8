"""The workloads of `pipetune bench`: the examples in a clone of the repository, each a folder with a `train.py`.

A folder may contain `make_data.py`, which generates the data once, and `workload.toml`, which describes the workload.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipetune.core.errors import PipetuneError

FOLDER = Path(__file__).resolve().parents[2] / "examples"

QUICK = ("table", "series", "artificial")
"""The workloads of the short run: they need no generated data, and their plan is found quickly."""


@dataclass(frozen=True)
class Workload:
    """One training script, and the published pipeline it represents."""

    name: str
    folder: Path
    title: str = ""
    source: str = ""  # paper and section, or benchmark; "" if it is invented
    published_bytes: int | None = None  # size of the raw data there; None: the workload represents only itself
    published_examples: int | None = None
    note: str = ""
    arguments: tuple[str, ...] = ()  # of the script, when it is analyzed

    @property
    def script(self) -> Path:
        return self.folder / "train.py"

    @property
    def data_script(self) -> Path | None:
        """The script that generates the data; None if none is needed."""
        path = self.folder / "make_data.py"
        return path if path.exists() else None


def find_workloads(folder: Path = FOLDER) -> dict[str, Workload]:
    """Returns all workloads by name, in alphabetical order.

    Raises:
        PipetuneError: there is no folder of examples, or a workload.toml is invalid.
    """
    found = {path.parent.name: path.parent for path in sorted(folder.glob("*/train.py"))}
    if not found:
        raise PipetuneError(
            f"There are no workloads: {folder} holds no example.",
            hint="They are in the repository, not in the package: run it from a clone (pip install -e .).",
        )
    return {name: _read(name, place) for name, place in found.items()}


def choose_workloads(
    names: Sequence[str], *, quick: bool = False, folder: Path = FOLDER
) -> dict[str, Workload]:
    """Returns the workloads with these names; if no names are given, all, or with `quick` those of the short run.

    Raises:
        PipetuneError: a name is unknown, or as in `find_workloads`.
    """
    known = find_workloads(folder)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise PipetuneError(f"There is no workload called {unknown[0]!r}.", hint="Workloads: " + ", ".join(known))
    wanted = names or [name for name in (QUICK if quick else known) if name in known]
    return {name: known[name] for name in dict.fromkeys(wanted)}


def _read(name: str, folder: Path) -> Workload:
    path = folder / "workload.toml"
    try:
        about = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return Workload(
            name,
            folder,
            title=_text(about, "title") or name,
            source=_text(about, "source"),
            published_bytes=_count(about, "published_bytes"),
            published_examples=_count(about, "published_examples"),
            note=_text(about, "note"),
            arguments=tuple(str(word) for word in about.get("arguments", ())),
        )
    except (OSError, ValueError) as error:
        raise PipetuneError(f"{path} cannot be read: {error}.", hint="See another example for its form.") from error


def _text(about: Mapping[str, object], name: str) -> str:
    return str(about.get(name, ""))


def _count(about: Mapping[str, object], name: str) -> int | None:
    value = about.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a whole number above zero, is {value!r}")
    return value
