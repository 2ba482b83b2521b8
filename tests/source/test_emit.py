"""A plan written into source: exact text, and the operators that the new text builds when it runs."""

# ruff: noqa: E501 (the cases are source text, as it appears in a file)
from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from pipetune.core.edits import (
    Edit,
    Insert,
    Move,
    Plan,
    Remove,
    ReplaceFunction,
    Rewrite,
    Safety,
    SetArgument,
    SetOption,
    apply_edits,
)
from pipetune.core.functions import FunctionVariant
from pipetune.source.emit import Emission, emit
from tests.source.recorder import Recorder, record, resolved, shape

PREFETCH = {"buffer_size": -1}


def rewrite(*edits: Edit, rule: str = "a-rule", safety: Safety = Safety.EXACT) -> Rewrite:
    return Rewrite(rule, edits[0].node if hasattr(edits[0], "node") else "", safety, tuple(edits), "")


def prefetch(after: str, size: int = -1) -> Insert:
    return Insert(after, "prefetch", f"prefetch@{after}", {"buffer_size": size})


@dataclass
class Sample:
    """A source on disk, recorded."""

    path: object
    recorder: Recorder

    def emit(self, *rewrites: Rewrite, **more) -> Emission:
        pipeline = self.recorder.pipeline()
        named = tuple(
            Rewrite(r.rule, r.node, r.safety, tuple(resolved(pipeline, edit) for edit in r.edits), "") for r in rewrites
        )
        return emit(pipeline, Plan("test", named), **more)


@pytest.fixture
def sample(tmp_path):
    def make(text: str) -> Sample:
        path = tmp_path / "sample.py"
        path.write_bytes(text.lstrip("\n").encode())
        return Sample(path, record(path))

    return make


# (name, source, edits, source with the edits); "import tensorflow as tf" and "train(ds)" go around each
TO_DEVICE: list[Edit] = [
    Insert("batch", "copy_to_device", "copy", {"target_device": "/GPU:0"}),
    Insert("copy", "prefetch", "ahead", {"buffer_size": 1}),
]

