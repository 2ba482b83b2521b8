"""The user's script runs as under Python, and its errors are shown without pipetune's frames."""

from __future__ import annotations

import importlib.machinery
import json
import linecache
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, Message, Mode, ScriptExited, from_line, to_line
from pipetune.core.plan_file import PlanFile
from pipetune.worker import script

TELL = """
import json, os, sys
told = {
    "name": __name__, "file": __file__, "argv": sys.argv, "path": sys.path[0], "directory": os.getcwd(),
    "main": sys.modules["__main__"].__dict__ is globals(), "cached": __cached__, "doc": __doc__,
    "builtins": str(__builtins__),
}
with open(os.environ["TOLD"], "w") as file:
    json.dump(told, file)
"""


@pytest.fixture
def _python_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setenv("TOLD", str(tmp_path / "told.json"))
    loader = importlib.machinery.SourceFileLoader
    monkeypatch.setattr(loader, "get_code", loader.get_code)
    monkeypatch.setattr(linecache, "updatecache", linecache.updatecache)
    directory, modules = os.getcwd(), set(sys.modules)
    yield
    os.chdir(directory)
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    linecache.clearcache()


pytestmark = pytest.mark.usefixtures("_python_as_it_was")


def job(path: Path | str = "", *arguments: str, **more: Any) -> Job:
    return Job(mode=Mode.ANALYZE, message_descriptor=1, script=str(path), arguments=arguments, **more)


def told(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "told.json").read_text())
    (tmp_path / "told.json").unlink()
    return found


def as_python_tells(tmp_path: Path, *command: str) -> dict[str, Any]:
    subprocess.run([sys.executable, *command], cwd=tmp_path, check=True, timeout=200)
    return told(tmp_path)


@pytest.mark.parametrize("name", ["scripts/train.py", "link.py"])
def test_script_runs_in_same_environment_as_under_python(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "train.py").write_text(f'"""A script."""\n{TELL}')
    (tmp_path / "link.py").symlink_to(folder / "train.py")
    expected = as_python_tells(tmp_path, str(tmp_path / name), "--epochs", "3")
    script.run(job(tmp_path / name, "--epochs", "3", directory=str(tmp_path)))
    found = told(tmp_path)
    del found["doc"], expected["doc"]
    assert found == expected
    assert found["name"] == "__main__" and found["path"] == str(folder)


def test_module_runs_in_same_environment_as_under_python(tmp_path: Path) -> None:
    package = tmp_path / "a_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text("value = 3\n")
    (package / "train.py").write_text("from .other import value\n" + TELL)
    expected = as_python_tells(tmp_path, "-m", "a_package.train", "x")
    script.run(job("", "x", module="a_package.train", directory=str(tmp_path)))
    found = told(tmp_path)
    for name in ("name", "file", "path", "directory", "main", "builtins"):
        assert found[name] == expected[name], name
    assert found["argv"][1:] == ["x"]


def test_missing_and_invalid_scripts_are_rejected_and_declared_encoding_is_used(tmp_path: Path) -> None:
    with pytest.raises(PipetuneError, match="cannot be read"):
        script.run(job(tmp_path / "none.py"))
    for text in (b"def (:\n", b"x = 1\0\n"):
        (tmp_path / "bad.py").write_bytes(text)
        with pytest.raises(PipetuneError, match="is not valid Python") as raised:
            script.run(job(tmp_path / "bad.py"))
        assert raised.value.exit_code == 3
    (tmp_path / "latin.py").write_bytes("# coding: latin-1\nassert 'ö' == chr(246)\n".encode("latin-1"))
    script.run(job(tmp_path / "latin.py"))


def shown_traceback(path: Path, kind: type[Exception], text: str) -> str:
    path.write_text(text)
    with pytest.raises(kind) as raised:
        script.run(job(path))
    return script.user_traceback(raised.value)


def test_script_that_cannot_be_read_is_no_failure_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "load_plan", lambda _path: PlanFile("", ()))
    sent: list[Message] = []
    with pytest.raises(PipetuneError, match=r"missing.py cannot be read"):
        script.run_with_plan(job(tmp_path / "missing.py"), SimpleNamespace(send=sent.append))  # type: ignore[arg-type]
    assert not sent


def test_exception_of_script_is_propagated_without_own_frames(tmp_path: Path) -> None:
    text = "def inner():\n    return 1 / 0\n\n\ninner()\n"
    shown = shown_traceback(tmp_path / "raising.py", ZeroDivisionError, text)
    assert f'File "{tmp_path / "raising.py"}", line 5, in <module>' in shown
    assert "return 1 / 0" in shown and shown.endswith("ZeroDivisionError: division by zero\n")
    assert "pipetune" not in shown.replace(str(tmp_path), "")
    (tmp_path / "leaving.py").write_text("raise SystemExit(7)\n")
    with pytest.raises(SystemExit) as leaving:
        script.run(job(tmp_path / "leaving.py"))
    assert leaving.value.code == 7
    text = "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('no a') from error\n"
    shown = shown_traceback(tmp_path / "chained.py", ValueError, text)
    assert shown.endswith("ValueError: no a\n")
    assert "KeyError: 'a'" in shown and "direct cause" in shown
    assert "worker/script.py" not in shown


@pytest.mark.parametrize(
    ("code", "exited"), [(7, ScriptExited(7)), (True, ScriptExited(1)), ("no data", ScriptExited(1, "no data"))]
)
def test_failed_exit_can_be_sent(code: object, exited: ScriptExited) -> None:
    failed = script.failed_exit(SystemExit(code))
    assert failed is not None and from_line(to_line(failed)) == exited


def test_patched_source_runs_under_original_file_names(tmp_path: Path) -> None:
    main, helper = tmp_path / "train.py", tmp_path / "helper_of_a_script.py"
    main.write_text("raise AssertionError('the file ran')\n")
    helper.write_text("value = 'file'\n")
    overlay = {
        str(main): "import helper_of_a_script, linecache\n"
        "assert helper_of_a_script.value == 'patched'\n"
        "assert helper_of_a_script.__file__.endswith('helper_of_a_script.py')\n"
        "done = linecache.getline(__file__, 4)\n",
        str(helper): "value = 'patched'\n",
    }
    script.run(job(main, overlay=overlay))
    assert vars(sys.modules["__main__"])["done"] == "done = linecache.getline(__file__, 4)\n"
    update = lambda: linecache.updatecache(str(helper), {})  # noqa: E731 - AutoGraph calls this for every function
    for change in (lambda: None, linecache.checkcache, update):
        assert change() in (None, ["value = 'patched'\n"])
        assert linecache.getline(str(helper), 1) == "value = 'patched'\n"
    assert helper.read_text() == "value = 'file'\n"


def test_threads_of_the_script_run_to_their_end_unless_an_executor_keeps_them(tmp_path: Path) -> None:
    """Python, too, waits for a thread that trains before it exits, and ends the idle ones of an executor."""
    path = tmp_path / "threads.py"
    path.write_text(
        "import concurrent.futures, os, threading, time\n"
        "executor = concurrent.futures.ThreadPoolExecutor(1)\n"
        "executor.submit(int).result()\n"
        "def train():\n    time.sleep(0.3)\n    open(os.environ['TOLD'], 'w').close()\n"
        "threading.Thread(target=train).start()\n"
    )
    writer = SimpleNamespace(send=lambda message: pytest.fail(str(message)))
    assert script.run_to_end(job(path), writer)  # type: ignore[arg-type]
    assert (tmp_path / "told.json").exists()
