"""Random sources and plans: covered rewrites run as their edits require, undone ones change no byte."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetune.core.edits import Insert, Move, Plan, Remove, Rewrite, Safety, SetArgument, apply_edits
from pipetune.core.pipeline import Pipeline
from pipetune.source.emit import emit
from tests.source.recorder import record, recorded, shape

pytestmark = pytest.mark.slow

LINKS = [
    ".map(abs)", ".map(lambda x: x, 4)", ".map(abs, deterministic=True)",
    ".map(\n        abs,  # sign\n        num_parallel_calls=tf.data.AUTOTUNE,\n    )",
    ".batch(2)", ".batch(batch_size=2, drop_remainder=True)", ".shuffle(9)",
    ".shuffle(\n        9,\n        seed=1\n    )", ".repeat()", ".repeat(  3 )", ".prefetch(1)", ".cache()",
    '.cache("日本")',
]  # fmt: skip
STYLES = ["long", "statement", "name", "line", "parentheses", "comments", "backslash", "dots"]


@st.composite
def sources(draw):
    """A script that builds one dataset, in pieces of several styles, all in a function or at module level."""
    lines = ["ds = tf.data.Dataset.range(9)"]
    for number in range(draw(st.integers(1, 4))):
        links = draw(st.lists(st.sampled_from(LINKS), min_size=1, max_size=4))
        match draw(st.sampled_from(STYLES)):
            case "statement":
                lines += [f"ds = ds{link}" for link in links]
            case "name":
                lines += [f"part{number} = ds{''.join(links)}", f"ds = part{number}"]
            case "line":
                lines += [f"ds = ds{''.join(links)}  # é {number}"]
            case "parentheses":
                lines += ["ds = (", "    ds", *(f"    {link}" for link in links), ")"]
            case "comments":
                lines += ["# a comment", "ds = (ds  # so far"]
                lines += [f"    # link {i}\n    {link}  # {link[1]}" for i, link in enumerate(links)]
                lines += [")"]
            case "backslash":
                lines += [f"x = 'ü'; ds = ds {' '.join(chr(92) + chr(10) + '    ' + link for link in links)}"]
            case "long":
                name = f"a_very_long_name_of_a_part_of_the_dataset_{number}"
                lines += [f"{name} = ds{''.join(links)}  # é", f"ds = {name}"]
            case "dots":
                lines += ["ds = (ds." + ".\n      ".join(link[1:] for link in links) + ")"]
        if draw(st.booleans()):
            lines += ["", "other = 1  # of no concern"]
    text = "\n".join(lines)
    if draw(st.booleans()):
        text = "def make():\n" + "\n".join(f"    {line}" for line in text.split("\n")) + "\n    return ds\nds = make()"
    text = f"import tensorflow as tf\n{text}\ntrain(ds)"
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))) + draw(st.sampled_from(["", "\n"]))


@st.composite
def edits(draw, number):
    """An edit of operator `number` or one near it."""
    node, other = (f"n{draw(st.integers(0, number))}" for _ in range(2))
    moves = [Move(node, other)] if node != other else []
    changes = [
        *(SetArgument(node, "num_parallel_calls", calls) for calls in (-1, None)),
        SetArgument(node, "buffer_size", 7),
        SetArgument(node, "count", 2),
        Insert(node, "prefetch", f"prefetch@{node}", {"buffer_size": -1}),
        Insert(node, "cache", f"cache@{node}"),
        Insert(f"cache@{node}", "take", f"take@{node}", {"count": 5}),
        Remove(node),
        Remove(f"cache@{node}"),
        Move(f"prefetch@{node}", other),
    ]
    return draw(st.sampled_from([*changes, *moves]))


def drawn_source(data, folder: str) -> tuple[str, Path, Pipeline]:
    """A random script in a folder, and its pipeline."""
    text = data.draw(sources())
    path, recorder = recorded(Path(folder), text)
    return text, path, recorder.pipeline()


def rewrites(changes):
    return tuple(Rewrite(f"rule{i}", "", Safety.EXACT, (edit,), "") for i, edit in enumerate(changes))


def _its_own(edit):
    """The name of what it inserts, which is unique in a plan; no two others are equal here."""
    return edit.id if isinstance(edit, Insert) else object()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_covered_rewrites_run_as_their_edits_require(data):
    with tempfile.TemporaryDirectory() as folder:
        text, path, pipeline = drawn_source(data, folder)
        drawn = data.draw(st.lists(edits(len(pipeline.nodes) - 1), max_size=5, unique_by=_its_own))
        plan = Plan("p", rewrites(drawn))
        emission = emit(pipeline, plan)  # raises nothing for a plan
        expected = pipeline
        covered = list(emission.covered)
        for rewrite in plan.rewrites:
            if covered and rewrite.key == covered[0]:
                covered.pop(0)
                expected = apply_edits(expected, rewrite.edits)
        assert covered == []
        assert len(emission.covered) + len(emission.not_covered) == len(plan.rewrites)
        _, new = emission.files.get(str(path), (text, text))
        assert shape(record(path, new).pipeline()) == shape(expected)


@settings(max_examples=24, deadline=None)
@given(st.data())
def test_what_is_undone_changes_no_byte(data):
    with tempfile.TemporaryDirectory() as folder:
        _, _, pipeline = drawn_source(data, folder)
        assert emit(pipeline, Plan("p")).files == {}
        places = st.sampled_from([node.id for node in pipeline])
        caches = [Insert(place, "cache", f"c{i}") for i, place in enumerate(data.draw(st.lists(places, max_size=4)))]
        removed = [Remove(edit.id) for edit in data.draw(st.permutations(caches))]
        maps = [node.id for node in pipeline if node.op == "map" and "num_parallel_calls" not in node.arguments]
        numbers, none = ([SetArgument(node, "num_parallel_calls", value) for node in maps] for value in (-1, None))
        parts = data.draw(st.permutations([[*caches, *removed], [*numbers, *none]]))
        emission = emit(pipeline, Plan("p", rewrites([edit for part in parts for edit in part])))
        assert emission.not_covered == () and emission.files == {}
