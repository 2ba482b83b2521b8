"""Mutation testing: changes random lines of the package and reports which tests detect each change.

python -m tests.broken --seed 17 [--count 40] [--commit HEAD]     continues an earlier call of the same three

Each change alone is tested by those tests of `make test` that run its line (all of them run once, unchanged, with the
coverage of each recorded). What these do not detect is changed at once while all tests of `make test` run, and what
these do not detect while those of `make test-exhaustive` run; each failed test then runs with each change alone. A test
detects a change if it fails twice with it and passes without. The lines are changed in a separate checkout; this one is
not modified. The result is `reports/broken.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst
from coverage import CoverageData
from libcst.metadata import MetadataWrapper, PositionProvider

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("equality", "pipelines", "search", "source", "supervisor", "worker", "model")
"""The packages in which lines are changed."""

LIMIT_SECONDS = 7200
ALL = ("tests",)
SHORT, LONG = "not horovod and not registry and not exhaustive", "exhaustive"  # marks of the tests of the two suites
STATE = ROOT / "reports" / "broken.json"
COVERAGE = ROOT / "reports" / ".broken.coverage"  # of the commit that STATE names

_HANGS = "the tests do not end"
_MOST_FAILURES = 20  # of one run: each is run again with each change alone
_MOST_LIKELY = 60  # tests of one change: the others run in the next round
_STATEMENT_LINES = 6  # above a changed line: coverage knows of a statement the lines that have code of their own
_TEST_SECONDS = 300  # of one test; what hangs fails


def main() -> int:
    """Prints the test that detects each change; 1 where only the long suite detects three or more."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.broken", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--commit", default="HEAD", help="whose lines are changed, and whose tests run (default HEAD)")
    parser.add_argument("--together", default="3", help="processes of tests side by side (default 3)")
    parser.add_argument("--coverage", type=Path, help="a recorded coverage of that commit by test, of coverage.py")
    parser.add_argument("--list", action="store_true", help="only shows the lines")
    arguments = parser.parse_args()
    commit = subprocess.check_output(["git", "rev-parse", arguments.commit], cwd=ROOT, text=True).strip()
    with tempfile.TemporaryDirectory(prefix="broken-") as folder:
        checkout = Checkout(Path(folder) / "checkout", commit, arguments.together)
        breaks = chosen(checkout.folder, arguments.seed, arguments.count)
        if arguments.list:
            print("\n".join(map(str, breaks)))
            return 0
        report = Report(arguments.seed, commit, breaks)
        if not all(report.knows(one, "likely") for one in breaks):
            coverage = checkout.coverage(arguments.coverage)
            for one in breaks:
                if not report.knows(one, "likely"):
                    likely = tests_that_run(coverage, one)
                    test = checkout.detected_by(one, likely)
                    report.add({one: test} if test else {}, [one], "likely")
                    print(f"{one}\n    {test or f'not detected by {len(likely)} tests'}", flush=True)
        for suite, mark in (("short", SHORT), ("long", LONG)):
            left = report.undetected
            if not all(report.knows(one, suite) for one in left):
                for one, test in checkout.detected_together(left, mark):
                    report.add({one: test}, [one], suite)
                report.add({}, [one for one in left if not report.knows(one, suite)], suite)
    print(report)
    return 1 if report.count("long") > 2 else 0


class Report:
    """What is known of each change, kept in a file: the tests that were run, and the one that detected it."""

    def __init__(self, seed: str, commit: str, breaks: Sequence[Break]) -> None:
        self._breaks = breaks
        changes: dict[str, Any] = {str(one): {"run": [], "detected_by": ""} for one in breaks}
        kept = json.loads(STATE.read_text()) if STATE.exists() else {"changes": {}}
        same = {**kept, "changes": list(kept["changes"])} == {"seed": seed, "commit": commit, "changes": list(changes)}
        self._content: dict[str, Any] = kept if same else {"seed": seed, "commit": commit, "changes": changes}

    def knows(self, one: Break, tests: str) -> bool:
        return tests in self._of(one)["run"]

    @property
    def undetected(self) -> list[Break]:
        return [one for one in self._breaks if not self._of(one)["detected_by"]]

    def count(self, tests: str) -> int:
        """How many changes these tests were the first to detect."""
        return sum(bool(one["detected_by"]) and one["run"][-1] == tests for one in self._content["changes"].values())

    def add(self, detected: Mapping[Break, str], tested: Collection[Break], tests: str) -> None:
        for one in tested:
            self._of(one)["run"].append(tests)
            self._of(one)["detected_by"] = detected.get(one, "")
        STATE.write_text(json.dumps(self._content, indent=1) + "\n")

    def _of(self, one: Break) -> dict[str, Any]:
        return self._content["changes"][str(one)]

    def __str__(self) -> str:
        short, long = self.count("likely") + self.count("short"), self.count("long")
        return f"{short} of {len(self._breaks)} detected by the short suite, {long} more by the long one"