GOLDEN: list[tuple[str, str, list[Edit], str]] = [
    # A copy to a device
    (
        "copy to a device",
        "ds = tf.data.Dataset.range(3).batch(2)",
        TO_DEVICE,
        "ds = tf.data.Dataset.range(3).batch(2)\n"
        "ds = ds.apply(tf.data.experimental.copy_to_device('/GPU:0')).prefetch(1)",
    ),
    (
        "copy to a device, line by line",
        """
ds = (
    tf.data.Dataset.range(3)
    .batch(2)  # whole batches
)
""",
        TO_DEVICE,
        """
ds = (
    tf.data.Dataset.range(3)
    .batch(2)  # whole batches
    .apply(tf.data.experimental.copy_to_device('/GPU:0'))
    .prefetch(1)
)
""",
    ),
    # SetArgument
    (
        "add an argument",
        "ds = tf.data.Dataset.range(3).map(abs)",
        [SetArgument("map", "num_parallel_calls", -1)],
        "ds = tf.data.Dataset.range(3).map(abs, num_parallel_calls=tf.data.AUTOTUNE)",
    ),
    (
        "change an argument",
        "ds = tf.data.Dataset.range(3).map(abs, num_parallel_calls = 4 , deterministic=True)  # why",
        [SetArgument("map", "num_parallel_calls", 2)],
        "ds = tf.data.Dataset.range(3).map(abs, num_parallel_calls = 2 , deterministic=True)  # why",
    ),
    (
        "an argument by position",
        "ds = tf.data.Dataset.range(3).map(abs, (4), True)",
        [SetArgument("map", "num_parallel_calls", 2)],
        "ds = tf.data.Dataset.range(3).map(abs, 2, True)",
    ),
    (
        "leave out an argument by position, another follows",
        "ds = tf.data.Dataset.range(3).map(abs, 4, True)",
        [SetArgument("map", "num_parallel_calls", None)],
        "ds = tf.data.Dataset.range(3).map(abs, None, True)",
    ),
    (
        "leave out the last argument by position",
        "ds = tf.data.Dataset.range(3).map(abs, 4, deterministic=True)",
        [SetArgument("map", "num_parallel_calls", None)],
        "ds = tf.data.Dataset.range(3).map(abs, deterministic=True)",
    ),
    (
        "leave out the last argument",
        "ds = tf.data.Dataset.range(3).map(abs, num_parallel_calls=4)",
        [SetArgument("map", "num_parallel_calls", None)],
        "ds = tf.data.Dataset.range(3).map(abs)",
    ),
    (
        "leave out the only argument",
        "ds = tf.data.Dataset.range(3).repeat(2)",
        [SetArgument("repeat", "count", None)],
        "ds = tf.data.Dataset.range(3).repeat()",
    ),
    (
        "leave out what was not given",
        "ds = tf.data.Dataset.range(3).map(abs)",
        [SetArgument("map", "num_parallel_calls", None)],
        "ds = tf.data.Dataset.range(3).map(abs)",
    ),
    (
        "leave out an argument on its own line",
        "ds = tf.data.Dataset.range(3).map(\n    abs,  # first\n    num_parallel_calls=4,  # second\n    deterministic=True,\n)",
        [SetArgument("map", "num_parallel_calls", None)],
        "ds = tf.data.Dataset.range(3).map(\n    abs,  # first\n    deterministic=True,\n)",
    ),
    (
        "leave out the last argument on its own line",
        "ds = tf.data.Dataset.range(3).map(\n    abs,  # first\n    num_parallel_calls=4,  # second\n)",
        [SetArgument("map", "num_parallel_calls", None)],
        "ds = tf.data.Dataset.range(3).map(\n    abs,  # first\n)",
    ),
    (
        "arguments on lines, comma at the end",
        "ds = tf.data.Dataset.range(3).map(\n    abs,  # first\n    # the end\n)",
        [SetArgument("map", "num_parallel_calls", 2)],
        "ds = tf.data.Dataset.range(3).map(\n    abs,  # first\n    # the end\n    num_parallel_calls=2,\n)",
    ),
    (
        "arguments on lines, no comma at the end",
        "ds = tf.data.Dataset.range(3).map(\n    abs  # first\n)",
        [SetArgument("map", "num_parallel_calls", 2)],
        "ds = tf.data.Dataset.range(3).map(\n    abs,  # first\n    num_parallel_calls=2\n)",
    ),
    (
        "arguments on lines, no comma, no comment",
        "ds = tf.data.Dataset.range(3).map(\n    abs\n)",
        [SetArgument("map", "num_parallel_calls", 2)],
        "ds = tf.data.Dataset.range(3).map(\n    abs,\n    num_parallel_calls=2\n)",
    ),
    (
        "arguments hanging",
        "ds = tf.data.Dataset.range(3).map(abs,\n                                  deterministic=True)",
        [SetArgument("map", "num_parallel_calls", 2)],
        "ds = tf.data.Dataset.range(3).map(abs,\n                                  deterministic=True,\n"
        "                                  num_parallel_calls=2)",
    ),
    (
        "a lambda over several lines",
        "ds = tf.data.Dataset.range(3).map(lambda x: (\n    x + 1\n))",
        [SetArgument("map", "num_parallel_calls", 2)],
        "ds = tf.data.Dataset.range(3).map(lambda x: (\n    x + 1\n), num_parallel_calls=2)",
    ),
    (
        "a comma at the end of the line",
        "ds = tf.data.Dataset.range(3).map(abs, )",
        [SetArgument("map", "num_parallel_calls", 2)],
        "ds = tf.data.Dataset.range(3).map(abs, num_parallel_calls=2, )",
    ),
    (
        "an empty call",
        "ds = tf.data.Dataset.range(3).repeat(  )",
        [SetArgument("repeat", "count", 3)],
        "ds = tf.data.Dataset.range(3).repeat(count=3  )",
    ),
    (
        "several arguments of one call",
        "ds = tf.data.Dataset.range(3).interleave(lambda f: f)",
        [
            SetArgument("interleave", "cycle_length", 2),
            SetArgument("interleave", "block_length", 1),
            SetArgument("interleave", "num_parallel_calls", -1),
        ],
        "ds = tf.data.Dataset.range(3).interleave(lambda f: f, cycle_length=2, block_length=1,"
        " num_parallel_calls=tf.data.AUTOTUNE)",
    ),
    (
        "starred arguments, the argument is given beside them",
        "more = {'deterministic': True}\nds = tf.data.Dataset.range(3).map(abs, num_parallel_calls=4, **more)",
        [SetArgument("map", "num_parallel_calls", 2)],
        "more = {'deterministic': True}\nds = tf.data.Dataset.range(3).map(abs, num_parallel_calls=2, **more)",
    ),
    (
        "a constructor's argument",
        "ds = tf.data.TFRecordDataset(['a', 'b'], None)",
        [
            SetArgument("TFRecordDataset", "num_parallel_reads", -1),
            SetArgument("TFRecordDataset", "buffer_size", -1),
        ],
        "ds = tf.data.TFRecordDataset(['a', 'b'], None, num_parallel_reads=tf.data.AUTOTUNE, buffer_size=-1)",
    ),
    # AUTOTUNE by its name in the file
    (
        "AUTOTUNE is bound",
        "AUTOTUNE = tf.data.AUTOTUNE\nds = tf.data.Dataset.range(3).map(abs)",
        [prefetch("map"), SetArgument("map", "num_parallel_calls", -1)],
        "AUTOTUNE = tf.data.AUTOTUNE\nds = tf.data.Dataset.range(3).map(abs, num_parallel_calls=AUTOTUNE).prefetch(AUTOTUNE)",
    ),
    (
        "AUTOTUNE is bound to another name, the old way",
        "auto = tf.data.experimental.AUTOTUNE\nds = tf.data.Dataset.range(3).map(abs)",
        [prefetch("map")],
        "auto = tf.data.experimental.AUTOTUNE\nds = tf.data.Dataset.range(3).map(abs).prefetch(auto)",
    ),
    (
        "AUTOTUNE means something else",
        "AUTOTUNE = tf.data.AUTOTUNE\nif True:\n    AUTOTUNE = 4\nds = tf.data.Dataset.range(3).map(abs)",
        [prefetch("map")],
        "AUTOTUNE = tf.data.AUTOTUNE\nif True:\n    AUTOTUNE = 4\n"
        "ds = tf.data.Dataset.range(3).map(abs).prefetch(tf.data.AUTOTUNE)",
    ),
    (
        "AUTOTUNE is bound too late",
        "ds = tf.data.Dataset.range(3).map(abs)\nAUTOTUNE = tf.data.AUTOTUNE",
        [prefetch("map")],
        "ds = tf.data.Dataset.range(3).map(abs).prefetch(tf.data.AUTOTUNE)\nAUTOTUNE = tf.data.AUTOTUNE",
    ),
    (
        "a parameter hides AUTOTUNE",
        "AUTOTUNE = tf.data.AUTOTUNE\ndef make(AUTOTUNE):\n    return tf.data.Dataset.range(3).map(abs)\nds = make(1)",
        [prefetch("map")],
        "AUTOTUNE = tf.data.AUTOTUNE\ndef make(AUTOTUNE):\n"
        "    return tf.data.Dataset.range(3).map(abs).prefetch(tf.data.AUTOTUNE)\nds = make(1)",
    ),
    # Insert
    (
        "behind a chain on one line",
        "ds = tf.data.Dataset.range(3).batch(2)  # pairs",
        [prefetch("batch")],
        "ds = tf.data.Dataset.range(3).batch(2).prefetch(tf.data.AUTOTUNE)  # pairs",
    ),
    (
        "behind a statement",
        "ds = tf.data.Dataset.range(3)\nds = ds.batch(2)",
        [prefetch("batch", 2)],
        "ds = tf.data.Dataset.range(3)\nds = ds.batch(2).prefetch(2)",
    ),
    (
        "in the head of a loop",
        "ds = tf.data.Dataset.range(3)\nfor x in (ds := ds.batch(2)): pass",
        [prefetch("batch")],
        "ds = tf.data.Dataset.range(3)\nfor x in (ds := ds.batch(2).prefetch(tf.data.AUTOTUNE)): pass",
    ),
    (
        "behind a line that is long already",
        "a_long_name = tf.data.Dataset.range(3).map(abs).map(abs).batch(20)  # é\nds = a_long_name",
        [prefetch("batch"), Insert("batch", "cache", "c"), SetArgument("prefetch@batch", "buffer_size", 3)],
        "a_long_name = tf.data.Dataset.range(3).map(abs).map(abs).batch(20).cache()  # é\n"
        "a_long_name = a_long_name.prefetch(3)\nds = a_long_name",
    ),
    (
        "behind a return",
        "def make(n):\n    return tf.data.Dataset.range(n).batch(2)\nds = make(3)",
        [prefetch("batch")],
        "def make(n):\n    return tf.data.Dataset.range(n).batch(2).prefetch(tf.data.AUTOTUNE)\nds = make(3)",
    ),
    (
        "at the end of a chain over lines",
        "ds = (\n    tf.data.Dataset.range(3)\n    .map(abs)\n    .batch(2)  # pairs\n)",
        [prefetch("batch")],
        "ds = (\n    tf.data.Dataset.range(3)\n    .map(abs)\n    .batch(2)  # pairs\n    .prefetch(tf.data.AUTOTUNE)\n)",
    ),
    (
        "in a chain over lines with comments",
        "ds = (\n    tf.data.Dataset.range(3)\n    .map(abs)  # signs\n    # pairs\n    .batch(2))",
        [Insert("map", "cache", "c", {"filename": ""})],
        "ds = (\n    tf.data.Dataset.range(3)\n    .map(abs)  # signs\n    .cache()\n    # pairs\n    .batch(2))",
    ),
    (
        "behind the root of a chain over lines",
        "ds = (tf.data.Dataset.range(3)\n      .map(abs)\n      .batch(2))",
        [Insert("range", "shuffle", "s", {"buffer_size": 100, "seed": 7, "reshuffle_each_iteration": None})],
        "ds = (tf.data.Dataset.range(3)\n      .shuffle(100, seed=7)\n      .map(abs)\n      .batch(2))",
    ),
    (
        "in a chain with backslashes",
        "ds = tf.data.Dataset.range(3) \\\n    .map(abs) \\\n    .batch(2)  # pairs",
        [prefetch("batch"), Insert("map", "cache", "c")],
        "ds = tf.data.Dataset.range(3) \\\n    .map(abs) \\\n    .cache() \\\n    .batch(2) \\\n"
        "    .prefetch(tf.data.AUTOTUNE)  # pairs",
    ),
    (
        "in a chain with dots at the end",
        "ds = (tf.data.Dataset.range(3).\n      map(abs).\n      batch(2))",
        [prefetch("batch")],
        "ds = (tf.data.Dataset.range(3).\n      map(abs).\n      batch(2).\n      prefetch(tf.data.AUTOTUNE))",
    ),
    (
        "behind a call over lines",
        "ds = tf.data.Dataset.range(3).map(\n    abs,\n).batch(\n    2\n)",
        [prefetch("batch")],
        "ds = tf.data.Dataset.range(3).map(\n    abs,\n).batch(\n    2\n).prefetch(tf.data.AUTOTUNE)",
    ),
    (
        "two behind one operator, one behind the other",
        "ds = tf.data.Dataset.range(3).batch(2)",
        [
            Insert("batch", "take", "t", {"count": 5}),
            Insert("batch", "cache", "c"),
            Insert("t", "repeat", "r", {"count": -1}),
        ],
        "ds = tf.data.Dataset.range(3).batch(2).cache().take(5).repeat()",
    ),
    (
        "in a lambda, behind a parenthesis, in a walrus",
        "if (ds := (tf.data.Dataset.range(3).apply(lambda d: d.batch(2)))): pass",
        [prefetch("batch")],
        "if (ds := (tf.data.Dataset.range(3).apply(lambda d: d.batch(2).prefetch(tf.data.AUTOTUNE)))): pass",
    ),
    (
        "not ASCII before it, another call behind it",
        'text = f"{1} 日本語 🙂"; ds = tf.data.Dataset.range(3).batch(2); ds = ds.map(abs); print = None',
        [prefetch("batch")],
        'text = f"{1} 日本語 🙂"; ds = tf.data.Dataset.range(3).batch(2).prefetch(tf.data.AUTOTUNE); ds = ds.map(abs); print = None',
    ),
    (
        "behind a method",
        "class Data:\n\tdef batches(self):\n\t\tself.ds = tf.data.Dataset.range(3)\n\t\tself.ds = self.ds.batch(2)\n"
        "\t\treturn self.ds\nds = Data().batches()",
        [prefetch("batch"), SetArgument("batch", "drop_remainder", True)],
        "class Data:\n\tdef batches(self):\n\t\tself.ds = tf.data.Dataset.range(3)\n"
        "\t\tself.ds = self.ds.batch(2, drop_remainder=True).prefetch(tf.data.AUTOTUNE)\n"
        "\t\treturn self.ds\nds = Data().batches()",
    ),
    (
        "behind what a library makes",
        'ds = tf.keras.utils.image_dataset_from_directory(\n    "photos",\n    subset="training",\n)',
        [Insert("batch", "cache", "c")],
        'ds = tf.keras.utils.image_dataset_from_directory(\n    "photos",\n    subset="training",\n).cache()',
    ),
    (
        "behind the two operators of list_files",
        'ds = tf.data.Dataset.list_files("*")\nds = ds.interleave(lambda f: tf.data.TFRecordDataset(f))',
        [Insert("shuffle", "cache", "c", {"filename": "a b"}), SetArgument("list_files", "seed", 3)],
        'ds = tf.data.Dataset.list_files("*", seed=3).cache("a b")\n'
        "ds = ds.interleave(lambda f: tf.data.TFRecordDataset(f))",
    ),
    # Remove
    (
        "out of a chain on one line",
        "ds = tf.data.Dataset.range(3).cache().batch(2)",
        [Remove("cache")],
        "ds = tf.data.Dataset.range(3).batch(2)",
    ),
    (
        "out of a chain over lines, its comment goes",
        "ds = (\n    tf.data.Dataset.range(3)  # three\n    # stays\n    .cache()  # goes\n    .batch(2)\n)",
        [Remove("cache")],
        "ds = (\n    tf.data.Dataset.range(3)  # three\n    # stays\n    .batch(2)\n)",
    ),
    (
        "the last of a chain over lines",
        "ds = (tf.data.Dataset.range(3)\n      .batch(2)\n      .cache())",
        [Remove("cache")],
        "ds = (tf.data.Dataset.range(3)\n      .batch(2))",
    ),
    (
        "the last of a chain, a comment above",
        "ds = (tf.data.Dataset.range(3)\n      .batch(2)  # pairs\n      .cache())",
        [Remove("cache")],
        "ds = (tf.data.Dataset.range(3)\n      .batch(2)  # pairs\n      )",
    ),
    (
        "one of two on a line of a chain",
        "ds = (tf.data.Dataset.range(3)\n      .cache().batch(2)\n      .repeat())",
        [Remove("cache")],
        "ds = (tf.data.Dataset.range(3)\n      .batch(2)\n      .repeat())",
    ),
    (
        "out of backslashes",
        "ds = tf.data.Dataset.range(3) \\\n    .cache() \\\n    .batch(2)",
        [Remove("cache")],
        "ds = tf.data.Dataset.range(3) \\\n    .batch(2)",
    ),
    (
        "a whole statement",
        "ds = tf.data.Dataset.range(3)\n# a comment\nds = ds.cache()  # goes\nds = ds.batch(2)",
        [Remove("cache")],
        "ds = tf.data.Dataset.range(3)\n# a comment\nds = ds.batch(2)",
    ),
    (
        "a whole statement in parentheses",
        "ds = tf.data.Dataset.range(3)\nds = (\n    ds\n    .cache()\n)\nds = ds.batch(2)",
        [Remove("cache")],
        "ds = tf.data.Dataset.range(3)\nds = ds.batch(2)",
    ),
    (
        "a whole attribute statement",
        "class A: pass\na = A()\na.ds = tf.data.Dataset.range(3)\na.ds = a.ds.cache()\nds = a.ds",
        [Remove("cache")],
        "class A: pass\na = A()\na.ds = tf.data.Dataset.range(3)\nds = a.ds",
    ),
    (
        "a statement that gives another name",
        "first = tf.data.Dataset.range(3)\nds = first.cache()",
        [Remove("cache")],
        "first = tf.data.Dataset.range(3)\nds = first",
    ),
    (
        "the only statement of a block",
        "ds = tf.data.Dataset.range(3)\nif ds:\n    ds = ds.cache()  # fast\nelse: pass",
        [Remove("cache")],
        "ds = tf.data.Dataset.range(3)\nif ds:\n    pass  # fast\nelse: pass",
    ),
    (
        "the suite of a block",
        "ds = tf.data.Dataset.range(3)\nif ds: ds = ds.cache()",
        [Remove("cache")],
        "ds = tf.data.Dataset.range(3)\nif ds: pass",
    ),
    (
        "one of several statements on a line",
        "a = 1; ds = tf.data.Dataset.range(3); ds = ds.cache(); ds = ds.repeat()",
        [Remove("cache"), Remove("repeat")],
        "a = 1; ds = tf.data.Dataset.range(3)",
    ),
    (
        "two links of one statement, then nothing is left",
        "ds = tf.data.Dataset.range(3)\nds = ds.cache().repeat()\nx = 1",
        [Remove("repeat"), Remove("cache")],
        "ds = tf.data.Dataset.range(3)\nx = 1",
    ),
    # Move
    (
        "up a chain on one line",
        "ds = tf.data.Dataset.range(3).map(abs).shuffle(9, seed=1)",
        [Move("shuffle", "range")],
        "ds = tf.data.Dataset.range(3).shuffle(9, seed=1).map(abs)",
    ),
    (
        "up a chain over lines, comments go with it",
        "ds = (\n    tf.data.Dataset.range(3)  # three\n    .map(abs)  # signs\n    # mix\n    .shuffle(9)  # nine\n    .batch(2)\n)",
        [Move("shuffle", "range")],
        "ds = (\n    tf.data.Dataset.range(3)  # three\n    # mix\n    .shuffle(9)  # nine\n    .map(abs)  # signs\n    .batch(2)\n)",
    ),
    (
        "down a chain over lines to its end",
        "ds = (tf.data.Dataset.range(3)\n      .prefetch(1)\n      .map(abs)\n      .batch(2))",
        [Move("prefetch", "batch"), SetArgument("prefetch", "buffer_size", -1)],
        "ds = (tf.data.Dataset.range(3)\n      .map(abs)\n      .batch(2)\n      .prefetch(tf.data.AUTOTUNE))",
    ),
    (
        "within a chain with backslashes",
        "ds = tf.data.Dataset.range(3) \\\n    .map(abs) \\\n    .shuffle(9)",
        [Move("shuffle", "range")],
        "ds = tf.data.Dataset.range(3) \\\n    .shuffle(9) \\\n    .map(abs)",
    ),
    (
        "a statement up, comments go with it",
        "ds = tf.data.Dataset.range(3)\nds = ds.map(abs)\n\n# mix\nds = ds.shuffle(9)  # nine\nds = ds.batch(2)",
        [Move("shuffle", "range")],
        "ds = tf.data.Dataset.range(3)\n# mix\nds = ds.shuffle(9)  # nine\nds = ds.map(abs)\n\nds = ds.batch(2)",
    ),
    (
        "a statement down, and then something behind it",
        "ds = tf.data.Dataset.range(3)\nds = ds.repeat()\nds = ds.map(abs)\nds = ds.batch(2)",
        [Move("repeat", "batch"), prefetch("repeat"), SetArgument("map", "num_parallel_calls", 2)],
        "ds = tf.data.Dataset.range(3)\nds = ds.map(abs, num_parallel_calls=2)\nds = ds.batch(2)\n"
        "ds = ds.repeat().prefetch(tf.data.AUTOTUNE)",
    ),
    (
        "from a statement into a chain",
        "ds = tf.data.Dataset.range(3).map(abs)\nds = ds.shuffle(9)",
        [Move("shuffle", "range")],
        "ds = tf.data.Dataset.range(3).shuffle(9).map(abs)",
    ),
    (
        "from a chain to a return, through other names",
        "def make():\n    a = tf.data.Dataset.range(3).repeat()\n    b = a.map(abs)\n    return b.batch(2)\nds = make()",
        [Move("repeat", "batch")],
        "def make():\n    a = tf.data.Dataset.range(3)\n    b = a.map(abs)\n    return b.batch(2).repeat()\nds = make()",
    ),
    (
        "past statements of no concern",
        "size = 9\nds = tf.data.Dataset.range(3)\nds = ds.map(abs)\nother = 5\nds = ds.shuffle(size)",
        [Move("shuffle", "range")],
        "size = 9\nds = tf.data.Dataset.range(3)\nds = ds.shuffle(size)\nds = ds.map(abs)\nother = 5",
    ),
    (
        "a shuffle below a map, and a cache between, in statements",
        "ds = tf.data.Dataset.range(3)\nds = ds.shuffle(9)  # mix\nds = ds.map(abs)\nds = ds.batch(2)",
        [Move("shuffle", "map"), Insert("map", "cache", "c", {"filename": ""})],
        "ds = tf.data.Dataset.range(3)\nds = ds.map(abs).cache()\nds = ds.shuffle(9)  # mix\nds = ds.batch(2)",
    ),
    (
        "a shuffle below a map, and a cache between, in a chain",
        "ds = (\n    tf.data.Dataset.range(3)\n    .shuffle(9)  # mix\n    .map(abs)\n    .batch(2)\n)",
        [Move("shuffle", "map"), Insert("map", "cache", "c", {"filename": ""})],
        "ds = (\n    tf.data.Dataset.range(3)\n    .map(abs)\n    .cache()\n    .shuffle(9)  # mix\n    .batch(2)\n)",
    ),
    (
        "to where it is",
        "ds = tf.data.Dataset.range(3).map(abs).shuffle(9)",
        [Move("shuffle", "map")],
        "ds = tf.data.Dataset.range(3).map(abs).shuffle(9)",
    ),
    # ReplaceFunction
    (
        "a function called on batches",
        "ds = tf.data.Dataset.range(3).map(abs, num_parallel_calls=2).shuffle(9).batch(2)",
        [Move("map", "batch"), ReplaceFunction("map", FunctionVariant.ON_BATCHES, "d")],
        "ds = tf.data.Dataset.range(3).shuffle(9).batch(2)\nds = ds.map(abs, num_parallel_calls=2)",
    ),
    (
        "two functions called on batches, statement by statement",
        """
ds = tf.data.Dataset.range(3)
ds = ds.map(abs)  # first
ds = ds.map(float)
ds = ds.batch(2)
ds = ds.prefetch(1)
""".strip(),
        [
            Move("map#1", "batch"),
            ReplaceFunction("map#1", FunctionVariant.ON_BATCHES, "d"),
            Move("map#0", "batch"),
            ReplaceFunction("map#0", FunctionVariant.ON_BATCHES, "d"),
        ],
        """
ds = tf.data.Dataset.range(3)
ds = ds.batch(2)
ds = ds.map(abs)  # first
ds = ds.map(float)
ds = ds.prefetch(1)
""".strip(),
    ),
    (
        "a vectorized function",
        "ds = (\n    tf.data.Dataset.range(3)\n    .map(abs)  # each\n    .batch(2)\n)",
        [Move("map", "batch"), ReplaceFunction("map", FunctionVariant.VECTORIZED, "d")],
        "ds = (\n    tf.data.Dataset.range(3)\n    .batch(2)\n"
        "    .map(lambda batch: tf.vectorized_map(abs, batch))  # each\n)",
    ),
    (
        "a vectorized function by keyword, of another module",
        "import math\nds = tf.data.Dataset.range(3).map(num_parallel_calls=2, map_func=math.fabs).batch(2)",
        [Move("map", "batch"), ReplaceFunction("map", FunctionVariant.VECTORIZED, "d")],
        "import math\nds = tf.data.Dataset.range(3).batch(2)\n"
        "ds = ds.map(num_parallel_calls=2, map_func=lambda batch: tf.vectorized_map(math.fabs, batch))",
    ),
    (
        "a function that parses batches",
        "ds = tf.data.Dataset.range(3).map(lambda line: tf.io.parse_single_example(line, {})).batch(2)",
        [Move("map", "batch"), ReplaceFunction("map", FunctionVariant.PARSING, "d")],
        "ds = tf.data.Dataset.range(3).batch(2)\nds = ds.map(lambda line: tf.io.parse_example(line, {}))",
    ),
    # SetOption
    (
        "options",
        "options = None\nif options is None:\n    ds = tf.data.Dataset.range(3).batch(2)  # pairs",
        [
            SetOption("threading.private_threadpool_size", 4),
            prefetch("batch"),
            SetOption("deterministic", True),
        ],
        "options = None\nif options is None:\n    ds = tf.data.Dataset.range(3).batch(2).prefetch(tf.data.AUTOTUNE)  # pairs\n"
        "    dataset_options = tf.data.Options()\n    dataset_options.threading.private_threadpool_size = 4\n"
        "    dataset_options.deterministic = True\n    ds = ds.with_options(dataset_options)",
    ),
    (
        "an option that two rewrites set",
        "ds = tf.data.Dataset.range(3).batch(2)",
        [SetOption("threading.private_threadpool_size", 4), SetOption("threading.private_threadpool_size", 4)],
        "ds = tf.data.Dataset.range(3).batch(2)\noptions = tf.data.Options()\n"
        "options.threading.private_threadpool_size = 4\nds = ds.with_options(options)",
    ),
]


