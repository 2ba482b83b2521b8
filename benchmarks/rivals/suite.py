"""The workloads as figures of `pipetune bench`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.rivals.plot import write_figure
from benchmarks.rivals.report import markdown_text, print_benchmarks, print_workload
from benchmarks.rivals.results import Benchmarks
from benchmarks.rivals.workloads import choose_workloads
from benchmarks.suites import Suite
from pipetune.core.files import write_text


def _choose(names: Sequence[str], quick: bool) -> Sequence[str]:
    return tuple(choose_workloads(names, quick=quick))


def _print_all(benchmarks: Benchmarks, path: Path) -> None:
    if benchmarks.workloads:
        print_benchmarks(benchmarks)
        print(f"The results: {path}, the same as .md and .png", file=sys.stderr)


def _write_report(benchmarks: Benchmarks, path: Path) -> None:
    write_text(path.with_suffix(".md"), markdown_text(benchmarks))
    if benchmarks.workloads:
        write_figure(benchmarks, path.with_suffix(".png"))


SUITE = Suite(
    Benchmarks,
    "benchmarks.rivals",
    "benchmarks",
    choose=_choose,
    print_figure=lambda _name, result: print_workload(result),
    print_all=_print_all,
    write_report=_write_report,
)
