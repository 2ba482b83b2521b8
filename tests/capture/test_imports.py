"""The import watcher: called once per module, after it is loaded and before its importer can bind names of it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pipetune.capture.patches import ImportWatcher

NAMES = ("watched_package", "watched_package.inner", "unwatched_module", "broken_module")


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = tmp_path / "watched_package"
    package.mkdir()
    (package / "__init__.py").write_text("from watched_package.inner import value as held\n")
    (package / "inner.py").write_text("value = 1\n")
    (tmp_path / "unwatched_module.py").write_text("value = 1\n")
    (tmp_path / "broken_module.py").write_text("raise ZeroDivisionError\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in NAMES:
        sys.modules.pop(name, None)


def test_watched_module_is_changed_before_its_importer_binds_its_names(modules: Path) -> None:
    seen: list[str] = []

    def change(module: ModuleType) -> None:
        seen.append(module.__name__)
        module.value = 2  # type: ignore[attr-defined]

    with ImportWatcher(["watched_package.inner"], change):
        package = importlib.import_module("watched_package")
        importlib.import_module("watched_package.inner")
        importlib.import_module("unwatched_module")
    assert seen == ["watched_package.inner"] and package.held == 2


def test_already_imported_module_is_reported_on_entry(modules: Path) -> None:
    module = importlib.import_module("unwatched_module")
    seen: list[ModuleType] = []
    with ImportWatcher(["unwatched_module", "never_imported"], seen.append):
        assert seen == [module]


def test_exit_removes_the_finder_and_can_be_repeated(modules: Path) -> None:
    before = list(sys.meta_path)
    seen: list[ModuleType] = []
    with ImportWatcher(["watched_package.inner"], seen.append) as watcher:
        assert sys.meta_path[0] is watcher
    assert sys.meta_path == before
    importlib.import_module("watched_package.inner")
    assert not seen
    watcher.__exit__()  # a second exit is harmless


def test_failing_or_missing_module_raises_its_usual_error(modules: Path) -> None:
    seen: list[ModuleType] = []
    with ImportWatcher(["broken_module", "module_nobody_has"], seen.append):
        with pytest.raises(ZeroDivisionError):
            importlib.import_module("broken_module")
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("module_nobody_has")
    assert not seen


def test_two_watchers_of_one_module_are_both_called(modules: Path) -> None:
    first, second = list[ModuleType](), list[ModuleType]()
    names = ["watched_package.inner"]
    with ImportWatcher(names, first.append), ImportWatcher(names, second.append):
        importlib.import_module("watched_package")
    assert [module.__name__ for module in first] == [module.__name__ for module in second] == names
