"""The training inputs of the examples, where the repository is there and their data was made."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pipetune.core.benchmarks import FOLDER
from pipetune.core.errors import PipetuneError

_ENTRY = "training_dataset"


def example_datasets() -> dict[str, Callable[[], Any]]:
    """By name, what builds the dataset; those whose files are missing are left out."""
    return {
        name: lambda folder=FOLDER / name: training_dataset(folder)  # type: ignore[misc]
        for name in ("photos", "digits", "busy", "artificial")
        if (FOLDER / name / "train.py").exists() and (name != "photos" or any(_photo_files()))
    }


def training_dataset(folder: Path) -> Any:
    """What the `train.py` of a folder trains on when it is run without arguments.

    Raises:
        PipetuneError: it has no `training_dataset()` that can be called without arguments, and is none of those known.
    """
    return _dataset_of(_module(folder / "train.py"), folder)


def expert_dataset(folder: Path) -> Any:
    """What the `expert.py` of a folder trains on: it imports `train` and replaces the function that builds the dataset.

    Returns:
        The dataset; None where there is no such script.

    Raises:
        PipetuneError: as `training_dataset`.
    """
    if not (folder / "expert.py").exists():
        return None
    sys.modules.pop("train", None)  # that of another folder
    _module(folder / "expert.py")
    return _dataset_of(sys.modules["train"], folder)


def _dataset_of(module: ModuleType, folder: Path) -> Any:
    build = getattr(module, _ENTRY, None)
    if callable(build) and _needs_nothing(build):
        return build()
    if folder.name not in _BUILT:
        raise PipetuneError(
            f"{folder / 'train.py'} has no {_ENTRY}() that can be called without arguments.",
            hint="Give it one that returns the dataset it trains on.",
        )
    return _BUILT[folder.name](module)


def _needs_nothing(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(one.default is not one.empty or one.kind in variadic for one in parameters)


def _photo_files() -> Iterator[Path]:
    return (FOLDER / "photos" / "data").glob("train-*.tfrecord")


_BUILT: Mapping[str, Callable[[ModuleType], Any]] = {
    "photos": lambda module: module.training_dataset(str(FOLDER / "photos" / "data" / "train-*.tfrecord")),
    "digits": lambda module: module.make_dataset(*module.load_arrays(20)),
    "busy": lambda module: module.make_dataset(module.ROWS),
    "artificial": lambda module: module.make_dataset(8, 25),
    "table": lambda module: module.make_dataset(*module.load_table(100_000)),
    "series": lambda module: module.windowed_dataset(module.load_series(20_000)),
}
"""As `main` builds it, with the defaults of its arguments; for scripts without a function of that name."""


def _module(path: Path) -> ModuleType:
    name = f"pipetune_example_{path.parent.name}_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # where what it defines looks for its own module
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
