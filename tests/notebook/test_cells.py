"""Cells of a notebook in a session: their names in place of made-up files, and the plan as a change of their text."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipetune.core.edits import Insert, Plan, Rewrite, Safety, SetArgument, SetOption, SplitFunction
from pipetune.core.functions import FunctionSplit, SplitPosition
from pipetune.core.measurement import Interval
from pipetune.core.pipeline import Pipeline, SourceLocation
from pipetune.core.profile import Diagnosis, Finding, Verdict
from pipetune.core.session import Candidate, DatasetResult, PatchResult, Session
from pipetune.core.settings import Command
from pipetune.report.patch import diff
from pipetune.report.places import places_of
from pipetune.report.render import render_text
from pipetune.source.cells import Cells
from pipetune.source.source_files import source_lines
from tests import words

compilerop = pytest.importorskip("IPython.core.compilerop")

TEXT = "\nimport tensorflow as tf\nds = tf.data.Dataset.range(9)\nds = ds.map(decode)\nds = ds.batch(3)\n"
PARALLEL = Rewrite("parallel-map", "n1", Safety.EXACT, (SetArgument("n1", "num_parallel_calls", 2),), "")
PREFETCH = Rewrite("prefetch", "n2", Safety.EXACT, (Insert("n2", "prefetch", "prefetch@n2", {"buffer_size": 2}),), "")


class NotebookCompiler(compilerop.CachingCompiler):  # type: ignore[misc,name-defined]
    """Names cells as the kernel of a notebook does."""

    def get_code_name(self, raw_code: str, _transformed: str, _number: int) -> str:
        return f"/tmp/ipykernel_17/{abs(hash(raw_code))}.py"


@pytest.fixture(params=[NotebookCompiler, compilerop.CachingCompiler], ids=["notebook", "terminal"])
def cell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], str]:
    """Compiles a cell, as the running shell; returns its file."""
    compiler = request.param()
    shell = SimpleNamespace(compile=compiler)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    return lambda text, number: str(compiler.cache(text, number))


def pipeline(file: str) -> Pipeline:
    """The pipeline that `TEXT` builds, with the places of its calls."""
    found = words.pipeline("range 9 | map | batch 3")
    calls = [call for call in ast.walk(ast.parse(TEXT)) if isinstance(call, ast.Call)]
    spans = sorted((call.lineno, call.col_offset, call.end_lineno, call.end_col_offset) for call in calls)
    nodes = [
        replace(node, location=SourceLocation(file, *span, node.op))
        for node, span in zip(found.nodes, spans, strict=True)
    ]
    return Pipeline(tuple(nodes), name="ds")


def session(file: str, *, plan: Plan | None = None) -> Session:
    found = pipeline(file)
    sentence = f"map ({file.rpartition('/')[2]}:4) bounds the input."
    diagnosis = Diagnosis(Verdict.INPUT_BOUND, "Training waits.", bottleneck_sentence=sentence)
    dataset = DatasetResult(found, "training", "Model.fit", file=file, line=7, diagnosis=diagnosis, plan=plan)
    patch = PatchResult() if plan is not None else None
    findings = (Finding("frozen-order", f"shuffle in {file}", file=file, line=3),)
    notes = (f"See {file}:5.", "See /home/ada/other.py:5.")
    more = {"findings": findings, "notes": notes, "patch": patch}
    return Session("1", Command(), datasets=(dataset,), **more, status="done", complete=True)


def test_places_are_named_as_cells(cell: Callable[[str, int], str]) -> None:
    before = session(cell(TEXT, 3))
    after = Cells().finish(before)
    assert [node.location.file for node in after.datasets[0].pipeline if node.location] == ["In [3]"] * 3
    assert (after.datasets[0].file, after.findings[0].file, after.findings[0].message) == (
        *("In [3]", "In [3]", "shuffle in In [3]"),
    )
    diagnosis = after.datasets[0].diagnosis
    assert diagnosis is not None and diagnosis.bottleneck_sentence == "map (In [3], line 4) bounds the input."
    assert after.notes == ("See In [3], line 5.", "See /home/ada/other.py:5."), "of a file as it is"
    assert replace(after, datasets=(), findings=(), notes=()) == replace(before, datasets=(), findings=(), notes=())


def test_cell_that_ran_again_has_its_last_number(cell: Callable[[str, int], str]) -> None:
    cell(TEXT, 3)
    file = cell(TEXT, 12)
    assert Cells().named(f"{file}:1 and {file}") == "In [12], line 1 and In [12]"


def test_plan_is_a_patch_of_the_cell(cell: Callable[[str, int], str]) -> None:
    plan = Plan("tuned", (PARALLEL, PREFETCH))
    before = session(cell(TEXT, 3), plan=plan)
    after = Cells().finish(before)
    assert after.patch is not None and after.patch.of_cells
    text = after.patch.diff
    assert text.startswith("--- In [3]\n+++ In [3]\n@@ ")
    assert "-ds = ds.map(decode)\n" in text and "+ds = ds.map(decode, num_parallel_calls=2)\n" in text
    assert "+ds = ds.batch(3).prefetch(2)\n" in text
    assert after.patch.covered == (PARALLEL.key, PREFETCH.key) and not after.patch.not_covered


def test_report_shows_the_patch_of_the_cell_and_how_to_train_with_the_plan(cell: Callable[[str, int], str]) -> None:
    before = session(cell(TEXT, 3), plan=Plan("tuned", (PARALLEL, PREFETCH)))
    gains = {PARALLEL.key: Interval(1.8, 1.6, 2.0, 6)}
    plan = before.plan
    before = replace(before, datasets=(replace(before.datasets[0], plan=plan, gains=gains),))
    after = Cells().finish(before)
    shown = diff(after, places_of(after))
    assert shown is not None and [hunk.gains[0] for hunk in shown.hunks] == ["parallel-map 1.80x (1.60 to 2.00)"]
    page = render_text(after, "markdown")
    assert "+ds = ds.map(decode, num_parallel_calls=2)" in page
    assert "ds = pipetune.apply_plan(ds, session.plan)" in page
    assert "pipetune apply " not in page and "No patch" not in page and "the changed cells were not run" in page


def test_rewrite_that_cannot_be_written_says_why(cell: Callable[[str, int], str]) -> None:
    file = cell("\nds = make()\n", 3)
    after = Cells().finish(session(file, plan=Plan("tuned", (PARALLEL,))))
    assert after.patch is not None and after.patch.diff == ""
    (rejection,) = after.patch.not_covered
    assert rejection.why


def test_part_of_a_plan_is_no_patch_where_it_was_not_compared(cell: Callable[[str, int], str]) -> None:
    cached = Rewrite("cache", "n1", Safety.EXACT, (Insert("n1", "cache", "c", {"filename": ""}),), "")
    option = Rewrite("threads", "n2", Safety.EXACT, (SetOption("autotune.cpu_budget", "a text"),), "")
    file = cell(TEXT, 3)
    for first, written in ((cached, False), (PARALLEL, True)):
        after = Cells().finish(session(file, plan=Plan("tuned", (first, option))))
        assert after.patch is not None and bool(after.patch.diff) is written
        assert len(after.patch.not_covered) == 2 - written


@pytest.mark.parametrize(("other", "kept"), [("show(decode)\n", True), ("", False)])
def test_function_that_another_cell_uses_is_kept(
    cell: Callable[[str, int], str], other: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no file there uses it
    file = cell(TEXT + "def decode(x):\n    y = x + 1\n    return y * 2\n", 3)
    cell(other, 4)
    cut = FunctionSplit(SplitPosition.BEFORE_DRAWS, position=1, head="h", tail="t", statement=1, handed=1, components=1)
    split = SplitFunction("n1", cut)
    cached = Insert(split.head, "cache", f"cache@{split.head}", {"filename": ""})
    plan = Plan("tuned", (Rewrite("split-map", "n1", Safety.EXACT, (split, cached), ""),))
    after = Cells().finish(session(file, plan=plan))
    assert after.patch is not None and "+def decode_head(x):\n" in after.patch.diff
    assert ("-def decode(x):" not in after.patch.diff) is kept


def test_candidate_has_a_patch_of_the_cell(cell: Callable[[str, int], str]) -> None:
    before = session(cell(TEXT, 3))
    candidate = Candidate(
        Plan("c", (PARALLEL,)), Interval(1.2, 1.1, 1.3, 4), 0.9, "training", "Too little time.", patch=PatchResult("d")
    )
    before = replace(before, datasets=(replace(before.datasets[0], candidate=candidate),))
    after = Cells().finish(before)
    assert after.candidate is not None and after.candidate.plan == candidate.plan
    assert after.candidate.diff.startswith("--- In [3]") and after.candidate.patch.of_cells
    assert after.patch is None, "nothing is proven"
    assert "--unproven" not in render_text(after, "markdown")


def test_pipeline_of_a_file_keeps_its_patch(cell: Callable[[str, int], str], tmp_path: Path) -> None:
    cell("1 + 1", 2)
    script = tmp_path / "data.py"
    script.write_text(TEXT)
    before = session(str(script), plan=Plan("tuned", (PARALLEL,)))
    before = replace(before, patch=PatchResult("--- a/data.py\n", (str(script),), covered=(PARALLEL.key,)))
    assert Cells().finish(before) == before


def test_without_a_shell_a_session_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    before = session("/tmp/ipykernel_17/123.py")
    assert Cells().finish(before) is before


def test_report_shows_the_line_of_each_call(cell: Callable[[str, int], str]) -> None:
    found = pipeline(cell(TEXT, 3))
    assert source_lines(found) == {
        "n0": "ds = tf.data.Dataset.range(9)", "n1": "ds = ds.map(decode)", "n2": "ds = ds.batch(3)"
    }  # fmt: skip
    assert source_lines(pipeline("/nowhere.py")) == {}