def at_top(source: str) -> str:
    return f"import tensorflow as tf\n{source}\ntrain(ds)\n"


def in_function(source: str) -> str:
    indented = "\n".join(f"    {line}" if line else "" for line in source.split("\n"))
    return f"import tensorflow as tf\ndef everything():\n{indented}\n    train(ds)\neverything()\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("around", [at_top, in_function])
@pytest.mark.parametrize(("name", "before", "edits", "after"), GOLDEN, ids=[case[0] for case in GOLDEN])
def test_patch_matches_expected_text_and_pipeline(sample, name, before, edits, after, around, newline):
    text = around(before).replace("\n", newline)
    made = sample(text)
    emission = made.emit(rewrite(*edits))
    assert [rejection.why for rejection in emission.not_covered] == []
    _, new = emission.files.get(str(made.path), (text, text))
    assert new == around(after).replace("\n", newline)
    pipeline = made.recorder.pipeline()
    expected = apply_edits(pipeline, [resolved(pipeline, edit) for edit in edits])
    assert shape(record(made.path, new).pipeline()) == shape(expected)


ALIASES = [
    ("import tensorflow", "tensorflow.data.Dataset", "tensorflow.data.AUTOTUNE"),
    ("from tensorflow import data", "data.Dataset", "data.AUTOTUNE"),
    ("from tensorflow import data as d", "d.Dataset", "d.AUTOTUNE"),
    ("import tensorflow.data as d", "d.Dataset", "d.AUTOTUNE"),
    ("import tensorflow.compat.v2 as tf", "tf.data.Dataset", "tf.data.AUTOTUNE"),
    ("from tensorflow.data import AUTOTUNE as fast, Dataset", "Dataset", "fast"),
    ("import tensorflow as tf; from tensorflow.data import Dataset", "Dataset", "tf.data.AUTOTUNE"),
    ("from tensorflow.data import Dataset", "Dataset", "-1"),
    (
        "try:\n    import tensorflow as tf\nexcept ImportError:\n    raise",
        "tf.data.Dataset",
        "tf.data.AUTOTUNE",
    ),
]


