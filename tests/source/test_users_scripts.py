"""Rewrites in scripts as users write them: the patch, the pipeline of the patched script, and which datasets change."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import libcst as cst
import pytest

from pipetune.core.edits import Edit, Insert, Move, Remove, ReplaceFunction, SetArgument, apply_edits
from pipetune.core.functions import FunctionVariant
from pipetune.core.pipeline import Pipeline
from pipetune.source.draft import open_draft
from pipetune.source.emit import emit
from pipetune.source.shared_calls import reads_same_datasets
from pipetune.source.source_files import read_source
from pipetune.source.user_functions import is_library_attribute
from tests.source.recorder import plan, record, recorded, resolved, shape, spelled_out

PARALLEL = "num_parallel_calls"
PREFETCH = Insert("batch", "prefetch", "p", {"buffer_size": -1})


@dataclass(frozen=True)
class Script:
    """A script, a rewrite of its training pipeline, and the expected result."""

    name: str
    text: str
    edits: tuple[Edit, ...]
    wanted: tuple[str, ...] | str  # lines of the new script, or part of the reason why it cannot be patched
    both: bool = False  # validation is changed too


HEAD = "import tensorflow as tf\n"
CACHED = (Insert("batch", "cache", "c"),)
CACHED_MAP = (Insert("map", "cache", "c"),)
BEHIND_THE_BATCH = (Move("map", "batch"), ReplaceFunction("map", FunctionVariant.ON_BATCHES, "d"))

FLAGS = """def prepare(ds, training=False, augment=False):
    ds = ds.map(abs, num_parallel_calls=2)
    if training:
        ds = ds.shuffle(1000)
    ds = ds.batch(32)
    if augment:
        ds = ds.map(lambda x: x)
    return ds.prefetch(2)
train(prepare(range(9), training=True, augment=True))
validate(prepare(range(5)))
"""

MIXED = """def prepare(n, training):
    ds = range(n)
    ds = ds.map(abs)
    if training:
        ds = ds.shuffle(100)
    return ds.batch(8)
train(prepare(9, True))
"""

SKIPPED = MIXED.replace("True", "False")

TWO_WAYS = """def make(n, training):
    if training:
        ds = range(n)
        ds = ds.map(abs)
    else:
        ds = range(n).take(3)
    ds = ds.batch(8)
    return ds
train(make(9, True))
"""

MAPPED = SKIPPED.replace("shuffle(100)", "map(len)")  # by a function, which may draw

REPEATED = """def make(n, training):
    ds = range(n)
    if training:
        ds = ds.shuffle(100)
        ds = ds.repeat()
    ds = ds.map(abs).batch(8)
    return ds
train(make(9, True))
validate(make(5, False))
"""
IN_ONE_CHAIN = REPEATED.replace("shuffle(100)\n        ds = ds.repeat", "shuffle(100).repeat")

ON_LONG_LINES = """def make(n):
    ds = range(n)
    ds = ds.shuffle(buffer_size=1000, reshuffle_each_iteration=True).repeat()
    ds = ds.map(abs, num_parallel_calls=2)
    return ds.batch(8)
train(make(9))
"""

CHOSEN = IN_ONE_CHAIN.replace("if training:\n        ", "").replace("repeat()", "repeat() if training else ds")


def on_its_line(text: str) -> str:
    """The script with the first statement under the condition on its line."""
    return text.replace("training:\n        ", "training: ")


CACHED_BEFORE = (Move("repeat", "map"), Move("shuffle", "map"), Insert("map", "cache", "c"))
CACHED_THERE = ("    ds = ds.map(abs)", "    if training:", "        ds = ds.cache().shuffle(100)",
                "        ds = ds.repeat()", "    ds = ds.batch(8)")  # fmt: skip

FINISHED = """def finish(ds):
    return ds.batch(2).map(len)
ds = range(9).map(abs).map(int)
train(finish(ds))
"""

PREPARED = """def prepare(ds):
    ds = ds.map(abs)
    return ds
train(prepare(range(9)).batch(2))
validate(prepare(range(5)))
"""

TOLD = PREPARED.replace("prepare(ds)", "prepare(ds, flip=False)").replace(
    "    return ds", "    if flip:\n        ds = ds.map(len)\n    return ds"
)

CONDITIONAL = """def load(n, training):
    ds = range(n)
    ds = ds.shuffle(100) if training else ds
    ds = ds.repeat() if training else ds.cache()
    return ds.map(abs).batch(8)
train(load(9, True))
validate(load(5, False))
"""

APPLIED = """def finish(ds):
    ds = ds.map(abs)
    return ds.batch(2)
train(range(9).shuffle(9).apply(finish))
"""

APPLIED_TWICE = APPLIED + "validate(range(5).apply(finish))\n"

FACTORY = """def batched(size):
    return lambda ds: ds.batch(size)
ds = range(9).map(abs)
ds = ds.apply(batched(4))
train(ds)
"""

METHODS = """class Input:
    def __init__(self, n):
        self.n = n
        self.dataset = None
    def build(self):
        self.dataset = range(self.n)
        self.dataset = self.dataset.map(self.decode)
        self.dataset = self.dataset.batch(4)
        return self
    def decode(self, x):
        return x
    @property
    def batches(self):
        return self.dataset.repeat()
train(Input(9).build().batches)
"""

SIZED = METHODS.replace("batch(4)", "batch(self.size())").replace(
    "    @property", "    def size(self):\n        return 4\n    @property"
)
BATCH = "        self.dataset = self.dataset.batch(4)\n"
COUNTED = METHODS.replace(BATCH, f"        self.n += 1\n{BATCH}")

LOOPED = """steps = [abs, abs, abs]
ds = range(9)
for step in steps:
    ds = ds.map(step)
ds = ds.batch(2)
train(ds)
"""

KEPT = """class Data:
    built, sizes = {}, {"train": 9, "test": 5}
    def get(self, split):
        if split not in self.built:
            ds = range(self.sizes[split])
            if split == "train":
                ds = ds.shuffle(self.sizes[split])
            self.built[split] = ds.map(abs).batch(2)
        return self.built[split]
