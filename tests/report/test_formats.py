"""Markdown, CSV, JSON, frames, and writing them."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Rate
from pipetune.core.profile import Finding
from pipetune.core.summary import summary
from pipetune.report.exports import COLUMNS, to_frame
from pipetune.report.render import FORMATS, render, render_text
from pipetune.report.words import block, code, escape
from tests.report import sessions as samples
from tests.report.reading import summary_line, summary_text, with_main, with_part


@pytest.mark.parametrize("name", samples.ALL)
def test_every_session_renders_in_every_format(name):
    """But as a trace where no steps were recorded."""
    for format in ("html", "markdown", "json", "csv", "text"):
        assert render_text(samples.ALL[name](), format)
    if name not in ("failed", "no_dataset", "bare"):
        assert json.loads(render_text(samples.ALL[name](), "trace"))["traceEvents"]


def test_golden_markdown(golden):
    golden("photos.md", render_text(samples.photos(), "markdown"))


@pytest.mark.parametrize("format", FORMATS)
def test_confidential_sessions_keep_everything_back_in_every_format(format):
    """Neither as it is saved, nor where a session that says it is confidential still holds everything."""
    said = with_part(samples.distributed(), "command", confidential=True)
    for session in (samples.confidential(), said):
        shown = render_text(session, format)
        for secret in ("train.py", "photo_input.py", "/home/ada", "--epochs", "tf.data.Dataset.list_files"):
            assert secret not in shown
    if format == "html":
        assert "1.36" in shown and "line 24" in shown


def test_advice_has_a_place_of_its_own():
    advice = Finding("steps-per-execution", "A step takes 1.4 ms.", "Compile it otherwise.", samples.SCRIPT, 9)
    session = replace(samples.photos(), findings=(), advice=(advice,))
    text = render_text(session, "html")
    assert ">Advice<" in text and "Warnings about" not in text
    assert all(part in summary_text(session) for part in ("steps-per-execution", "A step takes 1.4", "train.py:9"))
    assert summary(session)["advice"][0]["hint"] == "Compile it otherwise."


def test_whether_a_distributed_form_is_the_one_to_use_is_said_wherever_it_is_shown():
    session = samples.distributed()
    checks = tuple(replace(check, dropped=3, filled=1_021) for check in session.distributed.checks)
    advised = with_part(session, "distributed", advice=("A service is not recommended.",), checks=checks)
    assert "A service is not recommended." in summary_line(advised)
    text = render_text(advised, "markdown")
    assert "1,021" in text and "Dropped" in text


def test_frame_has_a_row_per_operator_and_no_invented_number():
    frame = to_frame(samples.photos())
    assert list(frame.columns) == list(COLUMNS)
    assert list(frame["operator"]) == ["list_files", "interleave", "map", "map", "shuffle", "batch", "repeat"]
    assert frame["cpu_us"].iloc[3] == pytest.approx(731.0)
    assert frame["cpu_share"].sum() == pytest.approx(1.0)
    assert math.isnan(frame["buffered_bytes"].iloc[0])
    assert frame["buffered_bytes"].iloc[4] == 154_140_672.0
    assert frame["bottleneck"].sum() == 1
    assert to_frame(samples.failed()).empty


def test_csv_reads_back_and_runs_nothing_in_a_spreadsheet():
    text = render_text(samples.photos(), "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[3]["source"] == "photo_input.py:24"
    assert float(rows[3]["cpu_us"]) == pytest.approx(731.0)
    assert rows[0]["buffered_bytes"] == ""

    text = render_text(with_main(samples.photos(), "pipeline", name="=HYPERLINK(1)"), "csv")
    assert text.splitlines()[1].startswith("'=HYPERLINK(1),")


def test_a_number_without_end_becomes_null():
    session = samples.photos()
    rates = {**session.datasets[0].rates, "off": Rate(examples_per_second=math.inf)}
    broken = with_main(session, rates=rates)
    data = json.loads(render_text(broken, "json"), parse_constant=pytest.fail)
    assert data["datasets"][0]["rates"]["off"]["examples_per_second"] is None
    assert "Infinity" not in render_text(broken, "html")


def test_markdown_of_hostile_names_is_text():
    text = render_text(samples.hostile(), "markdown")
    outside = "\n".join(part for index, part in enumerate(text.split("```")) if index % 2 == 0)
    assert "<script>" not in outside.replace("\\<script\\>", "").replace("`", "")[:200]
    assert "\n# " not in text[1:]
    assert all(line.endswith("|") for line in text.splitlines() if line.startswith("|"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("*x* _y_ `z`", "\\*x\\* \\_y\\_ \\`z\\`"),
        ("<img src=x>", "\\<img src=x\\>"),
        ("a\n# b", "a \\# b"),
        ("[x](javascript:alert)", "\\[x\\](javascript:alert)"),
        ("https://example.org", "https:\\//example.org"),
    ],
)
def test_markdown_escape(text, shown):
    assert escape(text) == shown


def test_code_spans_and_blocks_hold_backticks():
    assert code("a`b") == "`` a`b ``"
    assert code("") == ""
    assert code("a|b") == "`a|b`"
    assert code("a|b", cell=True) == "`a\\|b`"
    assert block("x\n```\ny")[0] == "````"


def test_render_says_what_is_wrong(tmp_path):
    with pytest.raises(PipetuneError, match="no report format 'pdf'") as caught:
        render(samples.photos(), "pdf", tmp_path / "x")
    assert "html" in caught.value.hint
    (tmp_path / "file").write_text("")
    with pytest.raises(PipetuneError, match="cannot be written"):
        render(samples.photos(), "json", tmp_path / "file" / "x.json")


def test_the_terminal_loads_neither_pandas_nor_matplotlib_nor_jinja():
    program = (
        "import sys\n"
        "from pipetune.report import console, exports, render, terminal\n"
        "heavy = {'pandas', 'matplotlib', 'jinja2', 'tensorflow', 'libcst'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", program], cwd=root, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
