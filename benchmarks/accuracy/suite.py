"""What `pipetune bench --accuracy` measures."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.accuracy import report
from benchmarks.accuracy.results import FIGURES, Accuracy
from benchmarks.figures import check_names
from benchmarks.suites import Suite
from pipetune.core.files import write_text


def _choose(names: Sequence[str], _quick: bool) -> Sequence[str]:
    check_names(names, FIGURES, kind="figure")
    return names or tuple(FIGURES)


SUITE = Suite(
    Accuracy,
    "benchmarks.accuracy",
    "accuracy",
    choose=_choose,
    print_figure=report.print_figure,
    print_all=lambda _accuracy, path: print(f"The figures: {path}", file=sys.stderr),
    write_report=lambda accuracy, path: write_text(path.with_suffix(".md"), report.markdown_text(accuracy)),
)
