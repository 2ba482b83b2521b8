"""The diff is accepted by git and patch, and reading it back restores the exact text."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetune.core.errors import PipetuneError
from pipetune.source.emit import Emission
from pipetune.source.unified_diffs import patch_header, patch_root, read_patch, unified_diff
from tests.core.sessions import MACHINE

CASES = {
    "a line": ("a\nb\nc\nd\ne\nf\ng\nh\n", "a\nb\nc\nd\nE\nf\ng\nh\n"),
    "first and last": ("a\nb\nc\nd\ne\nf\ng\nh\ni\n", "A\nb\nc\nd\ne\nf\ng\nh\nI\n"),
    "lines come": ("a\n", "a\nb\nc\n"),
    "lines go": ("a\nb\nc\n", "b\n"),
    "no newline at the end": ("a\nb", "a\nB"),
    "the newline goes": ("a\nb\n", "a\nb"),
    "the newline comes": ("a\nb", "a\nb\n"),
    "CRLF": ("a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n"),
    "a byte order mark": ("\ufeffa\nb\n", "\ufeffA\nb\n"),
    "looks like a diff": ("-- a/x\n++ b/x\n@@ -1 +1 @@\n\\ No\n", "--- a/x\n-- a/x\n+++ b/x\n@@ -1,9 +1 @@\n"),
    "odd line ends": ("a\x0cb\u2028c\rd\nx\n", "a\x0cb\u2028c\rd\nX\n"),
    "far apart": ("a\n" + "x\n" * 250 + "b\n", "A\n" + "x\n" * 250 + "B\n"),
}


def emission(files) -> Emission:
    return Emission(files, (), ())


TOOLS = {
    "git": ["git", "apply", "--whitespace=nowarn", "-"],
    "patch": ["patch", "-p1", "--fuzz=0", "--no-backup-if-mismatch"],
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("case", CASES)
def test_diff_is_accepted_by_git_and_patch(tmp_path, tool, case):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    old, new = CASES[case]
    file = tmp_path / ("a folder/my data.py" if case == "a line" else "train.py")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(old.encode())
    diff = unified_diff(
        emission({str(file): (old, new)}), root=str(tmp_path), header=patch_header(MACHINE, version="1.2.3")
    )
    done = subprocess.run(TOOLS[tool], input=diff.encode(), cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert b"fuzz" not in done.stdout and b"offset" not in done.stdout
    assert file.read_bytes() == new.encode()


def test_header_names_the_machine_in_comment_lines():
    machine = replace(MACHINE, cores_granted=1.5)
    text = unified_diff(emission({"/p/a.py": ("a\n", "b\n")}), root="/p", header=patch_header(machine, version="1.2.3"))
    header = text.split("--- a/")[0]
    assert all(line.startswith("# ") for line in header.splitlines())
    for part in ("pipetune 1.2.3", "1.5 of 64 cores", "8.0 GiB", "cpu", "An Invented Processor"):
        assert part in header


def test_diff_has_three_lines_of_context():
    old, new = CASES["a line"]
    diff = unified_diff(emission({"/p/a.py": (old, new)}), root="/p")
    assert diff.splitlines()[2:] == ["@@ -2,7 +2,7 @@", " b", " c", " d", "-e", "+E", " f", " g", " h"]


def test_files_are_sorted_and_empty_patch_is_empty():
    files = {"/p/b.py": ("x\n", "y\n"), "/p/a/c.py": ("1\n", "2\n")}
    assert [part.path for part in read_patch(unified_diff(emission(files), root="/p"))] == ["a/c.py", "b.py"]
    assert unified_diff(emission({}), root="/p", header="machine") == ""


def test_file_outside_the_root_moves_the_root():
    assert patch_root(["/p/q/a.py", "/p/q/r/b.py"], "/p/q") == "/p/q"
    assert patch_root(["/p/q/a.py", "/p/lib/b.py"], "/p/q") == "/p"
    files = {"/p/q/a.py": ("x\n", "y\n"), "/p/lib/b.py": ("x\n", "y\n")}
    assert "--- a/lib/b.py\n" in unified_diff(emission(files), root="/p/q")


LINES = st.lists(
    st.sampled_from(["a", "b", "c", "", "-- x", "++ b/x", "@@ -1 +1 @@", "é\r", "\\ No newline"]), max_size=30
)


@settings(max_examples=100, deadline=None)
@given(LINES, LINES, st.booleans(), st.booleans())
def test_patch_round_trips_in_both_directions(old_lines, new_lines, old_newline, new_newline):
    old = "\n".join(old_lines) + ("\n" if old_newline else "")
    new = "\n".join(new_lines) + ("\n" if new_newline else "")
    diff = unified_diff(emission({"/p/a.py": (old, new)}), root="/p", header="h") if old != new else ""
    for part in read_patch(diff):
        assert part.apply(old) == new
        assert part.apply(new, reverse=True) == old


@pytest.mark.parametrize("text", ["a\nb\nx\n", "new\na\nb\nc\n", ""])
def test_other_text_is_refused(text):
    (part,) = read_patch(unified_diff(emission({"/p/a.py": ("a\nb\nc\n", "a\nB\nc\n")}), root="/p"))
    assert part.apply(text) is None


@pytest.mark.parametrize("cut", [1, 2])
def test_damaged_patch_is_refused(cut):
    diff = unified_diff(emission({"/p/a.py": ("a\nb\nc\n", "a\nB\nc\n")}), root="/p")
    with pytest.raises(PipetuneError, match=r"damaged|ends in the middle"):
        read_patch("".join(diff.splitlines(keepends=True)[:-cut]))
    with pytest.raises(PipetuneError, match="a file"):
        read_patch("@@ -1 +1 @@\n-a\n+b\n")


def test_importing_patch_application_does_not_load_libcst():
    code = "import sys, pipetune.source.patch_application; assert 'libcst' not in sys.modules"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
