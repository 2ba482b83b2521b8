"""The command line: no heavy imports, script arguments pass through unchanged, errors are one message."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipetune.cli import command
from pipetune.cli.analyze import settings_of
from pipetune.cli.command import target_of
from pipetune.cli.main import build_parser
from pipetune.core.edits import Consent
from tests.cli.results import Shell, saved
from tests.core.sessions import session

HEAVY = ("tensorflow", "keras", "numpy", "pandas", "matplotlib", "rich", "jinja2", "libcst", "scipy", "psutil")


@pytest.mark.one_core
def test_help_imports_nothing_heavy() -> None:
    program = (
        "import runpy, sys\n"
        "sys.argv = ['pipetune', 'analyze', '--help']\n"
        "try:\n    runpy.run_module('pipetune', run_name='__main__')\n"
        "except SystemExit as leaving:\n    assert not leaving.code\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules], len(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    line = done.stdout.strip().splitlines()[-1]
    assert line.startswith("HEAVY [] "), line
    assert int(line.split()[-1]) < 200  # all modules, including those of Python's own start


@pytest.mark.parametrize(
    ("line", "usage", "says"),
    [
        ("analyze --device abacus train.py", "pipetune analyze [", ""),
        ("apply --diff --revert", "pipetune apply [", ""),
        ("run train.py", "pipetune run --plan ", ""),
        ("compare one", "pipetune compare ", ""),
        ("size session", "pipetune size ", ""),
        ("size session --replicas 8 --compression 0", "pipetune size ", ""),
        ("analyse train.py", "pipetune [", "there is no command 'analyse'. Did you mean analyze?"),
        ("train.py --epochs 3", "pipetune [", "Did you mean pipetune analyze train.py --epochs 3?"),
        ("-m package.train", "pipetune [", "Did you mean pipetune analyze -m package.train?"),
        ("--budget 3 analyze train.py", "pipetune [", "there is no option '--budget' before the command."),
        ("--versio", "pipetune [", "Did you mean --version?"),
        ("analyze --bugdet 3 train.py", "pipetune analyze [", "arguments: --bugdet. Did you mean --budget?"),
        ("analyze --lr 3 train.py", "pipetune analyze [", "--lr. Arguments of the script follow it."),
        ("apply --dif=1", "pipetune apply [", "unrecognized arguments: --dif=1. Did you mean --diff?"),
        ("report --format htm reports/train", "pipetune report [", "Did you mean html?"),
        ("analyze --allow reorders train.py", "pipetune analyze [", "Did you mean reorder?"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_a_suggestion_below_the_usage_of_the_command(
    pipetune: Shell, line: str, usage: str, says: str
) -> None:
    code, _, error = pipetune(line)
    assert code == 2 and says in error
    assert error.startswith(f"usage: {usage}")


def test_no_command_shows_the_help(pipetune: Shell) -> None:
    done = pipetune("")
    assert done.code == 2 and "pipetune analyze train.py " in done.err


def parsed(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(["analyze", *words])


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text("import sys\n")
    return path


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ("--budget 30 train.py --budget 9 -m x --help", ["--budget", "9", "-m", "x", "--help"]),
        ("train.py -- --out ''", ["--", "--out", ""]),
        ("-- train.py -v", ["-v"]),
        ("--quiet train.py 'a b' -1 --unknown=1", ["a b", "-1", "--unknown=1"]),
        ("--budget 30 -m package.train --budget 9", ["--budget", "9"]),
        ("-m package.train -m --help x", ["-m", "--help", "x"]),
    ],
)
def test_arguments_reach_the_script_or_the_module_unchanged(script: Path, words: str, passed: list[str]) -> None:
    target = target_of(parsed(*shlex.split(words)))
    of_module = "package.train" in words
    assert (target.module, target.script) == (("package.train", "") if of_module else ("", str(script)))
    assert (list(target.arguments), target.directory, target.name) == (passed, str(script.parent), "train")


def test_options_become_settings(script: Path) -> None:
    words = "--budget 30 --steps 5 --dataset all --device cpu --step-time 4 --memory-limit 1.5G --force --no-trials"
    words += " --allow statistical,reorder --allow file-cache --distribute multiworker --confidential --seed 7"
    settings = settings_of(parsed(*words.split(), "train.py"))
    assert (settings.budget_seconds, settings.steps, settings.dataset) == (30.0, 5, "all")
    assert (settings.device, settings.step_time_seconds) == ("cpu", 0.004)
    assert settings.memory_limit_bytes == 3 << 29
    assert settings.allow == {Consent.STATISTICAL, Consent.REORDER, Consent.FILE_CACHE}
    assert settings.force and settings.confidential and not settings.trials
    assert (settings.distribute, settings.seed) == ("multiworker", 7)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "No script was given"),
        ("nowhere.py", "There is no script nowhere.py"),
        (".", ". is a folder.\n  Pass the training script in it, such as binary.py, latin.py, train.py.\n"),
        (
            "notes.ipynb",
            "is a notebook.\n  In it, %load_ext pipetune and put %%pipetune above the cell that trains. Or",
        ),
        ("-m train.py", "is not the name of a module"),
        ("-m ../train", "is not the name of a module"),
        ("-m", "No script was given"),
        ("binary.py", "is not Python source"),
        ("latin.py", "is not Python source"),
    ],
)
def test_target_that_cannot_run_is_rejected_before_anything_runs(
    script: Path, words: str, says: str, pipetune: Shell
) -> None:
    (script.parent / "binary.py").write_bytes(b"\x00\x01")
    (script.parent / "latin.py").write_bytes(b"x = '\xe9'\n")
    (script.parent / "notes.ipynb").write_text('{"cells": []}')
    code, out, error = pipetune(f"analyze {words}")
    assert (code, out) == (2, "")
    assert error.startswith("pipetune: ") and says in error
    assert len(error.splitlines()) == 2  # what happened, and what to do
    assert not (script.parent / "reports").exists()


@pytest.mark.parametrize("words", ["analyze", "run --plan plan.json"])
def test_line_of_a_syntax_error_is_shown_before_anything_runs(script: Path, words: str, pipetune: Shell) -> None:
    (script.parent / "plan.json").write_text("{}")
    script.write_text("x = '\\d'\ndef train(:\n    pass\n")  # the first line is only worth a warning
    code, _, error = pipetune(words, "train.py")
    shown = '  File "train.py", line 2\n    def train(:\n              ^\nSyntaxError: invalid syntax\n'
    assert (code, error) == (3, f"pipetune: train.py is not valid Python.\n{shown}  Correct that line first.\n")
    assert not (script.parent / "reports").exists()


def test_folder_with_a_main_runs_as_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text("")
    assert target_of(parsed("app")).script == str(tmp_path / "app" / "__main__.py")


@pytest.mark.parametrize(
    ("parse", "values"),
    [
        (command.byte_size, {"1": 1, "512M": 512 << 20, "4GiB": 4 << 30, "2 kb": 2048, "0.5T": 1 << 39}),
        (command.bandwidth, {"1.5 GB/s": 1.5e9, "500MiB/s": 500 * 2**20, "10Gb/s": 1.25e9, "10Gbps": 1.25e9}),
        (command.bandwidth, {"100Mbit/s": 12.5e6, "800B/s": 800}),
        (command.share, {"5%": 0.05, "0.05": 0.05, "0": 0.0, "100%": 1.0}),
        (command.factor, {"1.1x": 1.1}),
        (command.milliseconds, {"4": 0.004}),
    ],
)
def test_values_of_options(parse: Callable[[str], float], values: dict[str, float]) -> None:
    assert {text: parse(text) for text in values} == pytest.approx(values)


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (command.byte_size, ("", "M", "-1", "0", "1X", "1e9G", "nan", "9" * 400)),
        (command.bandwidth, ("", "1", "1G", "10GB", "-1GB/s", "0B/s", "1XB/s", "nan", "1iB/s", "1 gb / s")),
        (command.bandwidth, (f"{'9' * 400}B/s",)),
        (command.share, ("5", "-1%", "101%", "nan", "x", "%")),
        (command.factor, ("0", "-1", "inf", "x")),
        (command.milliseconds, ("0", "-3", "nan", "inf")),
        (command.positive_seconds, ("0", "-3", "nan", "inf", "x")),
        (command.positive_count, ("0", "-2", "two", "2.5", "")),
        (command.consents, ("", "everything")),
    ],
)
def test_values_that_options_refuse(parse: Callable[[str], object], texts: tuple[str, ...]) -> None:
    for text in texts:
        with pytest.raises(argparse.ArgumentTypeError):
            parse(text)


def test_rules_are_listed_and_explained(pipetune: Shell) -> None:
    code, listed, _ = pipetune("rules")
    assert code == 0 and "parallel-map" in listed and "cache" in listed
    assert all(len(line) <= 80 for line in listed.splitlines())
    code, told, _ = pipetune("rules cache")
    assert code == 0 and "legal" in told and "safety" in told
    code, _, error = pipetune("rules parallelmap")
    assert code == 2 and "Did you mean parallel-map?\n  Rules: " in error


def test_closed_pipe_is_not_an_error_and_changes_no_answer(tmp_path: Path) -> None:
    failing = saved(tmp_path, session(wait=0.5, spread=0.02))
    for words, code in (("rules", 0), (f"check {failing}", 1)):
        line = f"({sys.executable} -m pipetune {words}; echo $? >&2) | true"
        done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
        assert done.stderr == f"{code}\n"
