"""Runs the examples with recorded measurements, to show the effect of a change of the code.

python -m tests.recorded record [NAME ...]     measures the examples, and records the measurements
python -m tests.recorded replay [NAME ...]     runs them again with the recorded measurements, and keeps the results
python -m tests.recorded compare [NAME ...]    replays them, and compares with the kept results; 1 where they differ

Two replays of one commit give the same session, patch, modules and report. After a change that should have no effect,
`compare` confirms this, or shows the effect.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Listener
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from benchmarks.rivals.workloads import find_workloads
from tests.recorded.answers import Answers, Clock, answered
from tests.recorded.worker import RECORDER, REPLAYS

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "reports" / "recorded"

OPTIONS = {
    "csv": ("--distribute", "multiworker"),
    "photos": ("--distribute", "service", "--allow", "statistical"),
    "table": ("--distribute", "tpu"),
    "images": ("--distribute", "horovod"),
    "series": ("--distribute", "mirrored"),
    "resnet": ("--distribute", "parameter-server"),
    "frames": ("--dataset", "all"),
}
"""Options besides the budget, with which an example uses more of the program."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(-\d{6}|[T ][\d:]+(\+00:00)?)?")
_PROGRESS = re.compile(r"^\[.*\n|^(✓ .*?)\s+(?:\d+ min )?\d+ s\b", re.M)  # as long as a replay takes
_KEPT = {".json", ".patch", ".py", ".md", ".html", ".txt"}
_MOST_LINES, _LONGEST_LINE = 60, 160  # of the printed differences


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.recorded", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["record", "replay", "compare", "one"])
    parser.add_argument("names", nargs="*", help="examples, before the options (default: the workloads)")
    parser.add_argument("--budget", default="20", help="seconds for trials when recording (default 20)")
    parser.add_argument("--folder", type=Path, default=RECORDINGS)
    given = parser.parse_args()
    if given.command == "one":
        return _one(given.folder, given.names[0], given.budget)
    names = given.names or list(find_workloads())
    compares, problems = given.command == "compare", []
    for name in names:
        before, now = given.folder / name / "kept", given.folder / name / "now"
        problem = _run(given.folder, name, given.budget, replays=given.command != "record")
        _keep(given.folder / name, now if compares else before)
        if compares:
            lines = list(_differences(before, now))
            problem = problem or (f"{len(lines)} lines differ" if lines else "")
            print("\n".join(line[:_LONGEST_LINE] for line in lines[:_MOST_LINES]))
        print(f"{name:14}{problem or ('as recorded' if compares else 'kept')}", flush=True)
        problems.append(problem)
    return 1 if any(problems) else 0


def _run(folder: Path, name: str, budget: str, *, replays: bool) -> str:
    """Runs an example in a separate process; the reason of its failure, or ""."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "COLUMNS": "80"}
    if replays:
        environment[REPLAYS] = str(place / "worker.pickle")
    data = ROOT / "examples" / name / "make_data.py"
    if data.exists():
        subprocess.run([sys.executable, str(data)], check=True, capture_output=True, env=environment)
    command = [sys.executable, "-m", "tests.recorded", "one", name, "--folder", str(folder), "--budget", budget]
    shutil.rmtree(place / "out", ignore_errors=True)
    with (place / "log.txt").open("w") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=ROOT).returncode
    return f"exit status {code}: see {place / 'log.txt'}" if code else ""


def _one(folder: Path, name: str, budget: str) -> int:
    """Runs the command `analyze` in this process, with the worker of the recording."""
    from pipetune.cli import main
    from pipetune.supervisor import analysis

    original: Callable[..., Any] = analysis.analyze
    command = (sys.executable, "-P", "-m", "tests.recorded.worker")

    def recorded(request: Any, **kwargs: Any) -> Any:
        with _recorder(folder / name), _verification(folder / name):
            return original(replace(request, worker_command=command), **kwargs)

    script = str(Path("examples") / name / "train.py")
    words = ["analyze", "--budget", budget, "--out", str(folder / name / "out"), *OPTIONS.get(name, ()), script]
    with mock.patch.object(analysis, "analyze", recorded):
        return main.main(words)


@contextlib.contextmanager
def _recorder(place: Path) -> Iterator[None]:
    """While open, the worker's measurements are recorded; does nothing in a replay."""
    if REPLAYS in os.environ:
        yield
        return
    with Listener(family="AF_UNIX") as listener, (place / "worker.pickle").open("wb") as file:
        os.environ[RECORDER] = str(listener.address)

        def listen() -> None:
            with contextlib.suppress(OSError, EOFError), listener.accept() as connection:
                while file.write(connection.recv_bytes()):
                    file.flush()

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield
        thread.join(timeout=10)