@pytest.mark.parametrize(("imports", "dataset", "autotune"), ALIASES)
def test_autotune_is_written_by_the_files_alias(sample, imports, dataset, autotune):
    made = sample(f"{imports}\nds = {dataset}.range(3).batch(2)\ntrain(ds)\n")
    emission = made.emit(rewrite(prefetch("batch")))
    new = emission.files[str(made.path)][1]
    assert f".batch(2).prefetch({autotune})\n" in new
    assert record(made.path, new).pipeline().output.arguments == PREFETCH
    assert bool(emission.notes) == (autotune == "-1")


def test_import_inside_a_function_is_not_used_outside(sample):
    made = sample(
        "from tensorflow.data import Dataset\ndef f():\n    import tensorflow as tf\n    return tf\n"
        "def g():\n    return Dataset.range(3).batch(2)\ntrain(g())\n"
    )
    new = made.emit(rewrite(prefetch("batch"))).files[str(made.path)][1]
    assert ".batch(2).prefetch(-1)\n" in new


# (name, source, edits, part of the reason)
REFUSED: list[tuple[str, str, list[Edit], str]] = [
    (
        "keywords starred",
        "more = [{}]\nds = tf.data.Dataset.range(3).map(abs, **more[0])",
        [SetArgument("map", "num_parallel_calls", 2)],
        "starred",
    ),
    (
        "arguments starred",
        "more = (abs,)\nds = tf.data.Dataset.range(3).map(*more)",
        [SetArgument("map", "num_parallel_calls", None)],
        "starred",
    ),
    (
        "no such parameter",
        "ds = tf.data.Dataset.range(3).batch(2)",
        [SetArgument("batch", "size", 2)],
        "parameter size",
    ),
    (
        "an operator that needs a function",
        "ds = tf.data.Dataset.range(3)",
        [Insert("range", "map", "m")],
        "map needs",
    ),
    (
        "an argument nobody knows",
        "ds = tf.data.Dataset.range(3)",
        [Insert("range", "batch", "b", {"size": 2})],
        "cannot write the call",
    ),
    (
        "a lambda that parses for two maps",
        "import functools\nparse = functools.partial(lambda e, f: tf.io.parse_single_example(e, f), f={})\n"
        "other = tf.data.Dataset.range(2).map(parse)\nds = tf.data.Dataset.range(3).map(parse).batch(2)",
        [Move("map", "batch"), ReplaceFunction("map", FunctionVariant.PARSING, "d")],
        "a lambda that others use too",
    ),
    ("an operator that is not there", "ds = tf.data.Dataset.range(3)", [Remove("n7")], "n7"),
    ("a source taken out", "ds = tf.data.Dataset.range(3)", [Remove("range")], "inputs"),
    (
        "an argument that assigns",
        "ds = tf.data.Dataset.range(3).shuffle(n := 9)\nprint = n",
        [Remove("shuffle")],
        "assigns",
    ),
    (
        "a constructor around a dataset",
        "ds = tf.data.TFRecordDataset(tf.data.Dataset.range(3))",
        [Remove("TFRecordDataset")],
        "not a method of a dataset",
    ),
    (
        "inside a library",
        "ds = tf.keras.utils.image_dataset_from_directory('a')",
        [SetArgument("map#0", "num_parallel_calls", 2)],
        "map is made inside image_dataset_from_directory",
    ),
    (
        "taken out of a library",
        "ds = tf.keras.utils.image_dataset_from_directory('a')",
        [Remove("batch")],
        "batch is made inside",
    ),
    (
        "in the middle of a library's call",
        "ds = tf.keras.utils.image_dataset_from_directory('a')",
        [Insert("map#1", "cache", "c")],
        "adds further operators after map",
    ),
    (
        "in the middle of list_files",
        "ds = tf.data.Dataset.list_files('a')",
        [Insert("list_files", "cache", "c")],
        "adds further operators after list_files",
    ),
    (
        "behind a library's call that returns two",
        "ds, _ = tf.keras.utils.image_dataset_from_directory('a', subset='both')",
        [prefetch("batch")],
        "several datasets",
    ),
    (
        "behind a library's call that is indexed",
        "ds = tf.keras.utils.image_dataset_from_directory('a', subset='both')[0]",
        [prefetch("batch")],
        "several datasets",
    ),
    (
        "to another block",
        "ds = tf.data.Dataset.range(3).map(abs)\nif ds:\n    ds = ds.shuffle(9)",
        [Move("shuffle", "range")],
        "is reassigned in between",
    ),
    (
        "past another reader",
        "ds = tf.data.Dataset.range(3)\nds = ds.map(abs)\nvalidate(ds)\nds = ds.shuffle(9)",
        [Move("shuffle", "range")],
        "ds is used between",
    ),
    (
        "past a reader of another name",
        "a = tf.data.Dataset.range(3)\nb = a.map(abs)\nds = b.shuffle(9)\nvalidate(a)",
        [Move("shuffle", "range")],
        "a is also read elsewhere",
    ),
    (
        "the upper name is read at the end",
        "a = tf.data.Dataset.range(3)\nds = a.shuffle(9).repeat()\nvalidate(a)",
        [Move("repeat", "range")],
        "a is also read elsewhere",
    ),
    (
        "past a change of its argument",
        "size = 1\nds = tf.data.Dataset.range(3).map(abs)\nsize = 9\nds = ds.shuffle(size)",
        [Move("shuffle", "range")],
        "is reassigned between",
    ),
    (
        "a function past a statement it may depend on",
        "k = [1]\nds = tf.data.Dataset.range(3).batch(2)\nk.append(2)\nds = ds.map(lambda x: k)",
        [Move("map", "range")],
        "may depend",
    ),
    (
        "an argument that is computed",
        "files = ['a']\nds = tf.data.Dataset.range(3).batch(2)\nfiles.append('b')\nds = ds.shuffle(len(files))",
        [Move("shuffle", "range")],
        "may depend",
    ),
    (
        "an argument that reads the dataset",
        "ds = tf.data.Dataset.range(3).map(abs)\nds = ds.shuffle(ds.cardinality())",
        [Move("shuffle", "range")],
        "",
    ),
    (
        "through a condition",
        "ds = tf.data.Dataset.range(3).map(abs)\nds = ds.shuffle(9) if ds else ds",
        [Move("shuffle", "range")],
        "may not run",
    ),
    (
        "through an attribute",
        "class A: pass\na = A()\na.ds = tf.data.Dataset.range(3).map(abs)\nds = a.ds.shuffle(9)",
        [Move("shuffle", "range")],
        "a single name",
    ),
    (
        "options of a dataset without a name",
        "def make(): return tf.data.Dataset.range(3).batch(2)\nds = make()",
        [SetOption("deterministic", True)],
        "shares its line",
    ),
    (
        "an argument that reads the dataset, moved down",
        "ds = tf.data.Dataset.range(3)\nds = ds.shuffle(ds.cardinality())\nds = ds.map(abs)",
        [Move("shuffle", "map")],
        "assigned by one of the two",
    ),
    (
        "past a statement that reads the dataset twice",
        "ds = tf.data.Dataset.range(3).map(abs)\nds = ds.concatenate(ds)\nds = ds.shuffle(9)",
        [Move("shuffle", "map")],
        "ds is used between",
    ),
    (
        "into a statement that reads the dataset twice",
        "ds = tf.data.Dataset.range(3).map(abs)\nds = ds.concatenate(ds).shuffle(9)",
        [Move("shuffle", "map")],
        "through a single name",
    ),
    (
        "past a function of the user",
        "def same(ds): return ds\nds = tf.data.Dataset.range(3).map(abs)\nds = same(ds)\nds = ds.shuffle(9)",
        [Move("shuffle", "range")],
        "ds is used between",
    ),
    (
        "behind a library's call that returns more than a dataset",
        "photos = tf.keras.utils.load_photos('a')\nds = photos[0]",
        [prefetch("batch")],
        "may return more",
    ),
    (
        "a vectorized function where nothing is called TensorFlow",
        "tf = tf\nds = tf.data.Dataset.range(3).map(abs).batch(2)",
        [Move("map", "batch"), ReplaceFunction("map", FunctionVariant.VECTORIZED, "d")],
        "not import TensorFlow under a name",
    ),
    (
        "an option that is no number",
        "ds = tf.data.Dataset.range(3)",
        [SetOption("autotune.autotune_algorithm", "HILL_CLIMB")],
        "cannot be written as a literal",
    ),
]


