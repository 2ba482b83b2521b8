"""TensorFlow is found, whichever build it is; what is missing or too old is said in one message, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipetune import __main__ as command
from pipetune.cli.main import main
from pipetune.core import requirements

ROOT = Path(__file__).parents[2]
NEWER = "2.99.0.dev20991231"
NO_SCRIPT = "There is no script none.py.\n  Pass the training script, or a module with -m."


def python(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with these installed packages alone: none of those that the tests have."""
    paths = os.pathsep.join(map(str, (ROOT, site)))
    command, environment = [sys.executable, "-S", "-P", *words], {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, env=environment, cwd=site, capture_output=True, text=True, check=False)


def install(site: Path, build: str, version: str) -> None:
    """Puts a TensorFlow there that must not be imported."""
    (site / "tensorflow").mkdir()
    (site / "tensorflow" / "__init__.py").write_text("raise AssertionError('imported')")
    name = build.replace("-", "_")  # as published wheels have it
    about = site / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "top_level.txt").write_text("tensorflow\n")


@pytest.mark.parametrize("words", [["analyze", "train.py"], ["run", "--plan", "x", "train.py"]])
def test_command_says_that_there_is_no_tensorflow(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "tensorflow").mkdir()  # a folder of that name is none
    done = python(tmp_path, "-m", "pipetune", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("pipetune: There is no TensorFlow in the environment of pipetune, ")
    assert 'pip install "pipetune[tensorflow]"' in done.stderr and len(done.stderr.splitlines()) == 2


def test_programs_get_it_as_an_object_and_what_runs_nothing_needs_no_tensorflow(tmp_path: Path) -> None:
    done = python(tmp_path, "-m", "pipetune", "doctor", "--json")
    assert json.loads(done.stdout)["error"]["kind"] == "usage"
    done = python(tmp_path, "-m", "pipetune", "rules")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_build_that_is_too_old_is_named(tmp_path: Path) -> None:
    install(tmp_path, "tf-nightly", "2.9.3")  # as text it would be later than 2.18
    done = python(tmp_path, "-m", "pipetune", "doctor")
    assert done.returncode == 2
    assert done.stderr == (
        "pipetune: pipetune needs TensorFlow 2.18 or later; tf-nightly 2.9.3 is installed.\n"
        '  pip install --upgrade "tf-nightly>=2.18"\n'
    )


LOOK = "from pipetune.core import requirements; print(requirements.require_tensorflow())"


@pytest.mark.parametrize("version", [requirements.OLDEST_TENSORFLOW, requirements.NEWEST_TESTED_TENSORFLOW])
def test_any_build_of_a_tested_version_will_do(tmp_path: Path, version: tuple[int, int]) -> None:
    install(tmp_path, "tensorflow-cpu", "{}.{}.1".format(*version))
    done = python(tmp_path, "-c", LOOK)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_newer_version_is_one_line_of_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(requirements, "require_tensorflow", lambda: "a warning")
    assert main(["analyze", "none.py"]) == 2
    assert capsys.readouterr().err == f"pipetune: a warning\npipetune: {NO_SCRIPT}\n"  # it goes on
    assert main(["analyze", "--quiet", "none.py"]) == 2
    assert capsys.readouterr().err == f"pipetune: {NO_SCRIPT}\n"


def test_tensorflow_without_metadata_is_tried(tmp_path: Path) -> None:
    install(tmp_path, "tensorflow", "2.9.3")
    (tmp_path / "tensorflow-2.9.3.dist-info" / "METADATA").unlink()
    (tmp_path / "tensorflow-2.9.3.dist-info" / "top_level.txt").unlink()
    assert python(tmp_path, "-c", LOOK).stdout == "\n"


TRY = "import pipetune\ntry:\n  pipetune.{}\nexcept pipetune.PipetuneError as error:\n  print(error)"


def test_functions_say_what_is_missing_and_sessions_can_be_read(tmp_path: Path) -> None:
    says = python(tmp_path, "-c", TRY.format("tune")).stdout
    assert says.startswith("There is no TensorFlow in the environment of pipetune, ")
    assert "none.json" in python(tmp_path, "-c", TRY.format("load('none.json')")).stdout


def test_functions_warn_of_the_imported_tensorflow(tmp_path: Path) -> None:
    program = (
        "import sys, types, warnings, pipetune\n"
        f"sys.modules['tensorflow'] = types.SimpleNamespace(__version__={NEWER!r})\n"
        "with warnings.catch_warnings(record=True) as caught:\n  pipetune.tune\n"
        "print(*(f'{one.filename} {one.message}' for one in caught))"
    )
    assert python(tmp_path, "-c", program).stdout.startswith(f"<string> tensorflow {NEWER} is newer than")


def test_python_that_is_too_old(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(requirements, "OLDEST_PYTHON", (3, 99))
    assert command.main() == 2
    assert capsys.readouterr().err.startswith("pipetune: pipetune needs Python 3.99 or later; this is Python 3.")