data = Data()
train(data.get("train"))
validate(data.get("test"))
"""

BOTH = """def make(n):
    return range(n).map(abs).batch(2)
train(make(9))
validate(make(5))
"""

CHOOSING = """def make(n, training):
    FUNCTION
    return range(n).map(chosen).batch(2)
train(make(9, True))
"""

OBJECTS = """class Data:
    def __init__(self, n):
        self.n = n
    def build(self):
        ds = range(self.n).map(abs)
        return ds.batch(2)
train(Data(9).build())
def test():
    return Data(5).build()
"""
ONE_OBJECT = OBJECTS.replace("train(Data(9)", "data = Data(9)\ntrain(data").replace("Data(5)", "data")

INPUT_FUNCTION = """def make(n):
    def input_function():
        return range(n).map(abs).batch(2)
    return input_function
train(make(9)())
def test():
    return make(5)()
"""

READING = """def make():
    return range(n).map(abs).batch(2)
train(make())
def test(): return make()
"""
OF_ONE_CALL = ("def make(rule=False):", "train(make(rule=True))", "def test(): return make()")

IDLE = """def flipped(ds, flip):
    if flip:
        ds = ds.map(len)
    return ds
ds = range(9).map(abs)
ds = flipped(ds, 9 * 0)
ds = ds.batch(2)
train(ds)
"""

FLAGGED = """flip = False
ds = range(9)
ds = ds.map(abs)
if flip:
    ds = ds.map(len)
ds = ds.batch(2)
train(ds)
"""

DRAWING = """def moved(x):
    return x + tf.random.uniform([])
def noisy(x, flip):
    if flip:
        x = moved(x)
    return x
train(range(9).map(lambda x: noisy(x, 9 * 0)).batch(2))
"""

VARIABLE = """mapped = range(9).map(abs)
ds = mapped.batch(2)
train(ds)
"""

PASSED = """def build(n):
    return range(n).map(abs).batch(2)
def work(make):
    train(make(9))
    return lambda: make(5)
