"""The order of the tests, the option `--one-core` (one processor for each test process), and shared fixtures."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pipetune.pipelines import objects

_tracked_objects = objects.tracked_objects


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-core", action="store_true", help="one processor for each process of tests (with -n)")


# The time of an example depends on the load of the machine, not on the tested code.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

_START_PROCESSES = frozenset({"benchmarks", "distributed", "e2e", "examples", "notebook", "processes"})
_SLOW = 12  # duration of a file with slow tests, relative to other files, approximately


@pytest.hookimpl(tryfirst=True)  # before -m deselects marked tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _mark_cases_beyond_samples(items)
    _order(items)


def _mark_cases_beyond_samples(items: list[pytest.Item]) -> None:
    """Marks all but n cases, spread evenly over the table, of tests marked `sample(n)` as exhaustive."""
    tables: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("exhaustive"):
            tables.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for table in tables.values():
        (count,) = table[0].get_closest_marker("sample").args
        kept = {round(index * (len(table) - 1) / max(count - 1, 1)) for index in range(count)}
        for index, item in enumerate(table):
            if index not in kept:
                item.add_marker(pytest.mark.exhaustive)


def _order(items: list[pytest.Item]) -> None:
    """Sorts the files, which parallel test processes take one after another.

    Files with slow tests come first, so that no process is left with a long file at the end. Files that start
    processes are spread over the whole run, because they would slow each other down.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    groups: dict[bool, list[Path]] = {}
    for path in dict.fromkeys(item.path for item in items):
        groups.setdefault(not _START_PROCESSES.isdisjoint(path.parts), []).append(path)
    places: dict[Path, float] = {}
    for paths in groups.values():
        done = [*accumulate(_SLOW if path in slow else 1 for path in paths)]
        places.update((path, so_far / done[-1]) for path, so_far in zip(paths, done, strict=True))
    items.sort(key=lambda item: places[item.path])


def pytest_configure(config: pytest.Config) -> None:
    """Sets the CPU affinity before TensorFlow is imported, which counts the processors then, and a state folder."""
    worker = getattr(config, "workerinput", {}).get("workerid")
    starts_workers = worker is None and config.getoption("numprocesses", None)  # these inherit its affinity
    if config.getoption("--one-core") and not starts_workers:
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[int((worker or "gw0").removeprefix("gw")) % len(processors)]})
    if worker is None:
        folder = tempfile.mkdtemp(prefix="pipetune-tests-")  # what commands keep there is not that of the user
        os.environ["XDG_STATE_HOME"] = folder  # for the workers, too
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_finish() -> None:
    """Disables byte code: it would be stale for modules that tests rewrite within a second with the same length."""
    sys.dont_write_bytecode = True


@pytest.fixture(scope="module", autouse=True)
def short_collections() -> Iterator[None]:
    """Shortens collections as in a worker: each window ends with one, which takes 0.2 s with all TensorFlow modules.

    Iterators that earlier test modules left are released in the background: to destroy one may take a minute, in which
    nothing runs (`pipetune/timing/iterators.py`).

    Variables, iterators and open files are searched for among the objects of the module at hand: a search of all of
    them takes 0.1 to 0.4 s here, which was a fifth of all tests. `all_objects_searched` is for tests of the search.
    """
    if "tensorflow" in sys.modules:
        iterators = importlib.import_module("pipetune.timing.iterators")  # it imports TensorFlow
        with iterators.released_in_background():
            gc.collect()
        gc.freeze()  # also objects of earlier test modules
        objects.tracked_objects = gc.get_objects
    yield


@pytest.fixture
def all_objects_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Includes frozen objects in the search for objects of some types, as outside of tests."""
    monkeypatch.setattr(objects, "tracked_objects", _tracked_objects)


@pytest.fixture(autouse=True)
def no_global_seed() -> Iterator[None]:
    """Resets a global seed that a test set: later datasets would derive their seeds from it."""
    yield
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].random.set_seed(None)


_LOOKS = (
    "probes.function_splitting",
    "probes.decode_and_crop",
    "distributed.verify.coverage",
    "distributed.verify.index_coverage",
)


@pytest.fixture
def patient_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the time limits of probes, so that results do not depend on the load of the machine."""
    for name in _LOOKS:
        if module := sys.modules.get(f"pipetune.{name}"):
            monkeypatch.setattr(module, "_SECONDS", 100.0)


@pytest.fixture
def patient_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the time limit of sweeps, so that two rounds are measured on a busy machine too."""
    monkeypatch.setattr("pipetune.measure.source_reads._PATIENCE", 1000.0)