@pytest.mark.parametrize(("name", "source", "edits", "why"), REFUSED, ids=[case[0] for case in REFUSED])
def test_rewrite_that_cannot_be_written_leaves_no_trace(sample, name, source, edits, why):
    made = sample(f"import tensorflow as tf\n{source}\ntrain(ds)\n")
    if made.recorder.pipeline()["n0"].location.method in ("image_dataset_from_directory", "list_files", "load_photos"):
        first = []  # nothing can be inserted after the first operator
    else:
        first = [Insert("n0", "take", "t", {"count": 9})]
    good = rewrite(prefetch("n0"), rule="good")
    bad = rewrite(*first, *edits, rule="bad")
    emission = made.emit(bad)
    assert emission.files == {} and emission.covered == ()
    (rejection,) = emission.not_covered
    assert rejection.rule == "bad" and why in rejection.why
    alone, both = made.emit(good), made.emit(bad, good)
    assert both.files == alone.files and both.covered == alone.covered


def test_change_that_breaks_the_syntax_leaves_no_trace(sample, monkeypatch):
    made = sample("import tensorflow as tf\nds = tf.data.Dataset.range(3).batch(2)\ntrain(ds)\n")
    monkeypatch.setattr("pipetune.source.emit.write_call", lambda *given, **named: "prefetch((")
    emission = made.emit(rewrite(prefetch("batch")))
    assert emission.files == {} and "break the syntax" in emission.not_covered[0].why


