"""The training datasets of the examples, available in a clone of the repository once their data are generated."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import EXAMPLES
from pipetune.core.errors import PipetuneError

_ENTRY = "training_dataset"


def example_datasets() -> dict[str, Callable[[], Any]]:
    """Returns functions that build the datasets, by example; examples whose files are missing are left out."""
    return {
        name: lambda folder=EXAMPLES / name: training_dataset(folder)  # type: ignore[misc]
        for name in ("photos", "digits", "busy", "artificial")
        if (EXAMPLES / name / "train.py").exists() and (name != "photos" or any(_photo_files()))
    }


def training_dataset(folder: Path) -> Any:
    """Returns the dataset that the `train.py` of a folder trains on if it is run without arguments.

    Raises:
        PipetuneError: it has no `training_dataset()` that can be called without arguments.
    """
    return _build(_module(folder / "train.py"), folder)


def expert_dataset(folder: Path) -> Any:
    """Returns the dataset of a folder's `expert.py`, which imports `train` and replaces the function that builds it.

    Returns:
        The dataset; None if there is no such script.

    Raises:
        PipetuneError: as in `training_dataset`.
    """
    if not (folder / "expert.py").exists():
        return None
    sys.modules.pop("train", None)  # may be that of another folder
    _module(folder / "expert.py")
    return _build(sys.modules["train"], folder)


def _build(module: ModuleType, folder: Path) -> Any:
    build = getattr(module, _ENTRY, None)
    if callable(build) and _callable_without_arguments(build):
        return build()
    if folder.name not in _BUILDERS:
        raise PipetuneError(
            f"{folder / 'train.py'} has no {_ENTRY}() that can be called without arguments.",
            hint="Give it one that returns the dataset it trains on.",
        )
    return _BUILDERS[folder.name](module)


def _callable_without_arguments(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(one.default is not one.empty or one.kind in variadic for one in parameters)


def _photo_files() -> Iterator[Path]:
    return (EXAMPLES / "photos" / "data").glob("train-*.tfrecord")


_BUILDERS: Mapping[str, Callable[[ModuleType], Any]] = {
    "photos": lambda module: module.training_dataset(str(EXAMPLES / "photos" / "data" / "train-*.tfrecord")),
    "digits": lambda module: module.make_dataset(*module.load_arrays(20)),
    "busy": lambda module: module.make_dataset(module.ROWS),
    "artificial": lambda module: module.make_dataset(8, 25),
    "table": lambda module: module.make_dataset(*module.load_table(100_000)),
    "series": lambda module: module.windowed_dataset(module.load_series(20_000)),
}
"""For scripts without such a function: builds the dataset as their `main` does with default arguments."""


def _module(path: Path) -> ModuleType:
    name = f"pipetune_example_{path.parent.name}_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # its functions and classes look up their module there
    with _importing_from(path.parent):
        specification.loader.exec_module(module)
    return module


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