work(build)
"""

SCRIPTS = [
    Script("a function chosen by a name, of which the other ran in no test",
     CHOOSING.replace("FUNCTION", "chosen = abs if training else int"), BEHIND_THE_BATCH, "which of the two functions"),
    Script("a function chosen under a condition", CHOOSING.replace("FUNCTION",
     "chosen = int\n    if training:\n        chosen = abs"), BEHIND_THE_BATCH, "one of several functions"),
    Script("a function from a dictionary, by a name",
     CHOOSING.replace("FUNCTION", "functions = {True: abs, False: int}\n    chosen = functions[training]"),
     BEHIND_THE_BATCH, "one of several functions"),
    Script("a partial of one of two functions", CHOOSING.replace("FUNCTION", "from functools import partial")
     .replace("(chosen)", "(partial(abs if training else int))"), BEHIND_THE_BATCH, "one of several functions"),
    Script("a function by a name that is assigned once", CHOOSING.replace("FUNCTION", "chosen = abs"),
     BEHIND_THE_BATCH, ("    return range(n).batch(2).map(chosen)",)),
    Script("AUTOTUNE has a name under a condition only",
     SKIPPED.replace("ds = ds.map", "if training: AUTO = tf.data.AUTOTUNE\n    ds = ds.map"),
     (SetArgument("map", PARALLEL, -1),), ("    ds = ds.map(abs, num_parallel_calls=tf.data.AUTOTUNE)",)),
    Script("a cache behind a branch that was skipped and may draw", MAPPED, CACHED,
     ("    if not training:", "        return ds.batch(8).cache()", "    return ds.batch(8)")),
    Script("a cache behind branches of which one ran",
     MIXED.replace("True", "2").replace("if training:", "if training == 1: ds = prepared(ds)\n    elif training:"),
     CACHED, ("    if not (training == 1):", "        return ds.batch(8).cache()")),
    Script("a cache behind a skipped branch whose condition calls a function",
     MAPPED.replace("if training", "if bool(training)"), CACHED, "calls a function"),
    Script("a cache in an attribute, behind a skipped branch", METHODS.replace("def build(self)",
     "def build(self, flip=0)").replace(BATCH,
     f"        if flip:\n            self.dataset = self.dataset.map(len)\n{BATCH}"), CACHED, ("        if not flip:",
     "            self.dataset = self.dataset.batch(4).cache()")),
    Script("a cache below a block, behind a branch that was skipped", MAPPED.replace("    return ds",
     "    if n:\n        ds = ds.batch(8)\n    return ds").replace("return ds.batch(8)", "return ds"), CACHED,
     ("        if not training:", "            ds = ds.cache()")),
    Script("a cache on the line of a condition, behind a branch that was skipped", MAPPED.replace("    return ds",
     "    if n: ds = ds.batch(8)\n    return ds").replace("return ds.batch(8)", "return ds"), CACHED,
     ("    if not training:", "        if n: ds = ds.batch(8).cache()")),
    Script("a cache behind a branch that was skipped within one that ran", MIXED.replace("n, training",
     "n, training, flip=0").replace("shuffle(100)", "take(9)\n        if flip:\n            ds = ds.map(len)"), CACHED,
     ("    if not flip:", "        return ds.batch(8).cache()")),
    Script("a cache behind one of two calls in a conditional expression",
     MIXED.replace("True", "0").replace("shuffle", "take").replace("map(abs)", "map(len) if training else ds.map(abs)"),
     CACHED, ("    if not training:", "        return ds.batch(8).cache()")),
    Script("a cache in a chain that begins with a conditional expression",
     SKIPPED.replace("return ds", "return (ds.map(len) if training else ds)"), CACHED,
     ("    if not training:", "        return (ds.map(len) if training else ds).batch(8).cache()")),
    Script("a cache behind a map with one of two functions", MIXED.replace("map(abs)", "map(abs if training else int)"),
     CACHED, "may get another function"),
    Script("a cache in a helper, which is called below a branch that was skipped", FINISHED.replace(
     "train(", "if not ds:\n    ds = ds.map(len)\ntrain("), CACHED, "in another function"),
    Script("a cache behind a helper that is told to skip", TOLD, CACHED,
     ("train(prepare(range(9)).batch(2).cache())",)),
    Script("a cache behind a helper that is told by a variable", TOLD.replace("(9)", "(9), 9 * 0"),
     CACHED, "in another function"),
    Script("a cache behind a helper that is told by a partial", "import functools\n" + TOLD.partition("train")[0]
     + "told = functools.partial(prepare, flip=9 * 0)\ntrain(told(range(9)).batch(2))\n", CACHED,
     "in another function"),
    Script("a cache behind a helper that is told to add nothing", IDLE.replace("9 * 0", "False"),
     CACHED, ("ds = ds.batch(2).cache()",)),
    Script("a cache behind a helper that has added nothing, in a chain", IDLE.replace("ds = flipped",
     "ds = ds.map(int)\nds = flipped").replace("9 * 0)\nds = ds", "9 * 0)"), CACHED, "in another function"),
    Script("a cache behind a function to apply that has added nothing",
     IDLE.replace("flipped(ds, 9 * 0)", "ds.apply(lambda one: flipped(one, 9 * 0))"), CACHED, "in another function"),
    Script("a cache behind a helper with the name of a method, below a skipped branch", "def take(ds):\n"
     "    return ds.take(5)\nraw = range(9).map(abs)\nif not raw:\n    raw = raw.map(len)\nds = take(raw)\n"
     "ds = ds.batch(2)\ntrain(ds)\n", CACHED, "Above the cache is a condition"),
    Script("a cache behind a skipped branch of the script that a literal decides", FLAGGED,
     CACHED, ("ds = ds.batch(2).cache()",)),
    Script("a cache behind a skipped branch that one side of its condition decides",
     "strength = 9 * 0\n" + FLAGGED.replace("if flip", "if flip and strength"), CACHED, ("ds = ds.batch(2).cache()",)),
    Script("a cache behind a skipped branch that one known side leaves open",
     "strength = 9 * 0\n" + FLAGGED.replace("if flip", "if flip or strength"), CACHED, "Above the cache is a"),
    Script("a cache behind a skipped branch of the script that a function may decide", FLAGGED.replace("ds = range",
     "def choose():\n    global flip\n    flip = True\nds = range"), CACHED, "Above the cache is a condition"),
    Script("a cache behind a function with draws below a condition", DRAWING, CACHED, "draws in another run"),
    Script("a cache behind a function of many steps, whose draws follow from seeds",  # in as many orders as 12!
     "def moved(x, y):\n" + "    x, y = tf.random.split(x, y), tf.random.fold_in(y, x)\n" * 12 + "    return x\n"
     + "train(range(9).map(lambda x: moved(x, 1)).batch(2))\n", CACHED,
     ("train(range(9).map(lambda x: moved(x, 1)).batch(2).cache())",)),
    Script("a cache behind a function with draws below a condition that a literal decides",
     DRAWING.replace("9 * 0", "False"), CACHED, ("train(range(9).map(lambda x: noisy(x, False)).batch(2).cache())",)),
    Script("a cache behind a function with draws, as a partial with a literal", "from functools import partial\n"
     + DRAWING.replace("lambda x: noisy(x, 9 * 0)", "partial(noisy, flip=False)"), CACHED,
     ("train(range(9).map(partial(noisy, flip=False)).batch(2).cache())",)),
    Script("a cache behind a function with draws behind a return", DRAWING.replace(
     "    if flip:\n        x = moved(x)\n    return x", "    if not flip:\n        return x\n    return moved(x)"),
     CACHED, "draws in another run"),
    Script("a cache behind a function with draws that the caller of a helper decides", DRAWING
     .replace("train(range(9).map(lambda x: noisy(x, 9 * 0)).batch(2))", "def make(n, kind):\n    flip = kind == 1\n"
     "    ds = range(n).map(lambda x: noisy(x, flip))\n    return ds.batch(2)\ntrain(make(9, 0))"), CACHED,
     ("    return ds.batch(2).cache()",)),
    Script("a cache behind a function that the caller of a helper chooses", DRAWING.replace(
     "train(range(9).map(lambda x: noisy(x, 9 * 0)).batch(2))", "def make(n, function):\n"
     "    return range(n).map(function).batch(2)\ntrain(make(9, moved if 9 * 0 else abs))"),
     CACHED, "draws in another run"),
    Script("a cache behind a loop over functions that other runs add to", DRAWING.partition("train")[0]
     + LOOPED.replace("steps = [abs, abs, abs]", "steps = [abs]\nif 9 * 0:\n    steps.append(moved)"),
     CACHED, "draws in another run"),
    Script("a cache behind a loop over functions", LOOPED.replace(", abs, abs", ""), CACHED,
     ("ds = ds.batch(2).cache()",)),
    Script("a cache behind a function by a name that another run assigns again", DRAWING.partition("train")[0] +
     "chosen = abs\nif 9 * 0:\n    chosen = moved\ntrain(range(9).map(lambda x: chosen(x)).batch(2))\n",
     CACHED, "draws in another run"),
    Script("a cache in front of what only one dataset goes on with, below a skipped branch",
     FLAGS.replace("    if training", "    if not ds:\n        ds = ds.map(len)\n    if training"),
     (Insert("map#0", "cache", "c"),), ("    if rule:", "        ds = ds.cache()", "    if not ds:")),
    Script("an iterator that a helper returns", BOTH.replace("return range(n).map(abs).batch(2)",
     "return Iterator(range(n).map(abs))").replace("def make", "class Iterator:\n    def __init__(self, ds):\n"
     "        self.ds = ds\ndef make").replace("(9)", "(9).ds").replace("(5)", "(5).ds"),
     CACHED_MAP, ("        return Iterator(range(n).map(abs).cache())",)),
    Script("a cache behind a class of which other methods were not called", "class Data:\n    @staticmethod\n"
     "    def make(n):\n        return range(n).map(abs)\n    @staticmethod\n    def mixed(ds):\n"
     "        return ds.shuffle(3)\nds = Data.make(9)\nds = ds.batch(2)\ntrain(ds)\n", CACHED,
     ("ds = ds.batch(2).cache()",)),
    Script("a main function, which calls functions of the file", "def make(n):\n    return range(n).map(abs).batch(2)\n"
     "def main():\n    train(make(9))\nmain()\ndef test():\n    make(5), main()\n", CACHED_MAP,
     ("def make(n, rule=False):", "def main():", "    train(make(9, rule=True))", "main()", "    make(5), main()")),
    Script("a main function that Hydra, click or Typer calls", "def command(**given):\n    return lambda run: run\n"
     "@command(config=None)\ndef start(n):\n    train(range(n).map(abs).batch(2))\nstart(9)\n",
     CACHED_MAP, ("    train(range(n).map(abs).cache().batch(2))",)),
    Script("a cache behind skipped options and a number", SKIPPED.replace("shuffle(100)",
     "take(int(n))\n        options = tf.data.Options()\n        ds = ds.with_options(options)"),
     CACHED, ("    return ds.batch(8).cache()",)),
    Script("a helper goes on under a condition: a call out of it",
     PREPARED.partition("validate")[0].replace("    return", "    if not ds:\n        ds = ds.map(len)\n    return"),
     BEHIND_THE_BATCH, "might process the dataset further"),
    Script("a helper goes on under a condition: a call into it",
     FINISHED.replace("return ds.batch(2).map(len)", "ds = ds.batch(2)\n    if not ds:\n        ds = ds.map(len)\n"
     "    return ds"), (Move("map#1", "batch"), Move("map#0", "batch")), "what the function does with the dataset"),
    Script("a move past a condition that the dataset does not pass", MIXED.replace(
     "    if training:\n        ds = ds.shuffle(100)", "    if training:\n        print(n)\n    ds = ds.take(5)"),
     BEHIND_THE_BATCH, ("    return ds.batch(8).map(abs)",)),
    Script("a call behind the second of two ways, under a condition",
     MAPPED.replace("return ds.batch(8)", "ds = ds.batch(4) if n > 9 else ds.batch(8)\n    return ds"), CACHED,
     ("        ds = ds.batch(4) if n > 9 else ds.batch(8).cache()",)),
    Script("a dataclass of another size, later", "import dataclasses\n@dataclasses.dataclass\nclass Data:\n"
     "    n: int\n    def __post_init__(self):\n        self.ds = range(self.n).map(abs)\ntrain(Data(9).ds)\n"
     "def test():\n    return Data(5).ds\n", CACHED_MAP, "is also referenced at"),
    Script("an object that is iterated, later", "class Data:\n    def __init__(self, n):\n        self.n = n\n"
     "    def __iter__(self):\n        train(range(self.n).map(abs))\n        return iter(())\nlist(Data(9))\n"
     "def test():\n    return list(Data(5))\n", CACHED_MAP, "is also referenced at"),
    Script("a lambda with a name, which is called again, later",
     "make = lambda n: range(n).map(abs).batch(2)\ntrain(make(9))\ndef test(): return make(5)\n",
     CACHED_MAP, "is also referenced at"),
    Script("a lambda with a name, which is called once",
     "make = lambda n: range(n).map(abs).batch(2)\ntrain(make(9))\n",
     CACHED_MAP, ("make = lambda n: range(n).map(abs).cache().batch(2)",)),
    Script("a method of another object, later", OBJECTS, CACHED_MAP,
     ("    def build(self, rule=False):", "train(Data(9).build(rule=True))", "    return Data(5).build()")),
    Script("a method of the same object, later", ONE_OBJECT, CACHED_MAP,
     ("    def build(self):", "        ds = range(self.n).map(abs).cache()")),
    Script("a method of the same object, which reads by another method what a third one sets, later",
     ONE_OBJECT.replace("range(self.n)", "range(self.size())").replace("    def build", "    def size(self):\n"
     "        return self.n\n    def smaller(self):\n        self.n = 5\n    def build"),
     CACHED_MAP, ("    def build(self, rule=False):", "train(data.build(rule=True))")),
    Script("a method of an object that is copied, later", "import copy\n" + ONE_OBJECT.replace("    return data",
     "    return copy.copy(data)"), CACHED_MAP, ("    def build(self, rule=False):", "train(data.build(rule=True))")),
    Script("a method of an object that is copied and changed, later", "import copy\n" + ONE_OBJECT
     .replace("    return data", "    other = copy.copy(data)\n    other.n = 5\n    return other"), CACHED_MAP,
     ("    def build(self, rule=False):", "train(data.build(rule=True))", "    return other.build()")),
    Script("a function that reads a variable, which is set again, later", "n = 9\n" + READING.replace("def test",
     "n = 5\ndef test"), CACHED_MAP, OF_ONE_CALL),
    Script("a function that reads an item, which is set again, later", ("n = {0: 9}\n" + READING).replace(
     "range(n)", "range(n[0])").replace("def test", "n[0] = 5\ndef test"), CACHED_MAP, OF_ONE_CALL),
    Script("a function that reads what a loop sets", READING.replace("train(make())\n",
     "for n in (9, 5):\n    if n == 9: train(make())\n"), CACHED_MAP, ("def make(rule=False):",)),
    Script("a lambda in a list", "makers = [lambda n: range(n).map(abs).batch(2)]\ntrain(makers[0](9))\n"
     "def test(): return makers[0](5)\n", CACHED_MAP, "is also referenced at"),
    Script("a function that a dictionary gives", CHOOSING.replace("FUNCTION", "functions = {1: abs, 0: int}")
     .replace("(chosen)", "(functions.get(training))"), BEHIND_THE_BATCH, "one of several functions"),
    Script("a function that reads a variable, which another function sets, later",
     "n = 9\ndef choose():\n    global n\n    n = 5\n" + READING, CACHED_MAP, OF_ONE_CALL),
    Script("a function that reads a variable around it, which is set again, later", "def main():\n    n = 9\n"
     "    def make():\n        return range(n).map(abs).batch(2)\n    train(make())\n    n = 5\n    return make()\n"
     "main()\n", CACHED_MAP, ("    def make(rule=False):", "    train(make(rule=True))", "    return make()")),
    Script("a function within one that is called once", INPUT_FUNCTION.partition("def test")[0],
     CACHED_MAP, ("        return range(n).map(abs).cache().batch(2)",)),
    Script("a function that another one gets, and calls again, later", PASSED, CACHED_MAP, "is also referenced at"),
    Script("a function that another one gets, and calls once", PASSED.replace("make(5)", "4"),
     CACHED_MAP, ("    return range(n).map(abs).cache().batch(2)",)),
    Script("a function that an object keeps", "class Trainer:\n    def __init__(self, make):\n"
     "        self.make = make\n    def run(self):\n        train(self.make(9))\n        return lambda: self.make(5)\n"
     "def build(n):\n    return range(n).map(abs).batch(2)\nTrainer(build).run()\n", CACHED_MAP,
     "is also referenced at"),
    Script("a lambda that a function gets, and calls again, later",
     PASSED.replace("work(build)", "work(lambda n: range(n).map(abs).batch(2))"), CACHED_MAP, "is also referenced at"),
    Script("a lambda with a name and a type", "make: object = lambda n: range(n).map(abs).batch(2)\ntrain(make(9))\n"
     "def test(): return make(5)\n", CACHED_MAP, "is also referenced at"),
    Script("a function within one that is called again, later", INPUT_FUNCTION, CACHED_MAP, "is also referenced at"),
    Script("a map of a variable that has the name of a parameter above", "def later(mapped):\n"
     "    return mapped.batch(3)\n" + VARIABLE, BEHIND_THE_BATCH, ("ds = mapped.batch(2).map(abs)",)),
    Script("a map of a global variable of a function", "def build():\n    global mapped, ds\n"
     "    mapped = range(9).map(abs)\n    ds = mapped.batch(2)\nbuild()\ntrain(ds)\nprint(mapped)\n", BEHIND_THE_BATCH,
     "mapped is also read elsewhere"),
    Script("a map of a variable that a function within reads", "def main():\n    def later():\n"
     "        return mapped.batch(3)\n    mapped = range(9).map(abs)\n    ds = mapped.batch(2)\n    train(ds)\n"
     "main()\n", BEHIND_THE_BATCH, "mapped is also read elsewhere"),
    Script("a map of a variable of a class", "class Data:\n    mapped = range(9).map(abs)\n    ds = mapped.batch(2)\n"
     "train(Data.ds)\nprint(Data.mapped)\n", BEHIND_THE_BATCH, "mapped is also read elsewhere"),
    Script("a cache behind a helper that may return none", BOTH.replace("    return range(n)", "    if n < 3:\n"
     "        return None\n    return range(n)"), CACHED,
     ("def make(n, rule=False):", "train(make(9, rule=True))")),
    Script("flags: what both pass keeps its order and goes faster", FLAGS, (SetArgument("map#0", PARALLEL, 4),),
     ("    ds = ds.map(abs, num_parallel_calls=4)",), both=True),
    Script("shuffled and repeated in one chain", IN_ONE_CHAIN, CACHED_BEFORE, CACHED_THERE),
    Script("shuffled and repeated in one chain, too long for the line of another", ON_LONG_LINES, CACHED_BEFORE,
     ("    ds = ds.map(abs, num_parallel_calls=2).cache()",
      "    ds = ds.shuffle(buffer_size=1000, reshuffle_each_iteration=True)", "    ds = ds.repeat()")),
    Script("shuffled under a condition, with a comment above it",
     IN_ONE_CHAIN.replace("    if training", "    # paths only\n    # (cheap)\n    if training"), CACHED_BEFORE,
     ("        # paths only", "        # (cheap)", "        ds = ds.cache().shuffle(100)")),
    Script("a function that is called with another literal where nothing ran",
     IN_ONE_CHAIN + "def test(): return make(3, training=False)\n", CACHED_BEFORE, CACHED_THERE),
    Script("a function that is called with another literal where nothing ran: the other branch",
     IN_ONE_CHAIN.replace("if training:", "if not training:\n        ds = ds.take(7)\n    else:")
     + "def test(): return make(3, training=False)\n", (SetArgument("shuffle", "seed", 5),),
     ("        ds = ds.shuffle(100, seed=5).repeat()",)),
    Script("a function that is called with the same literal where nothing ran",
     IN_ONE_CHAIN + "def test(): return make(3, True)\n", CACHED_BEFORE, ("def make(n, training, rule=False):",)),
    Script("a function that is called with who knows what where nothing ran",
     IN_ONE_CHAIN + "def test(on): return make(3, on)\n", CACHED_BEFORE, ("def make(n, training, rule=False):",)),
    Script("shuffled and repeated under a condition in parentheses",
     REPEATED.replace("if training:", "if (training and\n            n > 7):"), CACHED_BEFORE,
     (*CACHED_THERE[:1], "    if (training and", "            n > 7):", *CACHED_THERE[2:])),
    Script("shuffled and repeated on the line of the condition", on_its_line(IN_ONE_CHAIN), CACHED_BEFORE,
     CACHED_THERE),
    Script("shuffled and repeated by a conditional expression in parentheses", CHOSEN.replace("= ds.sh", "= ((ds.sh")
     .replace("() if", "()) if").replace("else ds", "else ds)"), CACHED_BEFORE, CACHED_THERE),
    Script("shuffled and repeated, or cut, by a conditional expression", CHOSEN.replace("else ds", "else ds.take(3)"),
     CACHED_BEFORE, "single name"),
    Script("shuffled or cut on the lines of one condition", on_its_line(IN_ONE_CHAIN).replace("    ds = ds.map",
     "    else: ds = ds.take(3)\n    ds = ds.map"), CACHED_BEFORE, "different blocks"),
    Script("shuffled and repeated in a chain over several lines", IN_ONE_CHAIN.replace(").repeat", ")\\\n  .repeat"),
     CACHED_BEFORE, "on further lines"),
    Script("shuffled under one condition and repeated under another",
     REPEATED.replace("        ds = ds.repeat", "    if n > 7:\n        ds = ds.repeat"), CACHED_BEFORE,
     ("    ds = ds.map(abs)", "        ds = ds.cache().shuffle(100)", "    if n > 7:")),
    Script("shuffled and repeated under a condition that gets a key",
     REPEATED.replace("training:", '{}.get("on", training):'), CACHED_BEFORE,
     (*CACHED_THERE[:1], '    if {}.get("on", training):', *CACHED_THERE[2:])),
    Script("shuffled and repeated under a condition that a builtin computes",
     REPEATED.replace("training:", "bool(training):"), CACHED_BEFORE,
     (*CACHED_THERE[:1], "    if bool(training):", *CACHED_THERE[2:])),
    *(Script("shuffled and repeated under a condition on what another statement may change",
       REPEATED.replace("if training:", f"flags = {{}}\n    if {test}:")
       .replace("    ds = ds.map", "    flags.update(on=1)\n    ds = ds.map"), CACHED_BEFORE,
       "depend on statements in between")
      for test in ('flags.get("on", training)', '"on" in flags or training', "(flags or [training])[0]")),
    Script("shuffled and repeated under a condition that calls a function",
     REPEATED.replace("training:", "any([n]):"), CACHED_BEFORE, "runs a function or assigns"),
    Script("shuffled and repeated under a condition that assigns", REPEATED.replace("training:", "(k := n):"),
     CACHED_BEFORE, "runs a function or assigns"),
    Script("shuffled under a condition, then kept in a dictionary", KEPT, CACHED_BEFORE[1:],
     ("            ds = ds.map(abs)", "                ds = ds.cache().shuffle(self.sizes[split])",
     "            self.built[split] = ds.batch(2)")),
    Script("shuffled under a condition that the next call assigns", KEPT.replace("(abs)", "(abs, (split := 1))"),
     CACHED_BEFORE[1:], "reassigned in between"),
    Script("flags: a cache behind what both pass, where only training goes on", FLAGS,
     (Insert("map#0", "cache", "c"),), ("        ds = ds.cache().shuffle(1000)",)),
    Script("flags: what only training shuffles is taken out", FLAGS, (Remove("shuffle"),),
     ("    if training:", "        pass")),
    Script("mapped under a condition with another way", TWO_WAYS, BEHIND_THE_BATCH,
     ("    ds = ds.batch(8)", "    if training:", "        ds = ds.map(abs)", "    return ds")),
    Script("made and mapped in one chain under a condition with another way",
     TWO_WAYS.replace("range(n)\n        ds = ds.map(abs)", "range(n).map(abs)"), BEHIND_THE_BATCH,
     ("        ds = tf.data.Dataset.range(n)", "    ds = ds.batch(8)", "    if training:", "        ds = ds.map(abs)")),
    Script("mapped under a condition that the other way changes",
     TWO_WAYS.replace("ds = range(n).", "training = 1\n        ds = range(n)."), BEHIND_THE_BATCH, "different blocks"),
    Script("mapped under a condition on what the other way may change",
     TWO_WAYS.replace("if training", "if [training][0]"), BEHIND_THE_BATCH, "different blocks"),
    Script("all that a condition with another way does",
     TWO_WAYS.replace("    if training:\n        ds = range(n)\n", "    ds = range(n)\n    if training:\n"),
     BEHIND_THE_BATCH, "different blocks"),
    Script("mapped under the second of three conditions", TWO_WAYS.replace("if training:", "if n < 3:\n"
     "        ds = range(n)\n    elif training:"), BEHIND_THE_BATCH, "different blocks"),
    Script("a condition that was not met is not", SKIPPED,
     BEHIND_THE_BATCH, ("    if not training:", "        return ds.batch(8).map(abs)", "    return ds.batch(8)")),
    Script("a condition with two ways",
     MIXED.replace("    return ds", "    else:\n        ds = ds.cache()\n    return ds"), BEHIND_THE_BATCH,
     ("    if not training:", "        ds = ds.map(abs)", "        return ds.batch(8).map(abs)")),
    Script("a condition under which something else is done as well", MIXED.replace("        ds = ds.shuffle(100)",
     "        ds = ds.shuffle(100)\n        validate(ds)"), BEHIND_THE_BATCH, "is shared by 2 datasets"),
    Script("a condition under which another name is set", MIXED.replace("        ds = ds.shuffle(100)",
     "        ds = ds.shuffle(100)\n        size = ds"), BEHIND_THE_BATCH, "is used between"),
    Script("a condition that asks a function", MIXED.replace("if training:", "if bool(training):"), BEHIND_THE_BATCH,
     "may depend on the call"),
    Script("a conditional expression: something behind it", CONDITIONAL, (Insert("repeat", "prefetch", "p",
     {"buffer_size": 1}),), ("    ds = ds.repeat().prefetch(1) if training else ds.cache()",)),
    Script("a conditional expression: moved out of it", CONDITIONAL, (Move("shuffle", "repeat"),),
     "through a single name"),
    Script("a helper that goes on behind the batch: two calls into it", FINISHED, (Move("map#1", "batch"), Move("map#0",
     "batch")), ("    return ds.batch(2).map(abs).map(int).map(len)", "ds = range(9)")),
    Script("a helper that ends with the batch: in front of what is inserted there", FINISHED.replace(".map(len)", ""),
     (PREFETCH, Move("map#1", "batch")),
     ("    return ds.batch(2).map(int).prefetch(tf.data.AUTOTUNE)", "ds = range(9).map(abs)")),
    Script("a helper for both: a call out of it", PREPARED, BEHIND_THE_BATCH,
     ("    if not rule:", "train(prepare(range(9), rule=True).batch(2).map(abs))")),
    Script("apply(function): into it", APPLIED, (Move("shuffle", "map"),),
     ("    ds = ds.map(abs).shuffle(9)", "train(range(9).apply(finish))")),
    Script("apply(function) for both: the data of both", APPLIED_TWICE, BEHIND_THE_BATCH, "is shared by 2 datasets"),
    Script("a function that makes the function to apply", FACTORY, (PREFETCH, SetArgument("map", PARALLEL, 2)),
     ("    return lambda ds: ds.batch(size).prefetch(tf.data.AUTOTUNE)",)),
    Script("methods that keep the dataset in self: a call behind the next", METHODS, BEHIND_THE_BATCH,
     ("        self.dataset = self.dataset.batch(4)", "        self.dataset = self.dataset.map(self.decode)")),
    Script("methods that keep the dataset in self: past one that may read it", SIZED, BEHIND_THE_BATCH,
     "assign its dataset to a single name"),
    Script("methods that keep the dataset in self: past another statement", COUNTED, BEHIND_THE_BATCH,
     "assign its dataset to a single name"),
    Script("ops added in a loop: one of them", LOOPED, (SetArgument("map#0", PARALLEL, 2),),
     "makes 3 operators of this pipeline"),
]  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.name for script in SCRIPTS])
def test_script_is_patched_or_refused_as_expected(tmp_path, script):
    path, recorder = recorded(tmp_path, spelled_out(HEAD + script.text))
    pipeline = recorder.pipeline()
    others = [recorder.pipeline("validate")] if "validate" in recorder.consumed else []
    edits = [resolved(pipeline, edit) for edit in script.edits]
    emission = emit(pipeline, plan(*edits), other_pipelines=others)
    if isinstance(script.wanted, str):
        (rejection,) = emission.not_covered
        assert script.wanted in rejection.why and emission.files == {}
        return
    assert emission.not_covered == ()
    new = emission.files[str(path)][1]
    for line in script.wanted:
        assert spelled_out(line) in new.splitlines(), new
    patched = record(path, new)
    assert shape(patched.pipeline()) == shape(apply_edits(pipeline, edits))
    for other in others:
        assert (shape(patched.pipeline("validate")) != shape(other)) is script.both


@pytest.mark.parametrize(
    ("other", "reads"),
    [("from sample import mapped\nprint(mapped)\n", True), ("import sample\nprint(sample.mapped)\n", True),
     ("from sample import ds\nmapped = ds\nprint(mapped)\n", False)],
)  # fmt: skip
def test_variable_that_another_module_reads_keeps_its_value(tmp_path, other, reads):
    (tmp_path / "other.py").write_text(other)
    _, recorder = recorded(tmp_path, spelled_out(HEAD + VARIABLE))
    pipeline = recorder.pipeline()
    emission = emit(pipeline, plan(*(resolved(pipeline, edit) for edit in BEHIND_THE_BATCH)))
    assert bool(emission.files) is not reads


@pytest.mark.parametrize(("other", "used"), [
    ("import sample\nsample.make = lambda n: n\nsample.make(3)\n", True),
    ("import sample\nsample.make = lambda n: n\n", False),
    ("import sample\nsample.make.calls = 3\n", True),
])  # fmt: skip
def test_function_that_another_module_only_replaces_is_changed_itself(tmp_path, other, used):
    (tmp_path / "other.py").write_text(other)
    _, recorder = recorded(tmp_path, spelled_out(HEAD + BOTH.replace("validate(make(5))\n", "")))
    pipeline = recorder.pipeline()
    emission = emit(pipeline, plan(*(resolved(pipeline, edit) for edit in BEHIND_THE_BATCH)))
    ((_, new),) = emission.files.values()
    assert ("rule=True" in new) is used


def test_shared_function_is_changed_for_both_datasets_where_allowed(tmp_path):
    _, recorder = recorded(tmp_path, spelled_out(HEAD + BOTH))
    train, validate = recorder.pipeline(), recorder.pipeline("validate")
    on_batches = plan(Move("n1", "n2"), ReplaceFunction("n1", FunctionVariant.ON_BATCHES, "d"))
    asked = []

    def may_share(one):
        asked.append(one.key)
        return True

    emission = emit(train, on_batches, other_pipelines=[validate], may_share=may_share)
    ((_, new),) = emission.files.values()
    assert "    return tf.data.Dataset.range(n).batch(2).map(abs)\n" in new and asked == [on_batches.rewrites[0].key]
    assert "makes 2 datasets (validate too)" in emission.notes[0]
    for_one = emit(train, on_batches, other_pipelines=[validate], may_share=lambda _: False)
    ((_, new),) = for_one.files.values()
    assert "train(make(9, rule=True))\nvalidate(make(5))\n" in new and "the new parameter rule" in for_one.notes[0]


def test_second_reader_of_the_data_of_another_call_changes_nothing(tmp_path):
    _, recorder = recorded(tmp_path, spelled_out(HEAD + BOTH))
    train, validate = recorder.pipeline(), recorder.pipeline("validate")
    on_batches = plan(Move("n1", "n2"), ReplaceFunction("n1", FunctionVariant.ON_BATCHES, "d"))
    files = [
        emit(train, on_batches, other_pipelines=others).files
        for others in ([validate], [validate, replace(validate, name="preview")])
    ]
    assert files[0] == files[1] != {}


@pytest.mark.parametrize(("seen", "same"), [("ds.take(1)", True), ("every.take(1)", False), ("every.skip(7)", False)])
def test_preview_of_all_that_is_trained_on_reads_the_same_datasets(tmp_path, seen, same):
    text = f"every = range(9).map(abs)\nds = every.take(7).batch(2)\nvalidate({seen})\ntrain(ds)\n"
    _, recorder = recorded(tmp_path, spelled_out(HEAD + text))
    pipelines = recorder.pipeline(), recorder.pipeline("validate")
    assert reads_same_datasets(*pipelines) is same
    for several, still in ((("range", "map"), same), (("range", "map", "take", "batch"), False)):
        # As of a library call that makes training and validation at once: what follows for one of them tells which.
        one, two = (
            replace(each, nodes=tuple(replace(node, shared=2) if node.op in several else node for node in each))
            for each in pipelines
        )
        assert reads_same_datasets(one, two) is still


def test_may_share_is_not_called_where_it_makes_no_difference(tmp_path):
    _, recorder = recorded(tmp_path, spelled_out(HEAD + FLAGS))
    train, validate = recorder.pipeline(), recorder.pipeline("validate")

    def never(rewrite):
        raise AssertionError(rewrite.key)

    for edit in (Insert("n1", "cache", "c"), SetArgument("n1", PARALLEL, 4), Move("n2", "n0")):
        emit(train, plan(edit), other_pipelines=[validate], may_share=never)


@pytest.mark.parametrize("first", ["training or big", "not training and big", "(training\n            and big)"])
def test_other_branches_are_unchanged_where_the_condition_was_false(tmp_path, first):
    call = "train(prepare(9, {}, {}, {}))\n"
    text = spelled_out(
        HEAD
        + f"""def prepare(n, training, big, hard):
    ds = range(n)
    ds = ds.map(abs)
    if {first}:
        ds = ds.shuffle(100)
    if hard:
        ds = ds.cache()
    return ds.batch(8)
