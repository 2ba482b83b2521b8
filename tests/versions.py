"""Tries pipetune with each TensorFlow and Python it is for: `python -m tests.versions`, or `make test-versions`.

python -m tests.versions                      all that have not passed with this commit
python -m tests.versions 2.18 2.21/3.13       those of TensorFlow 2.18, and 2.21 with Python 3.13
python -m tests.versions --again 2.20         also if they have passed

One combination at a time gets an environment from the registries (kept for the next time), the tests of what pipetune
relies on in TensorFlow, and a whole analysis. Each result is in docs/versions.md at once; an interrupted run goes on.
A combination whose Python is not on the PATH is left out. Exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "versions.md"
ENVIRONMENTS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pipetune-versions"

PYTHONS = {
    "2.18": ("3.11", "3.12"),
    "2.19": ("3.11", "3.12"),
    "2.20": ("3.11", "3.12", "3.13"),
    "2.21": ("3.11", "3.12", "3.13"),
}
"""The Pythons that each TensorFlow has wheels for, from the oldest that pipetune supports."""

TESTS = ("facts", "pipelines", "equality", "rewrites/test_tensorflow_facts.py", "test_wheel.py")
EXAMPLE = ROOT / "examples" / "csv"
BUDGET = "40"

_INTRODUCTION = """\
# Versions

pipetune is for TensorFlow 2.18 or later and Python 3.11 or later. This is what `make test-versions` saw last, each time
in an environment from the registries: the tests of what pipetune relies on in TensorFlow (its private names, reading
and replaying pipelines, equality) and of the wheel, and the outcome of a whole `pipetune analyze` of
[`examples/csv`](../examples/README.md). A `+` behind a commit: with changes on top of it. A newer TensorFlow is not
refused; pipetune warns of it.

"""
_COLUMNS = ("TensorFlow", "Python", "tests", "`pipetune analyze`", "date", "commit")


@dataclass(frozen=True, order=True)
class Combination:
    """A release of TensorFlow and one of Python: "2.18" and "3.11"."""

    tensorflow: str
    python: str

    def __str__(self) -> str:
        return f"{self.tensorflow}/{self.python}"


ALL = tuple(Combination(tensorflow, python) for tensorflow, pythons in PYTHONS.items() for python in pythons)


@dataclass(frozen=True)
class Result:
    """What was seen with one combination; a row of the table."""

    tensorflow: str  # 2.18.1
    python: str  # 3.11.7
    tests: str
    analysis: str
    date: str
    commit: str

    @property
    def combination(self) -> Combination:
        """The releases of which these versions are."""
        return Combination(*(".".join(version.split(".")[:2]) for version in (self.tensorflow, self.python)))

    @property
    def passed(self) -> bool:
        """Whether all tests passed and the analysis ended with an outcome."""
        return "failed" not in self.tests + self.analysis


def selected(words: Iterable[str]) -> list[Combination]:
    """Returns the combinations that words like "2.18" and "2.21/3.13" name; all if there is no word.

    Raises:
        ValueError: a word names none.
    """
    words = list(words)
    unknown = [word for word in words if all(word not in (str(one), one.tensorflow) for one in ALL)]
    if unknown:
        raise ValueError(f"There is no {', '.join(unknown)}; there are {', '.join(map(str, ALL))}.")
    return [one for one in ALL if not words or {str(one), one.tensorflow} & set(words)]


def remaining(chosen: Iterable[Combination], results: Iterable[Result], commit: str) -> list[Combination]:
    """Returns those that have not passed with this commit."""
    done = {one.combination for one in results if one.commit == commit and one.passed and not commit.endswith("+")}
    return [one for one in chosen if one not in done]


def table(results: Iterable[Result]) -> str:
    """Returns the rows of all combinations in Markdown."""
    by_combination = {one.combination: one for one in results}
    rows = [_COLUMNS, ("---",) * len(_COLUMNS)]
    for one in ALL:
        seen = by_combination.get(one) or Result(one.tensorflow, one.python, "not run", "not run", "", "")
        rows.append((seen.tensorflow, seen.python, seen.tests, seen.analysis, seen.date, seen.commit))
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def read_table(text: str) -> list[Result]:
    """Returns the results in a text that `table` wrote, without those that were not run."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| 2"]
    return [one for one in (Result(*row) for row in rows) if one.commit]


def counted(report: str) -> str:
    """Returns how many tests passed, and how many did not, by pytest's report in XML."""
    suites = ElementTree.fromstring(report).findall("testsuite")
    tests, skipped, *bad = (
        sum(int(suite.attrib[name]) for suite in suites) for name in ("tests", "skipped", "failures", "errors")
    )
    counts = {"passed": tests - skipped - sum(bad), "skipped": skipped, "failed": sum(bad)}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "passed")


