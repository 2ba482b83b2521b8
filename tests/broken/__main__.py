"""Mutation testing: changes random lines of the package, one at a time, and reports which tests fail.

python -m tests.broken --seed 17 [--count 40]     continues an earlier call of the same seed and commit

Each changed line is tested by the tests that `make test` runs; where these pass, by those of `make test-exhaustive`.
A test detects the change if it fails twice with it and passes without. The lines are changed in a separate checkout;
this one is not modified.
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
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "pipetune/equality": ("tests/equality", "tests/rewrites/on_data"),
    "pipetune/pipelines": ("tests/pipelines", "tests/rewrites/on_data", "tests/distributed"),
    "pipetune/search": ("tests/search",),
    "pipetune/source": ("tests/source",),
    "pipetune/supervisor": ("tests/supervisor",),
    "pipetune/worker": ("tests/worker", "tests/supervisor"),
    "pipetune/model": ("tests/model",),
}
"""The packages in which lines are changed, and the tests most likely to detect it, which run first."""

LIMIT_SECONDS = 3600
ALL = ("tests",)

_HANGS = "the tests do not end"


def main() -> int:
    """Prints the test that detects each change; 1 where only the long suite detects three or more."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.broken", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--together", default="3", help="processes of tests side by side (default 3)")
    parser.add_argument("--list", action="store_true", help="only shows the lines")
    arguments = parser.parse_args()
    breaks = chosen(arguments.seed, arguments.count)
    if arguments.list:
        print("\n".join(map(str, breaks)))
        return 0
    commit = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip()
    state = ROOT / "reports" / f".broken-{arguments.seed}-{commit}.json"
    found: dict[str, str] = json.loads(state.read_text()) if state.exists() else {}
    with tempfile.TemporaryDirectory(prefix="broken-") as folder:
        checkout = Checkout(Path(folder) / "checkout", arguments.together)
        for one in breaks:
            if str(one) not in found:
                found[str(one)] = checkout.noticed(one)
                state.write_text(json.dumps(found, indent=1))
            print(f"{one}\n    {found[str(one)]}", flush=True)
    short = sum(by.startswith("short") for by in found.values())
    long = sum(by.startswith("long") for by in found.values())
    print(f"{short} of {len(breaks)} noticed by the short suite, {long} by the long one alone")
    return 1 if long > 2 else 0


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


def chosen(seed: str, count: int) -> list[Break]:
    """`count` changes, each in a different file while there are enough."""
    draw = random.Random(seed)
    folders = list(FOLDERS)
    breaks: list[Break] = []
    used: set[Path] = set()
    while len(breaks) < count:
        files = sorted((ROOT / folders[len(breaks) % len(folders)]).rglob("*.py"))
        lengths = [len(path.read_text().splitlines()) * (path not in used) for path in files]
        (path,) = draw.choices(files, lengths)
        used.add(path)
        if ways := list(_ways(path)):
            line = draw.choice(sorted({way.line for way in ways}))
            breaks.append(draw.choice([way for way in ways if way.line == line]))
    return breaks


_SWAPPED: dict[type[cst.CSTNode], cst.CSTNode] = {
    cst.Equal: cst.NotEqual(),
    cst.NotEqual: cst.Equal(),
    cst.LessThan: cst.LessThanEqual(),
    cst.LessThanEqual: cst.LessThan(),
    cst.GreaterThan: cst.GreaterThanEqual(),
    cst.GreaterThanEqual: cst.GreaterThan(),
    cst.Is: cst.IsNot(),
    cst.IsNot: cst.Is(),
    cst.In: cst.NotIn(),
    cst.NotIn: cst.In(),
    cst.And: cst.Or(),
    cst.Or: cst.And(),
    cst.Add: cst.Subtract(),
    cst.Subtract: cst.Add(),
    cst.Multiply: cst.Add(),
}


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


def _ways(path: Path) -> Iterator[Break]:
    wrapper = MetadataWrapper(cst.parse_module(path.read_text(encoding="utf-8")))
    positions = wrapper.resolve(PositionProvider)
    before = wrapper.module.code.splitlines()
    for node in _inside_functions(wrapper.module):
        other = _other(node)
        if other is None:
            continue
        text = wrapper.module.deep_replace(node, other).code
        line = positions[node].start.line
        changed = [pair for pair in zip(before, text.splitlines(), strict=False) if pair[0] != pair[1]]
        if changed:
            was, becomes = (part.strip() for part in changed[0])
            yield Break(str(path.relative_to(ROOT)), line, was, becomes, text)


def _inside_functions(node: cst.CSTNode, inside: bool = False) -> Iterator[cst.CSTNode]:
    if isinstance(node, cst.Annotation):
        return
    if inside:
        yield node
    for child in node.children:
        yield from _inside_functions(child, inside or isinstance(node, cst.IndentedBlock))


# -- running tests


class Checkout:
    """A checkout in which one line at a time is changed and tests run."""

    def __init__(self, folder: Path, together: str) -> None:
        self._folder, self._together = folder, together
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)

    def noticed(self, one: Break) -> str:
        """The first test that detects the change: "short: ID" or "long: ID", or "none"."""
        place = self._folder / one.file
        whole = place.read_text(encoding="utf-8")

        def broken(run: Callable[[], set[str]]) -> set[str]:
            place.write_text(one.text, encoding="utf-8")
            try:
                return run()
            finally:
                place.write_text(whole, encoding="utf-8")

        likely = FOLDERS[next(folder for folder in FOLDERS if one.file.startswith(folder))]
        for name, mark, tests in [
            ("short", "not exhaustive", likely),
            ("short", "not exhaustive", ALL),
            ("long", "exhaustive", likely),
            ("long", "exhaustive", ALL),
        ]:
            by_chance: set[str] = set()
            while failed := broken(partial(self._failed, mark, tests, without=by_chance)):
                if _HANGS in failed:
                    return f"{name}: {_HANGS}"
                for test in sorted(failed):
                    if broken(partial(self._failed, mark, (test,))) and not self._failed(mark, (test,)):
                        return f"{name}: {test}"
                by_chance |= failed
        return "none"

    def _failed(self, mark: str, tests: tuple[str, ...], without: Collection[str] = ()) -> set[str]:
        """The tests that failed, up to the first few."""
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--maxfail", "1", "-m", mark, *tests]
        if not any("::" in test for test in tests):
            command += ["-n", self._together, "--dist", "loadfile", "--no-loadscope-reorder"]
        command += [word for test in sorted(without) for word in ("--deselect", test)]
        environment = {**os.environ, "PYTHONPATH": str(self._folder), "TF_CPP_MIN_LOG_LEVEL": "3"}
        try:
            done = subprocess.run(
                command, cwd=self._folder, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
            )
        except subprocess.TimeoutExpired:
            return {_HANGS}
        return set(re.findall(r"^(?:FAILED|ERROR) (\S+\.py\S*)", done.stdout, re.M))


if __name__ == "__main__":
    raise SystemExit(main())
