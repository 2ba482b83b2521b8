"""The workloads: training scripts of the examples, and the published pipelines that they represent."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import EXAMPLES
from benchmarks.figures import check_names
from pipetune.core.errors import PipetuneError

QUICK = ("table", "series", "artificial")
"""The workloads of a quick run: they need no generated data, and their plan is found quickly."""


@dataclass(frozen=True)
class Workload:
    """One training script, and the published pipeline it represents."""

    name: str
    folder: Path
    title: str = ""
    published_bytes: int | None = None  # size of the raw data there; None: the workload represents only itself
    arguments: tuple[str, ...] = ()  # of the script, when it is analyzed

    @property
    def script(self) -> Path:
        """The training script."""
        return self.folder / "train.py"

    @property
    def data_script(self) -> Path | None:
        """The script that generates the data; None if none is needed."""
        path = self.folder / "make_data.py"
        return path if path.exists() else None


def find_workloads(folder: Path | None = None) -> dict[str, Workload]:
    """Returns all workloads by name, in alphabetical order: the examples with a workload.toml.

    Raises:
        PipetuneError: there is no folder of examples, or a workload.toml is invalid.
    """
    folder = folder or EXAMPLES
    folders = {path.parent.name: path.parent for path in sorted(folder.glob("*/workload.toml"))}
    if not folders:
        raise PipetuneError(
            f"There are no workloads: {folder} contains no examples.",
            hint=(
                "Workloads are part of the repository, not of the package: run pipetune from a clone (pip install "
                "-e .)."
            ),
        )
    return {name: _read(name, place) for name, place in folders.items()}


def choose_workloads(names: Sequence[str], *, quick: bool = False, folder: Path | None = None) -> dict[str, Workload]:
    """Returns the workloads with these names; if no names are given, all, or with `quick` those of a quick run.

    Raises:
        PipetuneError: a name is unknown, or as in `find_workloads`.
    """
    known = find_workloads(folder)
    check_names(names, known, kind="workload")
    chosen_names = names or [name for name in (QUICK if quick else known) if name in known]
    return {name: known[name] for name in dict.fromkeys(chosen_names)}


def _read(name: str, folder: Path) -> Workload:
    path = folder / "workload.toml"
    try:
        about = tomllib.loads(path.read_text(encoding="utf-8"))
        size = about.get("published_bytes")
        if size is not None and (type(size) is not int or size <= 0):
            raise ValueError(f"published_bytes must be a positive integer, not {size!r}")
    except (OSError, ValueError) as error:
        raise PipetuneError(f"{path} cannot be read: {error}.", hint="See another example for the format.") from error
    return Workload(name, folder, about.get("title", name), size, tuple(map(str, about.get("arguments", ()))))
