"""The hunt: many cases in workers that are restarted regularly; every result is saved immediately."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import subprocess
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soundness.processes import ROOT, Hung, Worker

CASE_SECONDS = 90.0  # of processor time; a case takes one to five
REDUCE_SECONDS = 240.0
REDUCED = 6  # failures of one rule and kind that are reduced

STATE = ROOT / "reports" / ".soundness.part.jsonl"


@dataclass(frozen=True)
class Wanted:
    """The cases and settings of a run of the suite."""

    seed: str
    cases: dict[str, int]  # family -> number
    minutes: float | None = None
    processes: int = 2
    checkout: Path = ROOT
    given: dict[str, Any] = field(default_factory=dict)  # arguments of every case


@dataclass
class State:
    """The results so far, in an append-only file with a line for each."""

    path: Path
    header: dict[str, Any]
    cases: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_case(self, family: str, index: int, case: dict[str, Any]) -> None:
        with self._lock:
            self.cases[family, index] = case
            self._write(_case_line(family, index, case))

    def forget_wrong(self) -> None:
        """Removes the cases in which something wrong was accepted: they run again, with the present suite."""
        with self._lock:
            wrong = [key for key, case in self.cases.items() if wrong_of(case)]
            for key in wrong:
                self._write({"forgotten": key})
                del self.cases[key]
            self.failures.clear()

    def add_failure(self, failure: dict[str, Any]) -> None:
        with self._lock:
            self.failures.append(failure)
            self._write({"failure": failure})

    def _write(self, line: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def opened(path: Path, header: dict[str, Any]) -> State:
    """The state of a run with this header: that of an interrupted run, or a new one.

    From a run at another commit, families are kept whose cases run no code that has changed since.
    """
    state = State(path, header)
    left = left_header(path)
    if left == header:
        _read(state)
        return state
    if left is not None and (left["seed"], left["cases"]) == (header["seed"], header["cases"]):
        _read(state)
        commits = left.get("commits", {})
        same = {family for family in header["cases"] if commits.get(family) == header["commits"][family]}
        state.cases = {key: case for key, case in state.cases.items() if key[0] in same}
        state.failures = [failure for failure in state.failures if failure["family"] in same]
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [header, *(_case_line(*key, case) for key, case in state.cases.items())]
    lines += [{"failure": failure} for failure in state.failures]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return state


def _case_line(family: str, index: int, case: dict[str, Any]) -> dict[str, Any]:
    return {"family": family, "index": index, "case": case}


def _read(state: State) -> None:
    for text in state.path.read_text(encoding="utf-8").splitlines()[1:]:
        try:
            line = json.loads(text)
        except ValueError:  # truncated when the run was interrupted
            continue
        if "case" in line:
            state.cases[line["family"], line["index"]] = line["case"]
        elif "forgotten" in line:
            state.cases.pop(tuple(line["forgotten"]), None)
            state.failures.clear()
        else:
            state.failures.append(line["failure"])


def left_header(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(FileNotFoundError, ValueError), path.open(encoding="utf-8") as file:
        header: dict[str, Any] = json.loads(file.readline())
        return header
    return None


NOT_RUN = (
    "bench", "cli", "core/file_events.py", "core/restoration.py", "core/undo.py", "report", "stages", "supervisor",
    "worker",
)  # fmt: skip
"""Packages and modules that no case imports: cases do not train, and change only their own files."""

NO_PATCH = "source"
"""The package that only cases of scripts import: those of functions and pipelines write no patches."""


def commit_of(checkout: Path, family: str = "script") -> str:
    """The last commit that changed the code that cases of a family run, with a mark where the files differ from it.

    A change of the suite does not count, as it does not change the product.
    """
    names = NOT_RUN if family == "script" else (*NOT_RUN, NO_PATCH)
    apart = [f":(exclude)pipetune/{name}" for name in names]

    def git(*words: str) -> str:
        command = ["git", *words, "--", "pipetune", *apart]
        return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False).stdout.strip()

    commit = git("log", "-1", "--format=%h", "--abbrev=12")
    return f"{commit}-dirty" if commit and git("status", "--porcelain") else commit or "unknown"


def hunt(wanted: Wanted, state: State) -> State:
    """Runs the cases that are not in the state yet, until all are or the time is up; failures are reduced meanwhile."""
    end = time.monotonic() + wanted.minutes * 60 if wanted.minutes is not None else math.inf
    jobs = _jobs(wanted, state)
    lock, stopped = threading.Lock(), threading.Event()
    workers = [Worker(wanted.checkout) for _ in range(wanted.processes)]

    def work(worker: Worker) -> None:
        while time.monotonic() < end and not stopped.is_set():
            with lock:
                job = next(jobs, None)
            if job is None:
                return
            _run_one(worker, job, wanted, state, stopped)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stopped.set()
        for worker in workers:
            worker.end()
        signal.signal(signal.SIGTERM, before)
    return state


def _jobs(wanted: Wanted, state: State) -> Iterator[tuple[str, int]]:
    """Families in turn, so that an interrupted run has cases of each."""
    longest = max(wanted.cases.values(), default=0)
    for position in range(longest):
        for family, count in wanted.cases.items():
            indices = range(position * count // longest, (position + 1) * count // longest)
            yield from ((family, index) for index in indices if (family, index) not in state.cases)


def _run_one(worker: Worker, job: tuple[str, int], wanted: Wanted, state: State, stopped: threading.Event) -> None:
    family, index = job
    seed = f"{wanted.seed}:{family}:{index}"
    request = {"do": "case", "family": family, "seed": seed, "index": index, "given": wanted.given}
    try:
        case = worker.ask(request, seconds=CASE_SECONDS)
    except Hung as reason:
        if stopped.is_set():
            return
        case = {"family": family, "seed": seed, "unbuilt": str(reason), "hung": True}
        case |= {"tried": [], "proposed": [], "operations": []}
    state.add_case(family, index, case)
    for one in wrong_of(case):
        label = f"{'+'.join(one['rules'])} {one['safety']} {one['kind']}"
        print(f"{family} {index}: {label}: {one['detail'][:150]}", flush=True)
    if case.get("crash"):
        print(f"{family} {index}: pipetune ends: {case['crash'][:200]}", flush=True)
    for one in wrong_of(case):
        if _to_reduce(state, case, one):
            _reduce(worker, case, one, state)


def wrong_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    """What was accepted in a case although it is wrong."""
    return [one for one in case["tried"] if one["accepted"] and not one["right"]]


def _to_reduce(state: State, case: dict[str, Any], one: dict[str, Any]) -> bool:
    """Whether this failure is reduced: the first few of each rule, class and kind."""
    seen = Counter((failure["rule"], failure["safety"], failure["kind"]) for failure in state.failures)
    singly = {failure["rule"] for failure in state.failures if failure["seed"] == case["seed"]}
    if not case.get("material") or (len(one["rules"]) > 1 and singly & set(one["rules"])):
        return False  # nothing to reduce, or a single one of the rules is the cause
    return seen["+".join(one["rules"]), one["safety"], one["kind"]] < REDUCED


def _reduce(worker: Worker, case: dict[str, Any], one: dict[str, Any], state: State) -> None:
    request = {"do": "reduce", "case": case, "rules": one["rules"], "kind": one["kind"]}
    with contextlib.suppress(Hung):
        failure = worker.ask(request, seconds=REDUCE_SECONDS) | {"seed": case["seed"], "family": case["family"]}
        state.add_failure(failure)
        text = textwrap.indent(failure["text"], "    ")
        print(f"  the smallest: {failure['rule']} {failure['safety']} {failure['kind']}\n{text}", flush=True)