def test_vectorized_function_of_several_components(sample):
    made = sample("import tensorflow as tf\nds = tf.data.Dataset.range(3).map(abs).batch(2)\ntrain(ds)\n")
    pipeline = made.recorder.pipeline()
    pairs = "(TensorSpec(shape=(), dtype=tf.int64, name=None), TensorSpec(shape=(), dtype=tf.int64, name=None))"
    spelled = replace(pipeline, nodes=tuple(replace(node, spec=pairs) for node in pipeline))
    vectorized = rewrite(Move("n1", "n2"), ReplaceFunction("n1", FunctionVariant.VECTORIZED, "d"))
    emission = emit(spelled, Plan("p", (vectorized,)))
    (_, new) = emission.files[str(made.path)]
    assert "ds = ds.map(lambda *batch: tf.vectorized_map(lambda row: abs(*row), batch))\n" in new


def test_node_without_a_location_is_refused(sample):
    made = sample("import tensorflow as tf\nds = tf.data.Dataset.range(3).batch(2)\ntrain(ds)\n")
    pipeline = made.recorder.pipeline()
    blind = replace(pipeline, nodes=tuple(replace(node, location=None) for node in pipeline))
    emission = emit(blind, Plan("p", (rewrite(prefetch("n1")),)))
    assert "no source line for batch" in emission.not_covered[0].why


