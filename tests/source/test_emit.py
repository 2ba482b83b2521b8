"""A plan written into source: exact text, and the operators that the new text builds when it runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

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
from tests.source.recorder import Recorder, record, recorded, resolved, shape, spelled_out


def rewrite(*edits: Edit, rule: str = "a-rule") -> Rewrite:
    return Rewrite(rule, edits[0].node if hasattr(edits[0], "node") else "", Safety.EXACT, edits, "")


def prefetch(after: str, size: int = -1) -> Insert:
    return Insert(after, "prefetch", f"prefetch@{after}", {"buffer_size": size})


@dataclass
class Sample:
    """A source on disk, recorded."""

    path: Path
    recorder: Recorder

    def emit(self, *rewrites: Rewrite, **more) -> Emission:
        pipeline = self.recorder.pipeline()
        named = (replace(one, edits=tuple(resolved(pipeline, edit) for edit in one.edits)) for one in rewrites)
        return emit(pipeline, Plan("test", tuple(named)), **more)


@pytest.fixture
def sample(tmp_path):
    return lambda text: Sample(*recorded(tmp_path, text))


PREFETCH = prefetch("batch")
TWO_CALLS, NO_CALLS, AUTOTUNED = (SetArgument("map", "num_parallel_calls", number) for number in (2, None, -1))
UP, DOWN, MAP_UP = Move("shuffle", "range"), Move("shuffle", "map"), Move("map", "range")
NO_CACHE = Remove("cache")

CACHE = Insert("batch", "cache", "c")
POOL = SetOption("threading.private_threadpool_size", 4)
TO_DEVICE = Insert("batch", "copy_to_device", "copy", {"target_device": "/GPU:0"})


def on_batches(name: str = "map", variant: FunctionVariant = FunctionVariant.ON_BATCHES) -> list[Edit]:
    return [Move(name, "batch"), ReplaceFunction(name, variant, "d")]


# (name, edits, source, source with the edits); "import tensorflow as tf" and "train(ds)" go around each
GOLDEN: list[tuple[str, list[Edit], str, str]] = [
    # A copy to a device
    ("copy to a device", [TO_DEVICE, prefetch("copy", 1)], "ds = range(3).batch(2)",
     "ds = range(3).batch(2)\nds = ds.apply(tf.data.experimental.copy_to_device('/GPU:0')).prefetch(1)"),
    # SetArgument
    ("change an argument", [TWO_CALLS], "ds = range(3).map(abs, num_parallel_calls = 4 , deterministic=True)  # why",
     "ds = range(3).map(abs, num_parallel_calls = 2 , deterministic=True)  # why"),
    ("an argument by position", [TWO_CALLS], "ds = range(3).map(abs, (4), True)", "ds = range(3).map(abs, 2, True)"),
    ("leave out an argument by position, another follows", [NO_CALLS], "ds = range(3).map(abs, 4, True)",
     "ds = range(3).map(abs, None, True)"),
    ("leave out the last argument", [NO_CALLS], "ds = range(3).map(abs, num_parallel_calls=4)",
     "ds = range(3).map(abs)"),
    ("leave out the only argument", [SetArgument("repeat", "count", None)], "ds = range(3).repeat(2)",
     "ds = range(3).repeat()"),
    ("leave out an argument on its own line", [NO_CALLS],
     "ds = range(3).map(\n    abs,  # first\n    num_parallel_calls=4,  # second\n    deterministic=True,\n)",
     "ds = range(3).map(\n    abs,  # first\n    deterministic=True,\n)"),
    ("arguments on lines, comma at the end", [TWO_CALLS], "ds = range(3).map(\n    abs,  # first\n    # the end\n)",
     "ds = range(3).map(\n    abs,  # first\n    # the end\n    num_parallel_calls=2,\n)"),
    ("arguments on lines, no comma at the end", [TWO_CALLS], "ds = range(3).map(\n    abs  # first\n)",
     "ds = range(3).map(\n    abs,  # first\n    num_parallel_calls=2\n)"),
    ("arguments hanging", [TWO_CALLS], "ds = range(3).map(abs,\n                                  deterministic=True)",
     "ds = range(3).map(abs,\n                                  deterministic=True,\n"
     "                                  num_parallel_calls=2)"),
    ("a lambda over several lines", [TWO_CALLS], "ds = range(3).map(lambda x: (\n    x + 1\n))",
     "ds = range(3).map(lambda x: (\n    x + 1\n), num_parallel_calls=2)"),
    ("an empty call", [SetArgument("repeat", "count", 3)], "ds = range(3).repeat(  )",
     "ds = range(3).repeat(count=3  )"),
    ("several arguments of one call",
     [SetArgument("interleave", *it) for it in (("cycle_length", 2), ("block_length", 1), ("num_parallel_calls", -1))],
     "ds = range(3).interleave(lambda f: f)",
     "ds = range(3).interleave(lambda f: f, cycle_length=2, block_length=1, num_parallel_calls=tf.data.AUTOTUNE)"),
    ("starred arguments, the argument is given beside them", [TWO_CALLS],
     "more = {'deterministic': True}\nds = range(3).map(abs, num_parallel_calls=4, **more)",
     "more = {'deterministic': True}\nds = range(3).map(abs, num_parallel_calls=2, **more)"),
    ("a constructor's argument",
     [SetArgument("TFRecordDataset", "num_parallel_reads", -1), SetArgument("TFRecordDataset", "buffer_size", -1)],
     "ds = TFRecordDataset(['a', 'b'], None)",
     "ds = TFRecordDataset(['a', 'b'], None, num_parallel_reads=tf.data.AUTOTUNE, buffer_size=-1)"),
    # AUTOTUNE by its name in the file
    ("AUTOTUNE is bound", [prefetch("map"), AUTOTUNED], "AUTO = tf.data.AUTOTUNE\nds = range(3).map(abs)",
     "AUTO = tf.data.AUTOTUNE\nds = range(3).map(abs, num_parallel_calls=AUTO).prefetch(AUTO)"),
    ("AUTOTUNE means something else", [prefetch("map")],
     "AUTOTUNE = tf.data.AUTOTUNE\nif True:\n    AUTOTUNE = 4\nds = range(3).map(abs)",
     "AUTOTUNE = tf.data.AUTOTUNE\nif True:\n    AUTOTUNE = 4\nds = range(3).map(abs).prefetch(tf.data.AUTOTUNE)"),
    ("AUTOTUNE is bound too late", [prefetch("map")], "ds = range(3).map(abs)\nAUTOTUNE = tf.data.AUTOTUNE",
     "ds = range(3).map(abs).prefetch(tf.data.AUTOTUNE)\nAUTOTUNE = tf.data.AUTOTUNE"),
    ("a parameter hides AUTOTUNE", [prefetch("map")],
     "AUTOTUNE = tf.data.AUTOTUNE\ndef make(AUTOTUNE):\n    return range(3).map(abs)\nds = make(1)",
     "AUTOTUNE = tf.data.AUTOTUNE\ndef make(AUTOTUNE):\n    return range(3).map(abs).prefetch(tf.data.AUTOTUNE)\n"
     "ds = make(1)"),
    # Insert
    ("in the head of a loop", [PREFETCH], "ds = range(3)\nfor x in (ds := ds.batch(2)): pass",
     "ds = range(3)\nfor x in (ds := ds.batch(2).prefetch(tf.data.AUTOTUNE)): pass"),
    ("behind a line that is long already", [PREFETCH, CACHE, SetArgument("prefetch@batch", "buffer_size", 3)],
     "a_long_name = range(3).map(abs).map(abs).batch(20)  # é\nds = a_long_name",
     "a_long_name = range(3).map(abs).map(abs).batch(20).cache()  # é\na_long_name = a_long_name.prefetch(3)\n"
     "ds = a_long_name"),
    ("at the end of a chain over lines", [PREFETCH], "ds = (\n    range(3)\n    .map(abs)\n    .batch(2)  # pairs\n)",
     "ds = (\n    range(3)\n    .map(abs)\n    .batch(2)  # pairs\n    .prefetch(tf.data.AUTOTUNE)\n)"),
    ("in a chain over lines with comments", [Insert("map", "cache", "c", {"filename": ""})],
     "ds = (\n    range(3)\n    .map(abs)  # signs\n    # pairs\n    .batch(2))",
     "ds = (\n    range(3)\n    .map(abs)  # signs\n    .cache()\n    # pairs\n    .batch(2))"),
    ("behind the root of a chain over lines",
     [Insert("range", "shuffle", "s", {"buffer_size": 100, "seed": 7, "reshuffle_each_iteration": None})],
     "ds = (range(3)\n      .map(abs)\n      .batch(2))",
     "ds = (range(3)\n      .shuffle(100, seed=7)\n      .map(abs)\n      .batch(2))"),
    ("in a chain with backslashes", [PREFETCH, Insert("map", "cache", "c")],
     "ds = range(3) \\\n    .map(abs) \\\n    .batch(2)  # pairs",
     "ds = range(3) \\\n    .map(abs) \\\n    .cache() \\\n    .batch(2) \\\n"
     "    .prefetch(tf.data.AUTOTUNE)  # pairs"),
    ("in a chain with dots at the end", [PREFETCH], "ds = (range(3).\n      map(abs).\n      batch(2))",
     "ds = (range(3).\n      map(abs).\n      batch(2).\n      prefetch(tf.data.AUTOTUNE))"),
    ("behind a call over lines", [PREFETCH], "ds = range(3).map(\n    abs,\n).batch(\n    2\n)",
     "ds = range(3).map(\n    abs,\n).batch(\n    2\n).prefetch(tf.data.AUTOTUNE)"),
    ("two behind one operator, one behind the other",
     [Insert("batch", "take", "t", {"count": 5}), CACHE, Insert("t", "repeat", "r", {"count": -1})],
     "ds = range(3).batch(2)", "ds = range(3).batch(2).cache().take(5).repeat()"),
    ("in a lambda, behind a parenthesis, in a walrus", [PREFETCH],
     "if (ds := (range(3).apply(lambda d: d.batch(2)))): pass",
     "if (ds := (range(3).apply(lambda d: d.batch(2).prefetch(tf.data.AUTOTUNE)))): pass"),
    ("not ASCII before it, another call behind it", [PREFETCH],
     'text = f"{1} 日本語 🙂"; ds = range(3).batch(2); ds = ds.map(abs); print = None',
     'text = f"{1} 日本語 🙂"; ds = range(3).batch(2).prefetch(tf.data.AUTOTUNE); ds = ds.map(abs); print = None'),
    ("behind what a library makes", [CACHE],
     'ds = image_dataset_from_directory(\n    "photos",\n    subset="training",\n)',
     'ds = image_dataset_from_directory(\n    "photos",\n    subset="training",\n).cache()'),
    ("behind the two operators of list_files",
     [Insert("shuffle", "cache", "c", {"filename": "a b"})],
     'ds = list_files("*")\nds = ds.interleave(lambda f: tf.data.TFRecordDataset(f))',
     'ds = list_files("*").cache("a b")\nds = ds.interleave(lambda f: tf.data.TFRecordDataset(f))'),
    # The shuffle of list_files, behind a map
    ("out of list_files, in a chain", [DOWN], "ds = list_files('*', seed=7).map(abs).batch(2)",
     "ds = list_files('*', shuffle=False).map(abs).shuffle(3, seed=7).batch(2)"),
    ("out of list_files, with a cache behind the map", [DOWN, Insert("map", "cache", "c", {"filename": ""})],
     "files = list_files('*', True)\nds = files.map(abs)\nds = ds.batch(2)",
     "files = list_files('*', False)\nds = files.map(abs).cache().shuffle(3)\nds = ds.batch(2)"),
    # Remove
    ("out of a chain over lines, its comment goes", [NO_CACHE],
     "ds = (\n    range(3)  # three\n    # stays\n    .cache()  # goes\n    .batch(2)\n)",
     "ds = (\n    range(3)  # three\n    # stays\n    .batch(2)\n)"),
    ("the last of a chain over lines", [NO_CACHE], "ds = (range(3)\n      .batch(2)\n      .cache())",
     "ds = (range(3)\n      .batch(2))"),
    ("the last of a chain, a comment above", [NO_CACHE], "ds = (range(3)\n      .batch(2)  # pairs\n      .cache())",
     "ds = (range(3)\n      .batch(2)  # pairs\n      )"),
    ("one of two on a line of a chain", [NO_CACHE], "ds = (range(3)\n      .cache().batch(2)\n      .repeat())",
     "ds = (range(3)\n      .batch(2)\n      .repeat())"),
    ("out of backslashes", [NO_CACHE], "ds = range(3) \\\n    .cache() \\\n    .batch(2)",
     "ds = range(3) \\\n    .batch(2)"),
    ("a whole statement", [NO_CACHE], "ds = range(3)\n# a comment\nds = ds.cache()  # goes\nds = ds.batch(2)",
     "ds = range(3)\n# a comment\nds = ds.batch(2)"),
    ("a statement that gives another name", [NO_CACHE], "first = range(3)\nds = first.cache()",
     "first = range(3)\nds = first"),
    ("the only statement of a block", [NO_CACHE], "ds = range(3)\nif ds:\n    ds = ds.cache()  # fast\nelse: pass",
     "ds = range(3)\nif ds:\n    pass  # fast\nelse: pass"),
    ("the suite of a block", [NO_CACHE], "ds = range(3)\nif ds: ds = ds.cache()", "ds = range(3)\nif ds: pass"),
    ("one of several statements on a line", [NO_CACHE, Remove("repeat")],
     "a = 1; ds = range(3); ds = ds.cache(); ds = ds.repeat()", "a = 1; ds = range(3)"),
    ("two links of one statement, then nothing is left", [Remove("repeat"), NO_CACHE],
     "ds = range(3)\nds = ds.cache().repeat()\nx = 1", "ds = range(3)\nx = 1"),
    # Move
    ("up a chain over lines, comments go with it", [UP],
     "ds = (\n    range(3)  # three\n    .map(abs)  # signs\n    # mix\n    .shuffle(9)  # nine\n    .batch(2)\n)",
     "ds = (\n    range(3)  # three\n    # mix\n    .shuffle(9)  # nine\n    .map(abs)  # signs\n    .batch(2)\n)"),
    ("down a chain over lines to its end", [Move("prefetch", "batch"), SetArgument("prefetch", "buffer_size", -1)],
     "ds = (range(3)\n      .prefetch(1)\n      .map(abs)\n      .batch(2))",
     "ds = (range(3)\n      .map(abs)\n      .batch(2)\n      .prefetch(tf.data.AUTOTUNE))"),
    ("a statement up, comments go with it", [UP],
     "ds = range(3)\nds = ds.map(abs)\n\n# mix\nds = ds.shuffle(9)  # nine\nds = ds.batch(2)",
     "ds = range(3)\n# mix\nds = ds.shuffle(9)  # nine\nds = ds.map(abs)\n\nds = ds.batch(2)"),
    ("a statement down, and then something behind it", [Move("repeat", "batch"), prefetch("repeat"), TWO_CALLS],
     "ds = range(3)\nds = ds.repeat()\nds = ds.map(abs)\nds = ds.batch(2)",
     "ds = range(3)\nds = ds.map(abs, num_parallel_calls=2)\nds = ds.batch(2)\n"
     "ds = ds.repeat().prefetch(tf.data.AUTOTUNE)"),
    ("from a chain to a return, through other names", [Move("repeat", "batch")],
     "def make():\n    a = range(3).repeat()\n    b = a.map(abs)\n    return b.batch(2)\nds = make()",
     "def make():\n    a = range(3)\n    b = a.map(abs)\n    return b.batch(2).repeat()\nds = make()"),
    ("a shuffle below a map, and a cache between, in statements",
     [DOWN, Insert("map", "cache", "c", {"filename": ""})],
     "ds = range(3)\nds = ds.shuffle(9)  # mix\nds = ds.map(abs)\nds = ds.batch(2)",
     "ds = range(3)\nds = ds.map(abs).cache()\nds = ds.shuffle(9)  # mix\nds = ds.batch(2)"),
    ("an argument that is computed, past what may change it", [DOWN],
     "files = ['a']\n\n# mix\nds = range(3).shuffle(len(files), seed=1)\nfiles.append('b')\nds = ds.map(abs)\n"
     "ds = ds.batch(2)",
     "files = ['a']\n\n# mix\nds = range(3)\nbuffer_size = len(files)\nfiles.append('b')\n"
     "ds = ds.map(abs).shuffle(buffer_size, seed=1)\nds = ds.batch(2)"),
    ("an argument by keyword whose name is taken, in a function", [DOWN],
     "def make(rows, buffer_size):\n    ds = range(buffer_size)\n    # mix\n"
     "    ds = ds.shuffle(seed=3, buffer_size=max(len(rows), 1))  # all\n    rows = list(rows)\n"
     "    ds = ds.map(abs)\n    return ds.batch(2)\nds = make([1], 3)",
     "def make(rows, buffer_size):\n    ds = range(buffer_size)\n    shuffle_buffer_size = max(len(rows), 1)\n"
     "    rows = list(rows)\n    ds = ds.map(abs)\n    # mix\n"
     "    ds = ds.shuffle(seed=3, buffer_size=shuffle_buffer_size)  # all\n    return ds.batch(2)\nds = make([1], 3)"),
    ("to where it is", [DOWN], "ds = range(3).map(abs).shuffle(9)", "ds = range(3).map(abs).shuffle(9)"),
    # ReplaceFunction
    ("a function called on batches", on_batches(), "ds = range(3).map(abs, num_parallel_calls=2).shuffle(9).batch(2)",
     "ds = range(3).shuffle(9).batch(2)\nds = ds.map(abs, num_parallel_calls=2)"),
    ("two functions called on batches, statement by statement", [*on_batches("map#1"), *on_batches("map#0")],
     "ds = range(3)\nds = ds.map(abs)  # first\nds = ds.map(float)\nds = ds.batch(2)\nds = ds.prefetch(1)",
     "ds = range(3)\nds = ds.batch(2)\nds = ds.map(abs)  # first\nds = ds.map(float)\nds = ds.prefetch(1)"),
    ("a vectorized function by keyword, of another module", on_batches(variant=FunctionVariant.VECTORIZED),
     "import math\nds = range(3).map(num_parallel_calls=2, map_func=math.fabs).batch(2)",
     "import math\nds = range(3).batch(2)\n"
     "ds = ds.map(num_parallel_calls=2, map_func=lambda batch: tf.vectorized_map(math.fabs, batch))"),
    # SetOption
    ("options", [POOL, PREFETCH, SetOption("deterministic", True)],
     "options = None\nif options is None:\n    ds = range(3).batch(2)  # pairs",
     "options = None\nif options is None:\n    ds = range(3).batch(2).prefetch(tf.data.AUTOTUNE)  # pairs\n"
     "    dataset_options = tf.data.Options()\n    dataset_options.threading.private_threadpool_size = 4\n"
     "    dataset_options.deterministic = True\n    ds = ds.with_options(dataset_options)"),
    ("an option that two rewrites set", [POOL, POOL], "ds = range(3).batch(2)",
     "ds = range(3).batch(2)\noptions = tf.data.Options()\noptions.threading.private_threadpool_size = 4\n"
     "ds = ds.with_options(options)"),
]  # fmt: skip


def at_top(source: str) -> str:
    return spelled_out(f"import tensorflow as tf\n{source}\ntrain(ds)\n")


def in_function(source: str) -> str:
    indented = "\n".join(f"    {line}" if line else "" for line in source.split("\n"))
    return spelled_out(f"import tensorflow as tf\ndef everything():\n{indented}\n    train(ds)\neverything()\n")


BATCHED = at_top("ds = range(3).batch(2)")


@pytest.mark.parametrize(("around", "newline"), [(at_top, "\n"), (in_function, "\r\n")], ids=["LF", "CRLF"])
@pytest.mark.parametrize(("name", "edits", "before", "after"), GOLDEN, ids=[case[0] for case in GOLDEN])
def test_patch_matches_expected_text_and_pipeline(sample, name, edits, before, after, around, newline):
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
    ("import tensorflow.compat.v2 as tf", "tf.data.Dataset", "tf.data.AUTOTUNE"),
    ("from tensorflow.data import AUTOTUNE as fast, Dataset", "Dataset", "fast"),
    ("from tensorflow.data import Dataset", "Dataset", "-1"),
    ("try:\n    import tensorflow as tf\nexcept ImportError:\n    raise", "tf.data.Dataset", "tf.data.AUTOTUNE"),
]


@pytest.mark.parametrize(("imports", "dataset", "autotune"), ALIASES)
def test_autotune_is_written_by_the_files_alias(sample, imports, dataset, autotune):
    made = sample(f"{imports}\nds = {dataset}.range(3).batch(2)\ntrain(ds)\n")
    emission = made.emit(rewrite(PREFETCH))
    new = emission.files[str(made.path)][1]
    assert f".batch(2).prefetch({autotune})\n" in new
    assert record(made.path, new).pipeline().output.arguments == {"buffer_size": -1}
    assert bool(emission.notes) == (autotune == "-1")


def test_minus_one_in_a_file_name_is_not_autotune(sample):
    made = sample("import tensorflow as T\nds = T.data.Dataset.range(3).batch(2)\ntrain(ds)\n")
    emission = made.emit(rewrite(Insert("batch", "cache", "c", {"filename": "cache-1f"})))
    assert ".cache('cache-1f')" in emission.files[str(made.path)][1] and emission.notes == ()


def test_import_inside_a_function_is_not_used_outside(sample):
    made = sample(
        "from tensorflow.data import Dataset\ndef f():\n    import tensorflow as tf\n    return tf\n"
        "def g():\n    return Dataset.range(3).batch(2)\ntrain(g())\n"
    )
    new = made.emit(rewrite(PREFETCH)).files[str(made.path)][1]
    assert ".batch(2).prefetch(-1)\n" in new


# (name, part of the reason, edits, source)
REFUSED: list[tuple[str, str, list[Edit], str]] = [
    ("keywords starred", "starred", [TWO_CALLS], "more = [{}]\nds = range(3).map(abs, **more[0])"),
    ("keywords starred, which have two names", "starred", [TWO_CALLS],
     "more = also = {'deterministic': True}\nalso['num_parallel_calls'] = 4\nds = range(3).map(abs, **more)"),
    ("arguments starred", "starred", [NO_CALLS], "more = (abs,)\nds = range(3).map(*more)"),
    ("no such parameter", "parameter size", [SetArgument("batch", "size", 2)], "ds = range(3).batch(2)"),
    ("an operator that needs a function", "map needs", [Insert("range", "map", "m")], "ds = range(3)"),
    ("an argument nobody knows", "cannot write the call", [Insert("range", "batch", "b", {"size": 2})],
     "ds = range(3)"),
    ("a lambda that parses for two maps", "a lambda that others use too", on_batches(variant=FunctionVariant.PARSING),
     "import functools\nparse = functools.partial(lambda e, f: tf.io.parse_single_example(e, f), f={})\n"
     "other = range(2).map(parse)\nds = range(3).map(parse).batch(2)"),
    ("a value that a loop carries over", "every is also read elsewhere", [Move("map", "batch")],
     "every = range(3)\nfor _ in (1,):\n    every = every.map(abs)\n    ds = every.batch(2)"),
    ("an operator that is not there", "n7", [Remove("n7")], "ds = range(3)"),
    ("a source taken out", "inputs", [Remove("range")], "ds = range(3)"),
    ("an argument that assigns", "assigns", [Remove("shuffle")], "ds = range(3).shuffle(n := 9)\nprint = n"),
    ("a constructor around a dataset", "not a method of a dataset", [Remove("TFRecordDataset")],
     "ds = TFRecordDataset(range(3))"),
    ("inside a library", "map is made inside image_dataset_from_directory",
     [SetArgument("map#0", "num_parallel_calls", 2)], "ds = image_dataset_from_directory('a')"),
    ("taken out of a library", "batch is made inside", [Remove("batch")], "ds = image_dataset_from_directory('a')"),
    ("in the middle of a library's call", "adds further operators after map", [Insert("map#1", "cache", "c")],
     "ds = image_dataset_from_directory('a')"),
    *((f"out of list_files: {why}", why, [DOWN], source) for why, source in {
        "whether it shuffles": "more = [True]\nds = list_files('a', shuffle=more[0]).map(abs)",
        "how list_files is called": "more = {'seed': 3}\nds = list_files('a', **more).map(abs)",
        "or with which seed": "seed = 3\nds = list_files('a', seed=seed).map(abs)",
        "is used between": "ds = list_files('a')\nvalidate(ds)\nds = ds.map(abs)",
        "different functions": "def files(): return list_files('a')\nds = files().map(abs)",
        "is also read elsewhere": "files = list_files('a')\nds = files.map(abs)\nvalidate(files)",
        "different blocks": "ds = list_files('a')\nif ds: ds = ds.map(abs)",
    }.items()),
    ("behind a library's call that returns two", "several datasets", [PREFETCH],
     "ds, _ = image_dataset_from_directory('a', subset='both')"),
    ("behind a library's call that is indexed", "several datasets", [PREFETCH],
     "ds = image_dataset_from_directory('a', subset='both')[0]"),
    ("to another block", "is reassigned in between", [UP], "ds = range(3).map(abs)\nif ds:\n    ds = ds.shuffle(9)"),
    ("past another reader", "ds is used between", [UP],
     "ds = range(3)\nds = ds.map(abs)\nvalidate(ds)\nds = ds.shuffle(9)"),
    ("past a reader of another name", "a is also read elsewhere", [UP],
     "a = range(3)\nb = a.map(abs)\nds = b.shuffle(9)\nvalidate(a)"),
    ("the upper name is read at the end", "a is also read elsewhere", [Move("repeat", "range")],
     "a = range(3)\nds = a.shuffle(9).repeat()\nvalidate(a)"),
    ("past a change of its argument", "is reassigned between", [UP],
     "size = 1\nds = range(3).map(abs)\nsize = 9\nds = ds.shuffle(size)"),
    ("a function past a statement it may depend on", "may depend", [MAP_UP],
     "ds = range(3).batch(2)\nvalidate(abs)\nds = ds.map(lambda x: abs(x))"),
    ("a lambda with a default that is computed", "may depend", [MAP_UP],
     "ds = range(3).batch(2)\nvalidate(abs)\nds = ds.map(lambda x, *, k=abs(1): x)"),
    ("a function that reads what changes", "may depend", [MAP_UP],
     "k = [1]\nds = range(3).batch(2)\nk.append(2)\nds = ds.map(lambda x: k)"),
    ("an argument that reads the dataset", "through a single name", [UP],
     "ds = range(3).map(abs)\nds = ds.shuffle(ds.cardinality())"),
    ("an argument that is computed, moved down with another", "may depend", [DOWN],
     "k = [1]\nds = range(3).shuffle(len(k), seed=sum(k))\nk.append(1)\nds = ds.map(lambda x: x)"),
    ("a computed argument over two lines", "may depend", [DOWN],
     "k = [1]\nds = range(3).shuffle(len(k)\n+len(k))\nk.append(1)\nds = ds.map(lambda x: x)"),
    ("a computed argument in front of a call that may change it", "may depend", [Move("shuffle", "map#1")],
     "k = [1]\ndef more(x): return k.append(1) or x\nds = range(3).shuffle(len(k)).map(more)\nk.append(1)\n"
     "ds = ds.map(lambda x: x)"),
    ("through a condition", "may not run", [UP], "ds = range(3).map(abs)\nds = ds.shuffle(9) if ds else ds.take(3)"),
    ("before its condition", "reassigned in between", [UP],
     "ds = range(3).map(abs)\nds = ds.shuffle(9) if ds else ds"),
    ("through an attribute", "a single name", [UP],
     "class A: pass\na = A()\na.ds = range(3).map(abs)\nds = a.ds.shuffle(9)"),
    ("options of a dataset without a name", "shares its line", [SetOption("deterministic", True)],
     "def make(): return range(3).batch(2)\nds = make()"),
    ("an argument that reads the dataset, moved down", "assigned by one of the two", [DOWN],
     "ds = range(3)\nds = ds.shuffle(ds.cardinality())\nds = ds.map(abs)"),
    ("into a statement that reads the dataset twice", "through a single name", [DOWN],
     "ds = range(3).map(abs)\nds = ds.concatenate(ds).shuffle(9)"),
    ("a statement that shares its line", "shares its line with other statements", [DOWN],
     "x = 1; ds = range(3).shuffle(9)\nds = ds.map(abs)"),
    ("past a function of the user", "ds is used between", [UP],
     "def same(ds): return ds\nds = range(3).map(abs)\nds = same(ds)\nds = ds.shuffle(9)"),
    ("behind a library's call that returns more than a dataset", "may return more", [PREFETCH],
     "photos = tf.keras.utils.load_photos('a')\nds = photos[0]"),
    ("a vectorized function where nothing is called TensorFlow", "not import TensorFlow under a name",
     on_batches(variant=FunctionVariant.VECTORIZED), "tf = tf\nds = range(3).map(abs).batch(2)"),
    ("an option that is no number", "cannot be written as a literal",
     [SetOption("autotune.autotune_algorithm", "HILL_CLIMB")], "ds = range(3)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "why", "edits", "source"), REFUSED, ids=[case[0] for case in REFUSED])
def test_rewrite_that_cannot_be_written_leaves_no_trace(sample, name, why, edits, source):
    made = sample(at_top(source))
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
    made = sample(BATCHED)
    monkeypatch.setattr("pipetune.source.emit.write_call", lambda *given, **named: "prefetch((")
    emission = made.emit(rewrite(PREFETCH))
    assert emission.files == {} and "break the syntax" in emission.not_covered[0].why


def test_node_without_a_location_is_refused(sample):
    made = sample(BATCHED)
    pipeline = made.recorder.pipeline()
    blind = replace(pipeline, nodes=tuple(replace(node, location=None) for node in pipeline))
    emission = emit(blind, Plan("p", (rewrite(prefetch("n1")),)))
    assert "no source line for batch" in emission.not_covered[0].why


def missing(path: str) -> str:
    raise FileNotFoundError(2, "No such file", path)


@pytest.mark.parametrize(
    ("read", "why"), [(missing, "cannot be read"), (lambda _: "# new line\n" + BATCHED, "no call at the recorded")]
)
def test_missing_or_changed_file_is_refused(sample, read, why):
    emission = sample(BATCHED).emit(rewrite(PREFETCH), read=read)
    assert emission.files == {} and why in emission.not_covered[0].why


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
    assert tuple(emission.files) == (str(helper), str(main))
    assert emission.files[str(helper)][1] == "def batches(ds):\n    return ds.batch(2).prefetch(-1)\n"
    assert "map(abs, num_parallel_calls=tf.data.AUTOTUNE)" in emission.files[str(main)][1]
    moved = emit(pipeline, Plan("p", (rewrite(Move("n2", "n0")),)))
    assert "different files" in moved.not_covered[0].why


def test_script_above_the_folder_of_a_helper_uses_it_too(tmp_path):
    main, helper = tmp_path / "main.py", tmp_path / "reading" / "helper.py"
    helper.parent.mkdir()
    helper.write_text("import tensorflow as tf\ndef make(n):\n    return tf.data.Dataset.range(n).map(abs)\n")
    main.write_text(
        f"ns = {{}}\nexec(compile({helper.read_text()!r}, {str(helper)!r}, 'exec'), ns)\ntrain(ns['make'](9))\n"
        "def test():\n    from reading.helper import make\n    return make(5)\n"
    )
    (rejection,) = emit(
        record(main).pipeline(), Plan("p", (rewrite(SetArgument("n1", "deterministic", False)),))
    ).not_covered
    assert "is also referenced at main.py:6" in rejection.why


def test_byte_order_mark_encoding_and_missing_newline_are_kept(sample):
    text = "\ufeff# é\r\nimport tensorflow as tf\r\nds = tf.data.Dataset.range(3).batch(2); train(ds)"
    made = sample(text)
    old, new = made.emit(rewrite(PREFETCH)).files[str(made.path)]
    assert old == text
    assert new == text.replace("batch(2)", "batch(2).prefetch(tf.data.AUTOTUNE)")


LAST = "import tensorflow as tf\nds = tf.data.Dataset.range(3)\n"
IN_A_FUNCTION = "def f(ds):\n    ds = ds.map(abs)\n    train(ds)\n    return ds\n" + LAST + "ds = f(ds)"


@pytest.mark.parametrize(
    ("edit", "before", "after"),
    [
        (Remove("n2"), IN_A_FUNCTION + "\nds = ds.batch(2)", IN_A_FUNCTION),
        (Remove("n2"), IN_A_FUNCTION + "\nds = ds.batch(2)\n", IN_A_FUNCTION + "\n"),
        (Move("n2", "n0"), LAST + "ds = ds.map(abs)\nds = ds.shuffle(9)",
         LAST + "ds = ds.shuffle(9)\nds = ds.map(abs)"),
    ],
)  # fmt: skip
def test_last_line_of_a_file_is_removed_or_moved(tmp_path, edit, before, after):
    path, recorder = recorded(tmp_path, before)
    recorder.consumed["train"] = recorder.made[-1]
    assert emit(recorder.pipeline(), Plan("p", (rewrite(edit),))).files[str(path)][1] == after