"""
    )
    path, recorder = recorded(tmp_path, text + call.format(False, False, False))
    pipeline = recorder.pipeline()
    emission = emit(pipeline, plan(*(resolved(pipeline, edit) for edit in BEHIND_THE_BATCH)))
    new = emission.files[str(path)][1].rpartition("train(")[0]
    for flags in itertools.product((False, True), repeat=3):
        before, after = (shape(record(path, one + call.format(*flags)).pipeline()) for one in (text, new))
        way = {"training": flags[0], "big": flags[1]}
        assert (before != after) is not (flags[2] or eval(first, {}, way)), flags


READER = """import tensorflow as tf
class Reader:
    def __init__(self, n):
        self.n = n
    def make(self):
        ds = tf.data.Dataset.range(self.n)
        ds = ds.map(abs)
        return ds.batch(2)
"""


def read_twice(folder: Path, reader: str, call: str) -> tuple[Path, Pipeline, Pipeline]:
    """A script that trains and validates on what a class in another file reads: its path, and its pipelines."""
    (folder / "lib").mkdir()
    (folder / "lib" / "reader_for_a_test.py").write_text(reader)
    text = (
        f"{HEAD}import sys\nsys.path.insert(0, {str(folder / 'lib')!r})\nfrom reader_for_a_test import Reader\n"
        f"sys.path.pop(0)\nsys.modules.pop(Reader.__module__)\n"
        f"reader = Reader(9)\ntrain({call})\nvalidate({call.replace('9', '5').replace('False', 'True')})\n"
    )
    path, recorder = recorded(folder, text)
    return path, recorder.pipeline(), recorder.pipeline("validate")


@pytest.mark.parametrize(("call", "other", "why"), [
    ("Reader(9).make()", "", ""),
    ("reader.make()", "", ""),
    ("tf.data.Dataset.range(9).apply(reader.apply)", "", "called directly by its name"),
    ("Reader(9).make()", "class Another:\n    def make(self): return 1\n", "Several functions or methods are named"),
])  # fmt: skip
def test_method_of_a_class_in_another_file_gets_a_parameter(tmp_path, call: str, other: str, why: str) -> None:
    method = READER
    if "apply" in call:
        method = READER.replace("make(self)", "apply(self, ds)").replace("tf.data.Dataset.range(self.n)", "ds.batch(3)")
    (tmp_path / "other.py").write_text(other)
    path, pipeline, validation = read_twice(tmp_path, method, call)
    edits = resolved(pipeline, Insert("map", "cache", "c"))
    emission = emit(pipeline, plan(edits), other_pipelines=[validation])
    if why:
        assert why in emission.not_covered[0].why
        return
    assert not emission.not_covered
    assert f"train({call[:-1]}rule=True))" in emission.files[str(path)][1]
    new = emission.files[str(tmp_path / "lib" / "reader_for_a_test.py")][1]
    assert "    def make(self, rule=False):\n" in new and "ds = ds.cache()" in new


def test_cache_behind_a_method_of_another_file_that_is_told_not_to_draw(tmp_path) -> None:
    told = READER.replace("make(self)", "make(self, flip)").replace(
        "        return ds.batch(2)",
        "        if flip:\n            ds = ds.map(len)\n        ds = ds.batch(2)\n        return ds",
    )
    path, pipeline, validation = read_twice(tmp_path, told, "reader.make(False)")
    emission = emit(pipeline, plan(resolved(pipeline, Insert("batch", "cache", "c"))), other_pipelines=[validation])
    assert list(emission.files) == [str(path)] and "train(reader.make(False).cache())" in emission.files[str(path)][1]


@pytest.mark.parametrize("folder", ["", "src"])
def test_modules_are_found_beside_the_script_and_where_projects_keep_what_they_install(tmp_path, folder):
    module = tmp_path / folder / "package" / "data.py"
    module.parent.mkdir(parents=True)
    module.write_text("def make(n): return n\n")
    (tmp_path / "train.py").write_text("from package import data\ndata.make(3)\n")
    pipeline = recorded(tmp_path, spelled_out(f"{HEAD}ds = range(9)\ntrain(ds)\n"))[1].pipeline()
    draft = open_draft(pipeline, read_source)
    (attribute,) = draft.tree(str(tmp_path / "train.py")).nodes(cst.Attribute)
    assert not is_library_attribute(draft, str(tmp_path / "train.py"), attribute)
