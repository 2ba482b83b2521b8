"""Starts every run that the tests of a module need, a few at a time, and passes each test its own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import jsonschema
import pytest

from tests.core.schemas import schema
from tests.e2e.cases import CASES, LONG
from tests.e2e.command import Case, Done, analyze
from tests.e2e.forked import Forked


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "run(name, code=0): the run of cases.py that the test looks at, and its status")


ALONE = ("tuned", "busy", "in-step")
"""Runs whose verdict or trials must be decided: nothing else runs at the same time."""


class Runs:
    """The runs, each started at once or when its turn comes."""

    def __init__(self, names: list[str], base: pytest.TempPathFactory) -> None:
        self._base = base
        self._short, self._long = ThreadPoolExecutor(3), ThreadPoolExecutor(2)
        self._begun: dict[str, Future[Done]] = {}
        for name in sorted(names, key=lambda name: name not in ALONE):
            self.begin(name)

    def begin(self, name: str) -> None:
        """Starts a run, again if there was one; one that must be alone has ended before this returns."""
        case, pool = (LONG[name], self._long) if name in LONG else (CASES[name], self._short)
        self._begun[name] = pool.submit(self._analyze, case, self._base.mktemp(name) / "run")
        if name in ALONE:
            wait([self._begun[name]])

    def _analyze(self, case: Case, folder: Path) -> Done:
        done = analyze(case, folder)
        if done.code >= 0:
            jsonschema.validate(done.session, schema("session"))
        return done

    def __getitem__(self, name: str) -> Done:
        return self._begun[name].result()

    def close(self) -> None:
        for pool in (self._short, self._long):
            pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """The runs that the selected tests of the module are marked with, in the order of the tests."""
    marks = (mark for item in _chosen(request) for mark in item.iter_markers("run"))
    started = Runs(list(dict.fromkeys(name for mark in marks for name in mark.args)), tmp_path_factory)
    yield started
    started.close()


@pytest.fixture
def done(request: pytest.FixtureRequest, runs: Runs) -> Done:
    """The run that the test is marked with; a new one where the test is tried once more."""
    mark = request.node.get_closest_marker("run")
    assert mark is not None
    if getattr(request.node, "execution_count", 1) > 1:  # counted by pytest-rerunfailures
        runs.begin(mark.args[0])
    found = runs[mark.args[0]]
    assert found.code == mark.kwargs.get("code", 0), found.err
    return found


@pytest.fixture(scope="module")
def worked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forked]:
    """Workers on the scripts of the module's WORKED that the selected tests name; call it with a name."""
    chosen = [item for item in _chosen(request) if isinstance(item, pytest.Function)]
    named = {constant for item in chosen for constant in item.function.__code__.co_consts}
    named |= {item.callspec.params.get("name") for item in chosen if hasattr(item, "callspec")}
    scripts = {name: arguments for name, arguments in request.module.WORKED.items() if name in named}
    forked = Forked(tmp_path_factory.mktemp("workers"), scripts)
    yield forked
    forked.close()


def _chosen(request: pytest.FixtureRequest) -> Iterator[pytest.Item]:
    """The tests of the module that this session runs."""
    return (item for item in request.session.items if item.getparent(pytest.Module) is request.node)
