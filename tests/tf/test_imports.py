"""The import watcher: called once, as soon as a module is there and before anybody can hold its names."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pipetune.tf.script.imports import ImportWatcher

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


def test_a_module_is_changed_before_its_importer_sees_it(modules: Path) -> None:
    seen: list[str] = []

    def change(module: ModuleType) -> None:
        seen.append(module.__name__)
        module.value = 2  # type: ignore[attr-defined]

    with ImportWatcher(["watched_package.inner"], change):
        package = importlib.import_module("watched_package")
        importlib.import_module("watched_package.inner")
        importlib.import_module("unwatched_module")
    assert seen == ["watched_package.inner"]
    assert package.held == 2


def test_what_is_there_already_is_told_at_once(modules: Path) -> None:
    module = importlib.import_module("unwatched_module")
    seen: list[ModuleType] = []
    with ImportWatcher(["unwatched_module", "never_imported"], seen.append):
        assert seen == [module]


def test_nothing_stays_behind(modules: Path) -> None:
    before = list(sys.meta_path)
    seen: list[ModuleType] = []
    with ImportWatcher(["watched_package.inner"], seen.append) as watcher:
        assert sys.meta_path[0] is watcher
    assert sys.meta_path == before
    importlib.import_module("watched_package.inner")
    assert not seen
    watcher.__exit__()  # once more does no harm


def test_a_module_that_fails_or_is_missing_fails_as_ever(modules: Path) -> None:
    seen: list[ModuleType] = []
    with ImportWatcher(["broken_module", "module_nobody_has"], seen.append):
        with pytest.raises(ZeroDivisionError):
            importlib.import_module("broken_module")
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("module_nobody_has")
    assert not seen


def test_two_watchers_both_see_it(modules: Path) -> None:
    first: list[str] = []
    second: list[str] = []
    with (
        ImportWatcher(["watched_package.inner"], lambda module: first.append(module.__name__)),
        ImportWatcher(["watched_package.inner"], lambda module: second.append(module.__name__)),
    ):
        importlib.import_module("watched_package")
    assert first == second == ["watched_package.inner"]


@pytest.mark.slow
def test_importing_the_worker_leaves_tensorflow_as_the_script_finds_it() -> None:
    """What a script may set only before TensorFlow runs anything must still be settable."""
    text = (
        "import pipetune.worker.work, pipetune.api, tensorflow as tf\n"
        "tf.config.threading.set_inter_op_parallelism_threads(3)\n"
        "print(tf.config.threading.get_inter_op_parallelism_threads())"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "3", done.stderr