def test_unreadable_file_is_refused(sample):
    made = sample("import tensorflow as tf\nds = tf.data.Dataset.range(3).batch(2)\ntrain(ds)\n")

    def read(path: str) -> str:
        raise FileNotFoundError(2, "No such file", path)

    emission = made.emit(rewrite(prefetch("batch")), read=read)
    assert "cannot be read" in emission.not_covered[0].why


def test_changed_file_is_refused(sample):
    made = sample("import tensorflow as tf\nds = tf.data.Dataset.range(3).batch(2)\ntrain(ds)\n")
    emission = made.emit(rewrite(prefetch("batch")), read=lambda path: "# new line\n" + made.path.read_text())
    assert emission.files == {}
    assert emission.not_covered


def test_patch_of_two_files(tmp_path):
    main, helper = tmp_path / "main.py", tmp_path / "helper.py"
    helper.write_text("def batches(ds):\n    return ds.batch(2)\n")
    main.write_text(
        "import tensorflow as tf\nns = {}\n"
        f"exec(compile({helper.read_text()!r}, {str(helper)!r}, 'exec'), ns)\n"
        "ds = ns['batches'](tf.data.Dataset.range(3).map(abs))\ntrain(ds)\n"
    )
    pipeline = record(main).pipeline()
    plan = Plan("p", (rewrite(SetArgument("n1", "num_parallel_calls", -1)), rewrite(prefetch("n2"))))
    emission = emit(pipeline, plan)
    assert emission.paths == (str(helper), str(main))
    assert emission.files[str(helper)][1] == "def batches(ds):\n    return ds.batch(2).prefetch(-1)\n"
    assert "map(abs, num_parallel_calls=tf.data.AUTOTUNE)" in emission.files[str(main)][1]
    moved = emit(pipeline, Plan("p", (rewrite(Move("n2", "n0")),)))
    assert "different files" in moved.not_covered[0].why