# -- changing lines


@dataclass(frozen=True)
class Break:
    """A change of one line."""

    file: str
    line: int
    was: str
    becomes: str
    text: str
    """The whole file, with the change."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.was} -> {self.becomes}"


def chosen(root: Path, seed: str, count: int) -> list[Break]:
    """`count` changes of lines of this checkout, each in a different file while there are enough."""
    draw = random.Random(seed)
    breaks: list[Break] = []
    used: set[Path] = set()
    while len(breaks) < count:
        files = sorted((root / "pipetune" / PACKAGES[len(breaks) % len(PACKAGES)]).rglob("*.py"))
        lengths = [len(path.read_text().splitlines()) * (path not in used) for path in files]
        (path,) = draw.choices(files, lengths)
        used.add(path)
        source = _Source(root, path)
        if source.lines:
            line = draw.choice(sorted(source.lines))
            one = source.broken(line, *draw.choice(source.lines[line]))
            breaks += [one] if one is not None else []
    return breaks


_PAIRS: tuple[tuple[type[cst.CSTNode], type[cst.CSTNode]], ...] = (
    (cst.Equal, cst.NotEqual), (cst.LessThan, cst.LessThanEqual), (cst.GreaterThan, cst.GreaterThanEqual),
    (cst.Is, cst.IsNot), (cst.In, cst.NotIn), (cst.And, cst.Or), (cst.Add, cst.Subtract),
)  # fmt: skip
_SWAPPED = {one: other() for pair in _PAIRS for one, other in (pair, pair[::-1])} | {cst.Multiply: cst.Add()}


def _other(node: cst.CSTNode) -> cst.CSTNode | None:
    """The changed node."""
    match node:
        case cst.Integer():
            return cst.Integer(str(int(node.value, 0) + 1))
        case cst.Name(value="True" | "False"):
            return cst.Name(str(node.value == "False"))
        case cst.UnaryOperation(operator=cst.Not()):
            return cst.ensure_type(node.expression, cst.BaseExpression)
        case cst.Return(value=cst.BaseExpression()):
            return None if node.value.deep_equals(cst.Name("None")) else node.with_changes(value=cst.Name("None"))
        case cst.Expr(value=cst.Call()):
            return cst.Pass()
        case cst.If() | cst.IfExp():
            turned = cst.UnaryOperation(cst.Not(), cst.ensure_type(node.test, cst.BaseExpression))
            return node.with_changes(test=turned.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()]))
    return _SWAPPED.get(type(node))


class _Source:
    """One module of the package, and the nodes of it that can be changed."""

    def __init__(self, root: Path, path: Path) -> None:
        self._file = str(path.relative_to(root))
        wrapper = MetadataWrapper(cst.parse_module(path.read_text(encoding="utf-8")))
        self._module, positions = wrapper.module, wrapper.resolve(PositionProvider)
        self.lines: dict[int, list[tuple[cst.CSTNode, cst.CSTNode]]] = defaultdict(list)  # node, what it becomes
        for node in _inside_functions(wrapper.module):
            if (other := _other(node)) is not None:
                self.lines[positions[node].start.line].append((node, other))

    def broken(self, line: int, node: cst.CSTNode, other: cst.CSTNode) -> Break | None:
        """The module with this change; None where it shows in no line."""
        text = cst.ensure_type(self._module.deep_replace(node, other), cst.Module).code
        for was, becomes in zip(self._module.code.splitlines(), text.splitlines(), strict=False):
            if was != becomes:
                return Break(self._file, line, was.strip(), becomes.strip(), text)
        return None


def _inside_functions(node: cst.CSTNode, inside: bool = False) -> Iterator[cst.CSTNode]:
    if isinstance(node, cst.Annotation):
        return
    if inside:
        yield node
    for child in node.children:
        yield from _inside_functions(child, inside or isinstance(node, cst.IndentedBlock))


# -- running tests


def tests_that_run(coverage: CoverageData, one: Break) -> list[str]:
    """The tests that run the line of a change, those of its package first, and of each file some before more."""
    by_line = coverage.contexts_by_lineno(one.file)
    contexts: list[str] = []
    for line in range(one.line, max(0, one.line - _STATEMENT_LINES), -1):
        if contexts := sorted({context.rpartition("|")[0] for context in by_line.get(line, ()) if context}):
            break
    package = one.file.split("/")[1]
    seen: Counter[str] = Counter()
    ranks = {}
    for test in contexts:
        seen[file := test.split("::")[0]] += 1
        ranks[test] = (not file.startswith(f"tests/{package}/"), seen[file])
    return sorted(contexts, key=ranks.__getitem__)[:_MOST_LIKELY]


class Checkout:
    """A checkout in which lines are changed and tests run."""

    def __init__(self, folder: Path, commit: str, together: str) -> None:
        self.folder, self._together = folder, together
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        subprocess.run(["git", "checkout", "--quiet", commit], cwd=folder, check=True)

    def coverage(self, recorded: Path | None) -> CoverageData:
        """Which tests of the short suite run which lines.

        Args:
            recorded: the data file of an earlier run; None: all tests run now.
        """
        if recorded is None:
            recorded = COVERAGE
            recorded.unlink(missing_ok=True)
            settings = self.folder.parent / "coverage.ini"
            settings.write_text(f"[run]\nsource = pipetune\nrelative_files = true\ndata_file = {recorded}\n")
            options = ("--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report=")
            self._run(SHORT, ALL, 10_000, *options)
        data = CoverageData(str(recorded))
        data.read()
        return data

    def detected_by(self, one: Break, tests: Sequence[str]) -> str:
        """The first of these tests that detects the change, or ""."""
        by_chance: set[str] = set()
        while left := tuple(test for test in tests if test not in by_chance):
            failed = self._failed("", left, broken=[one], most=1)
            if _HANGS in failed:
                return _HANGS
            for test in sorted(failed):
                if self._detects(test, one):
                    return test
            if not failed - by_chance:
                break
            by_chance |= failed
        return ""

    def detected_together(self, breaks: Collection[Break], mark: str) -> Iterator[tuple[Break, str]]:
        """Runs all tests with all changes at once, and each failed test with each change alone, until none fails.

        Yields each change that was detected with the test, as soon as that is known.

        A change may hide another's effect in a test, but not in every round: what was detected is put right first.
        """
        left, by_chance = list(breaks), set[str]()
        while left and (failed := self._failed(mark, ALL, broken=left, without=by_chance, most=_MOST_FAILURES)):
            if _HANGS in failed:
                raise SystemExit(f"{_HANGS} with these changes: " + "; ".join(map(str, left)))
            by_chance |= failed
            for test in sorted(failed):
                for one in [one for one in left if self._detects(test, one)]:
                    yield one, test
                    left.remove(one)

    def _detects(self, test: str, one: Break) -> bool:
        return bool(self._failed("", (test,), broken=[one])) and not self._failed("", (test,), broken=[])

    def _failed(
        self,
        mark: str,
        tests: tuple[str, ...],
        *,
        broken: Collection[Break],
        without: Collection[str] = (),
        most: int = 1,
    ) -> set[str]:
        """The tests that fail with these changes, up to the first few."""
        original = {one.file: (self.folder / one.file).read_text(encoding="utf-8") for one in broken}
        try:
            for one in broken:
                (self.folder / one.file).write_text(one.text, encoding="utf-8")
            output = self._run(mark, tests, most, *(word for test in sorted(without) for word in ("--deselect", test)))
        except subprocess.TimeoutExpired:
            return {_HANGS}
        finally:
            for file, text in original.items():
                (self.folder / file).write_text(text, encoding="utf-8")
        return set(re.findall(r"^(?:FAILED|ERROR) (\S+\.py(?:::.*?)?)(?: - .*)?$", output, re.M))

    def _run(self, mark: str, tests: tuple[str, ...], most: int, *options: str) -> str:
        """Runs tests until so many have failed, and returns what pytest prints."""
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", f"--maxfail={most}", f"--timeout={_TEST_SECONDS}"]
        command += ["-m", mark, *options, *tests]
        if not any("::" in test for test in tests):
            command += ["-n", self._together, "--dist", "loadfile", "--no-loadscope-reorder"]
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "TF_CPP_MIN_LOG_LEVEL": "3"}
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
        ).stdout


if __name__ == "__main__":
    raise SystemExit(main())
