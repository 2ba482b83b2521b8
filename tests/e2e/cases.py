"""The runs of `pipetune analyze` that the tests examine, by name. Each runs once, for any number of tests."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil

from tests.e2e.command import OWN, Case, wait_for


def interrupt(process: subprocess.Popen[str], stderr: Path) -> None:
    """Presses Ctrl-C once trials have begun."""
    wait_for("[trying changes]", stderr, process)
    time.sleep(2)
    process.send_signal(signal.SIGINT)


def kill_worker(process: subprocess.Popen[str], stderr: Path) -> None:
    """Kills the worker, as the kernel does with the largest process when memory runs out."""
    wait_for("[input or model?]", stderr, process)
    for child in psutil.Process(process.pid).children():
        os.kill(child.pid, signal.SIGKILL)


def kill_both(process: subprocess.Popen[str], stderr: Path) -> None:
    """Kills the command and its worker in a window of training steps."""
    wait_for("[input or model?]", stderr, process)
    for doomed in [psutil.Process(process.pid), *psutil.Process(process.pid).children()]:
        doomed.kill()


WAITING = ("--allow", "python-parallel,statistical")

CASES = {
    # the run ends early
    "hangs": Case("hang.py", options=("--no-trials", "--time-limit", "10")),
    "raises-within": Case("raises_within_map.py", ("assert",), options=("--no-trials",)),
    "killed": Case("consumers.py", ("endless",), options=("--no-trials",), meanwhile=kill_worker),
    "loses-a-worker": Case("multi_worker.py", ("30",), options=("--no-trials", "--workers", "2")),
    # files that must not be overwritten
    "checkpoints": Case("checkpoint_manager.py", ("{folder}",)),
    "restores": Case(str(OWN / "restored.py"), ("{folder}",)),
    "killed-with-its-command": Case(str(OWN / "restored.py"), ("{folder}",), ("--no-trials",), kill_both),
    # ways to run a script
    "absl": Case("absl_app.py", ("--rows", "6400", "rest")),
    "argparse": Case(
        "argparse_script.py",
        ("hunter2-secret", "--rows", "6400", "--out", "x", "--seed", "3", "--verbose"),
        options=("--no-trials", "--confidential", "--json"),
    ),
    "spawns": Case("spawn_pool.py"),
    "changes-directory": Case("changes_directory.py", ("{folder}",)),
    "package": Case("-m package_relative"),
    # options
    "step-time": Case("consumers.py", ("enumerate_take",), options=("--no-trials", "--step-time", "50", "--json")),
    "multiworker": Case(str(OWN / "records.py"), ("{folder}",), options=("--no-trials", "--distribute", "multiworker")),
    "shard-for-four": Case(str(OWN / "shard_for_four.py"), options=("--no-trials",)),
    "busy": Case(
        str(OWN / "waits_in_its_step.py"), ("{folder}",), options=("--budget", "10", "--distribute", "service")
    ),
}

LONG = {  # with trials, which mostly wait
    "tuned": Case("{folder}/overlap.py", ("{folder}/checkpoint",), options=("--budget", "30"), copied="overlap.py"),
    "bursts": Case(str(OWN / "bursts.py"), ("{folder}",), options=("--budget", "60")),
    "interrupted": Case(str(OWN / "overlap.py"), ("{folder}/checkpoint",), ("--budget", "60"), interrupt),
    "in-step": Case(str(OWN / "waits_on_workers.py"), options=("--budget", "20", "--workers", "2", *WAITING)),
    "in-step-elsewhere": Case(
        str(OWN / "waits_on_workers.py"), ("{folder}/died",), options=("--budget", "24", *WAITING), tasks=2
    ),
    "validation": Case(
        "{folder}/validation_split.py", ("{folder}/loss",), (), copied="validation_split.py", quick=False
    ),
    "variable": Case("variable_in_map.py", options=("--budget", "2", "--force", "--json")),
}
