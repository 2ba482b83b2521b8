"""The workloads of `pipetune bench`: the examples of a clone of the repository, a folder with a `train.py` each.

A folder may hold `make_data.py`, which makes the data once, and `workload.toml`, which says what it stands for.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipetune.core.errors import PipetuneError

FOLDER = Path(__file__).resolve().parents[2] / "examples"

QUICK = ("table", "series", "artificial")
"""The workloads of the short form: no data to make, and a plan that is found soon."""


@dataclass(frozen=True)
class Workload:
    """One training script, and the published pipeline it stands for."""

    name: str
    folder: Path
    title: str = ""
    source: str = ""  # paper and section, or benchmark; "" where it is invented
    published_bytes: int | None = None  # of the raw data there; None: it stands for itself alone
    published_examples: int | None = None
    note: str = ""
    arguments: tuple[str, ...] = ()  # of the script, when it is analysed

    @property
    def script(self) -> Path:
        return self.folder / "train.py"

    @property
    def data_script(self) -> Path | None:
        """What makes the data; None where none has to be made."""
        path = self.folder / "make_data.py"
        return path if path.exists() else None


def find_workloads(folder: Path = FOLDER) -> dict[str, Workload]:
    """All workloads by name, in alphabetical order.

    Raises:
        PipetuneError: there is no folder of examples, or a workload.toml is no such file.
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
    """Those of these names; none named: all, or those of the short form.

    Raises:
        PipetuneError: one has another name, or as `find_workloads`.
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
