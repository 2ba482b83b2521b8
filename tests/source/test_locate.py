"""Every recorded call is found in the text by its bytecode positions."""

# ruff: noqa: E501 (the cases are source text, as it appears in a file)
from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import SourceLocation
from pipetune.source.draft import called_name, locate
from pipetune.source.source_files import BYTE_ORDER_MARK, read_source
from pipetune.source.syntax_tree import SyntaxTree
from tests.source.recorder import record

SHAPES = {
    "apply and a decorator": """
def twice(function):
    return lambda ds: function(function(ds))
@twice
def add(ds):
    return ds.map(lambda x: x)
train(tf.data.Dataset.range(3).apply(add).apply(lambda d: d.batch(2)))
""",
    "not ASCII before the call, tabs, an f-string": """
def größe():
\tname = "näme 日本語 🙂"; ds = tf.data.Dataset.range(10); ds = ds.map(lambda ü: ü); label = f"{name} ✓"; ds = ds.batch(2)
\treturn ds
train(größe())
""",
    "by other names": """
from tensorflow.data import TFRecordDataset as Records
from tensorflow.keras.utils import image_dataset_from_directory as images
train(Records("a").map(lambda x: x))
validate(images("folder").batch(2))
""",
    "interleave with an inner pipeline": """
ds = tf.data.Dataset.range(3).interleave(
    lambda f: tf.data.TFRecordDataset(f).map(
        lambda x: x,
    ),
    cycle_length=2,
)
train(ds)
""",
}


def parsed(text):
    return SyntaxTree(text.removeprefix(BYTE_ORDER_MARK).encode())


@pytest.mark.parametrize(("start", "newline"), [("", "\n"), ("\ufeff", "\r\n")], ids=["LF", "BOM and CRLF"])
@pytest.mark.parametrize("source", SHAPES.values(), ids=SHAPES)
def test_every_recorded_call_is_found(tmp_path, source, start, newline):
    path = tmp_path / "sample.py"
    path.write_bytes((start + f"import tensorflow as tf{source}".replace("\n", newline)).encode())
    made = record(path).made
    assert len(made) >= 2
    text = read_source(str(path))
    for dataset in made:
        call = locate(parsed(text), dataset.location)
        assert called_name(call) in (dataset.location.method, "Records", "images")


LOCATION = SourceLocation(file="a.py", line=1, column=5, end_line=1, end_column=14, method="map")


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("ds = ds.map(ff)\n", {}),  # ends one byte further right
        ("ds = ds.zip(f)\n", {}),  # another method ends there
        ("ds = ds['map'](f)\n", {"end_column": 17}),
        ("ds = ds.map(f)\n", {"line": 7, "end_line": 7}),
        ("ds = ds.map(f\n", {}),  # not valid Python
        ("ds = ds.map(f)\rx = 1\r", {}),  # newlines that LibCST does not keep
    ],
)
def test_missing_call_is_refused(text, change):
    with pytest.raises(CannotExpress):
        locate(parsed(text), replace(LOCATION, **change))


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("ds = (ds\n  .batch(2)\n  .map(f)\n)\n", 2, "ds\n  .batch(2)\n  .map(f)"),
        ("def f(ds):\n  if True:\n    return ds.map(g)\n  return ds.map(h)\n", 3, "ds.map(g)"),
        ("a = 1; ds = ds.map(f)\n", 1, "ds.map(f)"),
    ],
)
def test_statement_without_exact_position_is_searched_for_its_only_call(text, line, found):
    location = replace(LOCATION, line=line, end_line=line, exact=False)
    tree = SyntaxTree(text.encode())
    assert tree.text(locate(tree, location)) == found


@pytest.mark.parametrize("text", ["ds = ds.map(f).map(g)\n", "ds = ds.batch(2)\n", "a = b.map(f); c = d.map(g)\n"])
def test_statement_with_no_or_two_matching_calls_is_refused(text):
    with pytest.raises(CannotExpress, match=r"map occurs [02] times"):
        locate(parsed(text), replace(LOCATION, exact=False))
