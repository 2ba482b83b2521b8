"""The order of the tests; and `--one-core`: each process of tests runs on one processor of its own."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-core", action="store_true", help="one processor for each process of tests (with -n)")


# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

_START_PROCESSES = frozenset({"bench", "distributed", "e2e", "examples", "processes"})
_SLOW = 12  # times what another file takes, about


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order of the files, of which processes side by side take one after another.

    Those with slow tests come first: no process is left alone with a long one in the end. And those that start
    processes are spread over the whole run: all at once they would keep each other waiting.
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
    """Before anything imports TensorFlow, which counts its processors then."""
    worker = getattr(config, "workerinput", {}).get("workerid")
    starts_workers = worker is None and config.getoption("numprocesses", None)  # these inherit what it may use
    if config.getoption("--one-core") and not starts_workers:
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[int((worker or "gw0").removeprefix("gw")) % len(processors)]})


def pytest_collection_finish() -> None:
    """Modules that tests write anew within a second may have the same length: their byte code would be stale."""
    sys.dont_write_bytecode = True


@pytest.fixture(scope="module", autouse=True)
def short_collections() -> Iterator[None]:
    """As in a worker: each window ends with a collection, and over all that TensorFlow imports one takes 0.2 s."""
    if "tensorflow" in sys.modules:
        gc.collect()
        gc.freeze()  # and all that the modules before it left
    yield


_LOOKS = ("pipelines.cuts", "pipelines.jpegs", "standalone.fill_coverage", "standalone.index_coverage")


@pytest.fixture
def patient_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, all is looked at that would be on another: what is asked is not whether in time."""
    for name in _LOOKS:
        if module := sys.modules.get(f"pipetune.tf.{name}"):
            monkeypatch.setattr(module, "_SECONDS", 100.0)


@pytest.fixture
def patient_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, two rounds are measured."""
    monkeypatch.setattr("pipetune.tf.measure.sweep._PATIENCE", 1000.0)