@contextlib.contextmanager
def _verification(place: Path) -> Iterator[None]:
    """While open, the replies of the two held scripts and the clock of the race are recorded or replayed."""
    from pipetune.search import confirmation
    from pipetune.supervisor import analysis, held_scripts, verification

    clock = Clock()
    time = SimpleNamespace(monotonic=clock.now)
    path = place / "verification.pickle"
    answers = Answers(REPLAYS in os.environ, clock)
    if not answers.replays:
        path.unlink(missing_ok=True)
        answers.keep = lambda asked, answer: _append(path, pickle.dumps((asked, answer)))
    elif path.exists():
        answers.load(path)
    ask = answered(answers, held_scripts.HeldScript._request, "ask", asked=_asked)

    @contextlib.contextmanager
    def started(_starter: Any, *, patched: bool, **_: Any) -> Iterator[Any]:
        name = "the patched script" if patched else "the original script"
        held = held_scripts.HeldScript(name, None, None, end_seconds=0.0)  # type: ignore[arg-type]
        held._over = True
        yield held

    patches: list[tuple[Any, str, Any]] = [(held_scripts.HeldScript, "_request", ask)]
    patches += [(confirmation.SystemClock, "now", lambda _: clock.now())]
    patches += [(verification, "time", time), (analysis, "time", time)]
    patches += [(held_scripts.ScriptStarter, "held_script", started)] * answers.replays
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(mock.patch.object(*patch))
        yield


def _asked(held: Any, order: Any) -> str:
    """A request without what was measured for it: the same in a replay, as long as the plan is."""
    name = type(order).__name__
    if hasattr(order, "plan"):
        return f"{held.name}: {name} {order.plan.key if order.plan is not None else 'nothing'}"
    return f"{held.name}: {order!r}"


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def _keep(place: Path, kept: Path) -> None:
    """Keeps the results of a run: its files and output, without paths, dates and progress."""
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True, exist_ok=True)
    paths = [(path, Path(*path.relative_to(place / "out" / "runs").parts[1:])) for path in _results(place)]
    for path, name in [*paths, (place / "log.txt", Path("screen.txt"))]:
        text = path.read_text(encoding="utf-8", errors="replace")
        for folder in (place / "out", Path(os.path.relpath(place / "out", ROOT))):
            text = re.sub(rf"{re.escape(str(folder))}/runs/[\d-]+", "RUN", text)
        text = _PROGRESS.sub(r"\1", text)
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).write_text(_DATE.sub("DATE", text.replace(str(ROOT), "ROOT")), encoding="utf-8")


def _results(place: Path) -> list[Path]:
    return sorted(path for path in (place / "out").glob("runs/*/**/*") if path.suffix in _KEPT)


def _differences(before: Path, now: Path) -> Iterator[str]:
    """The lines in which the files differ."""
    for name in sorted({path.relative_to(one) for one in (before, now) for path in one.rglob("*") if path.is_file()}):
        paths = (folder / name for folder in (before, now))
        one, other = (path.read_text(encoding="utf-8").splitlines() if path.exists() else [] for path in paths)
        yield from difflib.unified_diff(one, other, f"kept/{name}", f"now/{name}", lineterm="", n=0)


if __name__ == "__main__":
    sys.exit(main())