def test_byte_order_mark_encoding_and_missing_newline_are_kept(tmp_path):
    path = tmp_path / "sample.py"
    text = "\ufeff# é\r\nimport tensorflow as tf\r\nds = tf.data.Dataset.range(3).batch(2); train(ds)"
    path.write_bytes(text.encode())
    pipeline = record(path).pipeline()
    old, new = emit(pipeline, Plan("p", (rewrite(prefetch("n1")),))).files[str(path)]
    assert old == text
    assert new == text.replace("batch(2)", "batch(2).prefetch(tf.data.AUTOTUNE)")


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_last_statement_is_removed(tmp_path, end):
    path = tmp_path / "sample.py"
    text = f"def f(ds):\n    ds = ds.map(abs)\n    train(ds)\n    return ds\nimport tensorflow as tf\nds = tf.data.Dataset.range(3)\nds = f(ds)\nds = ds.batch(2){end}"
    path.write_bytes(text.encode())
    recorder = record(path)
    recorder.consumed["train"] = recorder.made[-1]
    pipeline = recorder.pipeline()
    new = emit(pipeline, Plan("p", (rewrite(Remove("n2")),))).files[str(path)][1]
    assert new == text.removesuffix(f"\nds = ds.batch(2){end}") + end if end != "\r\n" else new.endswith("f(ds)\n")


def test_last_line_of_a_file_is_moved(tmp_path):
    path = tmp_path / "sample.py"
    text = "import tensorflow as tf\nds = tf.data.Dataset.range(3)\nds = ds.map(abs)\nds = ds.shuffle(9)"
    path.write_text(text)
    recorder = record(path)
    recorder.consumed["train"] = recorder.made[-1]
    new = emit(recorder.pipeline(), Plan("p", (rewrite(Move("n2", "n0")),))).files[str(path)][1]
    assert new == "import tensorflow as tf\nds = tf.data.Dataset.range(3)\nds = ds.shuffle(9)\nds = ds.map(abs)"