def outcome(exit_code: int, printed: str, results: Path) -> str:
    """Returns the outcome that `analyze --json` printed, if session and report are there too; else what failed."""
    missing = [name for name in ("session.json", "report.html") if not (results / name).is_file()]
    if exit_code or missing:
        return f"failed: exit code {exit_code}" + "".join(f", no {name}" for name in missing)
    return str(json.loads(printed).get("outcome") or "failed: no outcome")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", help="2.18 or 2.18/3.11, before the options (default: all)")
    parser.add_argument("--again", action="store_true", help="also those that have passed with this commit")
    parser.add_argument("--environments", type=Path, default=ENVIRONMENTS, metavar="FOLDER")
    parser.add_argument(
        "--analyze-with", type=shlex.split, default=[], metavar="COMMAND", help="as `flock FILE`, before the analysis"
    )
    options = parser.parse_args(words)
    try:
        chosen = selected(options.versions)
    except ValueError as error:
        parser.error(str(error))
    commit = _commit()
    todo = chosen if options.again else remaining(chosen, _kept(), commit)
    for one in todo:
        interpreter = find_python(one.python)
        if interpreter is None:
            print(f"{one}: there is no python{one.python} on the PATH", flush=True)
            continue
        print(f"{one}: preparing the environment", flush=True)
        result = _try(environment(one, interpreter, options.environments.resolve()), options.analyze_with, commit)
        RESULTS.write_text(_INTRODUCTION + table([*_kept(), result]))
        print(f"{one}: tests {result.tests}; analysis {result.analysis}", flush=True)
    return int(not all(one.passed for one in _kept() if one.combination in chosen))


def _kept() -> list[Result]:
    """What is in the file now: another process may have added to it."""
    return read_table(RESULTS.read_text()) if RESULTS.exists() else []


def find_python(version: str) -> str | None:
    """Returns the interpreter of this version on the PATH; what a version manager has there may run nothing."""
    found = shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "--version"], capture_output=True).returncode:
        return None
    return found


def environment(one: Combination, interpreter: str, folder: Path) -> Path:
    """Returns the Python of the combination's environment, which is brought up to date if pyproject.toml changed."""
    home = folder / f"tensorflow-{one.tensorflow}-python-{one.python}"
    python, stamp = home / "bin" / "python", home / "installed-for"
    wanted = f"{ROOT}\n{(ROOT / 'pyproject.toml').read_text()}"
    if not stamp.is_file() or stamp.read_text() != wanted:
        subprocess.run([interpreter, "-m", "venv", home], check=True)
        install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        packages = ("--editable", f"{ROOT}[dev]", f"tensorflow=={one.tensorflow}.*")
        subprocess.run([python, *install, *packages], check=True)
        stamp.write_text(wanted)
    return python


def _try(python: Path, analyze_with: Sequence[str], commit: str) -> Result:
    facts = "import platform, importlib.metadata as m; print(m.version('tensorflow'), platform.python_version())"
    tensorflow, release = subprocess.check_output([python, "-c", facts], text=True).split()
    with tempfile.TemporaryDirectory() as folder:
        tests = _run_tests(python, Path(folder))
        analysis = _analyze(python, Path(folder) / "results", analyze_with)
    return Result(tensorflow, release, tests, analysis, time.strftime("%Y-%m-%d"), commit)


def _run_tests(python: Path, folder: Path) -> str:
    report = folder / "tests.xml"
    once_more = ("--reruns", "1")  # some compare as much as time allows, and other programs use the machine too
    words = ("-q", "-m", "not exhaustive", *once_more, f"--junitxml={report}", *(f"tests/{name}" for name in TESTS))
    done = subprocess.run([python, "-m", "pytest", *words], cwd=ROOT, check=False)
    return counted(report.read_text()) if report.is_file() else f"failed: exit code {done.returncode}"


def _analyze(python: Path, results: Path, analyze_with: Sequence[str]) -> str:
    if not (EXAMPLE / "data").is_dir():
        subprocess.run([python, EXAMPLE / "make_data.py"], check=True)
    words = ("analyze", "--json", "--budget", BUDGET, "--out", results, EXAMPLE / "train.py")
    done = subprocess.run(
        [*analyze_with, python.with_name("pipetune"), *words], stdout=subprocess.PIPE, text=True, check=False
    )
    return outcome(done.returncode, done.stdout, results)


def _commit() -> str:
    """Returns the commit that is checked out, with a + if files differ from it."""
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    status = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", f":!{RESULTS.relative_to(ROOT)}"]
    return commit + "+" * bool(subprocess.check_output(status, cwd=ROOT, text=True))


if __name__ == "__main__":
    sys.exit(main())
