"""Pipelines from a grammar, with random structure and known costs, to check the predictions of the cost model.

A sentence consists of stages joined by `|`; a stage is an operator, a bare number (or AUTOTUNE) and `name=value`
words::

    files 4 each=500 bytes=20k | interleave cycle=2 | map work=200us random | shuffle 256 | batch 32

- sources: `range N`; `slices N bytes=4k` (an array in memory); `records F each=R bytes=B` (F TFRecord files of R
  records with B bytes, read one after another); `files F each=R bytes=B`, the names of such files, to be read by
  `interleave cycle=C` (block length 1).
- `map work=200us` computes for about that long in one thread, `map wait=2ms` waits and computes nothing; `out=64k`
  sets the bytes of its output, `random` makes its function draw random numbers. A bare number is its parallel calls.
- `filter keep=3` passes one of three elements, `flat_map copies=4` makes four of one; `shuffle`, `batch`, `prefetch`,
  `repeat` and `take` have their bare number, `cache` none.

Work is a chain of small kernels in pure TensorFlow: each too small to be split over threads, no Python.
"""

from __future__ import annotations

import functools
import math
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import known_costs
from pipetune.core.pipeline import AUTOTUNE

_LANES = 512  # floats per kernel of the work: far too few for a second thread
_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_MEMORY_BYTES, _FILE_BYTES, _CACHE_BYTES = 48e6, 16e6, 400e6  # limits of generated sources and of a cache
_EPOCH_SECONDS = 2.0  # approximate length of a generated pipeline's epoch in one thread
_FILL_SECONDS = 0.15  # limit for filling a cache in the first epoch: windows should measure later epochs


@dataclass(frozen=True)
class GrammarStage:
    """One operator of a sentence."""

    op: str
    number: int | None = None
    words: dict[str, float] = field(default_factory=dict)  # sizes in bytes, times in seconds, flags as 1

    @property
    def text(self) -> str:
        """The stage as written in a sentence."""
        number = [] if self.number is None else ["AUTOTUNE" if self.number == AUTOTUNE else str(self.number)]
        return " ".join([self.op, *number, *(_format_word(name, value) for name, value in self.words.items())])


def parse(sentence: str) -> tuple[GrammarStage, ...]:
    """Returns the stages of a sentence.

    Raises:
        ValueError: the value of a word is not a number with a known unit.
    """
    return tuple(_parsed(part.split()) for part in sentence.split("|"))


def build(sentence: str, folder: Path) -> Any:
    """Returns the dataset of a sentence; `records` and `files` write their files to `folder`.

    Raises:
        ValueError: the value of a word is malformed, or an operator is unknown.
    """
    dataset: Any = None
    for stage in parse(sentence):
        dataset = _built(dataset, stage, folder)
    return dataset


def sentences(count: int, seed: int) -> tuple[str, ...]:
    """Returns `count` random sentences, the same for the same seed."""
    return tuple(_sentence(random.Random(f"{seed}/{number}")) for number in range(count))


def _parsed(words: list[str]) -> GrammarStage:
    op, number, named = words[0], None, {}
    for word in words[1:]:
        name, equals, text = word.partition("=")
        if equals:
            named[name] = _scaled(text)
        elif name == "AUTOTUNE":
            number = AUTOTUNE
        elif name.isdigit():
            number = int(name)
        else:
            named[name] = 1.0
    return GrammarStage(op, number, named)


def _scaled(text: str) -> float:
    parts = re.fullmatch(r"([\d.]+)([a-zA-Z]*)", text)
    if parts is None or parts[2] not in _UNITS:
        raise ValueError(f"not a number with a unit of {sorted(_UNITS)}: {text!r}")
    return float(parts[1]) * _UNITS[parts[2]]


def _format_word(name: str, value: float) -> str:
    if name in ("work", "wait"):
        return f"{name}={value * 1e6:.0f}us"
    return name if name == "random" else f"{name}={value:.0f}"


def _built(dataset: Any, stage: GrammarStage, folder: Path) -> Any:
    number, word = stage.number, stage.words.get
    match stage.op:
        case "range":
            return tf.data.Dataset.range(number)
        case "slices":
            return tf.data.Dataset.from_tensor_slices(_array(number or 1, word("bytes", 4.0)))
        case "records":
            return tf.data.TFRecordDataset(_files(stage, folder))
        case "files":
            return tf.data.Dataset.from_tensor_slices(_files(stage, folder))
        case "interleave":
            cycle = int(word("cycle", 2))
            return dataset.interleave(
                tf.data.TFRecordDataset, cycle_length=cycle, block_length=1, num_parallel_calls=number
            )
        case "map":
            return dataset.map(
                map_function(
                    work_seconds=word("work", 0.0),
                    wait_seconds=word("wait", 0.0),
                    out_bytes=word("out", 0.0),
                    draws="random" in stage.words,
                ),
                num_parallel_calls=number,
            )
        case "filter":
            keep = int(word("keep", 2))
            return dataset.filter(lambda element: tf.cast(_floats(element)[0], tf.int64) % keep == 0)
        case "flat_map":
            copies = int(word("copies", 2))
            return dataset.flat_map(lambda element: tf.data.Dataset.from_tensors(element).repeat(copies))
        case "cache":
            return dataset.cache()
        case "shuffle" | "batch" | "prefetch" | "repeat" | "take":
            return getattr(dataset, stage.op)(*([] if number is None else [number]))
    raise ValueError(f"no operator of the grammar is called {stage.op!r}")


def _array(rows: int, size_bytes: float) -> Any:
    values = np.zeros((rows, max(1, int(size_bytes) // 4)), np.float32)
    values[:, 0] = np.arange(rows)
    return values


def _files(stage: GrammarStage, folder: Path) -> list[str]:
    """Writes TFRecord files of numbered float32 records, unless they exist; returns their paths."""
    count, each = stage.number or 1, int(stage.words.get("each", 100))
    size = max(1, int(stage.words.get("bytes", 400)) // 4)
    names = [str(folder / f"{each}-of-{4 * size}-{file}.tfrecord") for file in range(count)]
    for file, name in enumerate(names):
        if Path(name).exists():
            continue
        with tf.io.TFRecordWriter(name) as writer:
            record = np.zeros(size, np.float32)
            for number in range(each):
                record[0] = file * each + number
                writer.write(record.tobytes())
    return names


def map_function(
    *, work_seconds: float = 0.0, wait_seconds: float = 0.0, out_bytes: float = 0.0, draws: bool = False
) -> Callable[[Any], Any]:
    """Returns a map function of known cost in one thread, which outputs its element as a 1-D float32 tensor.

    Args:
        work_seconds: about how long it computes per call.
        wait_seconds: about how long it waits per call.
        out_bytes: size of its output, filled with the first value of the element; 0 keeps all values.
        draws: whether it draws a random number.
    """
    rounds = round(work_seconds / round_seconds()) if work_seconds > 0 else 0

    def work(element: Any) -> Any:
        values = _floats(element)
        extra = tf.constant(0.0)
        if draws:
            extra += tf.minimum(tf.random.uniform([]), 0.0)
        if rounds:
            extra += tf.minimum(tf.reduce_min(run_kernels(values[0], rounds)), 0.0)
        if wait_seconds > 0:
            extra += tf.minimum(_sleep(values[0], wait_seconds), 0.0)
        if out_bytes > 0:
            return tf.fill([max(1, int(out_bytes) // 4)], values[0] + extra)
        return values + extra

    return work


def _floats(element: Any) -> Any:
    if element.dtype == tf.string:
        return tf.io.decode_raw(element, tf.float32)
    values = tf.cast(element, tf.float32)
    return tf.reshape(values, [1]) if values.shape.rank == 0 else values


def run_kernels(start: Any, rounds: int) -> Any:
    """Runs small kernels one after another; the result is never negative, which the graph optimizer cannot know."""
    vector = tf.fill([_LANES], tf.minimum(start, 1.0))
    _, vector = tf.while_loop(
        lambda number, _: number < rounds,
        lambda number, values: (number + 1, tf.sin(values) + 1.0),
        [tf.constant(0), vector],
        parallel_iterations=1,
    )
    return vector


def _sleep(start: Any, seconds: float) -> Any:
    """Sleeps in a kernel: takes the single element of a dataset that delays it."""
    delayed = known_costs.with_sleep(tf.data.Dataset.from_tensors(start), round(seconds * 1e6))
    return tf.data.experimental.get_single_element(delayed)


@functools.cache
def round_seconds() -> float:
    """Returns the CPU seconds of one round of the work on this machine, without the cost of calling the function."""
    few, many = 20, 220

    def cpu_seconds(rounds: int) -> float:
        dataset = tf.data.Dataset.range(10**9).map(lambda x: run_kernels(tf.cast(x, tf.float32), rounds)[0])
        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False
        iterator = iter(dataset.with_options(options))
        next(iterator)
        best = math.inf
        for _ in range(5):
            started = time.process_time()
            for _ in range(20):
                next(iterator)
            best = min(best, (time.process_time() - started) / 20)
        return best

    return max(1e-7, (cpu_seconds(many) - cpu_seconds(few)) / (many - few))


# -- the generator


def _sentence(draw: random.Random) -> str:
    """Returns one sentence; its batch size and epoch length fit the cost of its work."""
    source = draw.choice(("range", "slices", "records", "files"))
    maps = [_map(draw) for _ in range(draw.choice((1, 2, 2, 3)))]
    if source in ("range", "slices") and draw.random() < 0.3:
        maps.append(GrammarStage("map", draw.choice((None, 4)), {"wait": draw.choice((1e-3, 3e-3))}))
        draw.shuffle(maps)
    stages = list(_with_cheap_operators(maps, draw))
    cost, rows = _cost(stages)
    batch = draw.choice((8, 16, 32, 64))
    while batch > 1 and batch * cost > 0.05:
        batch //= 2
    repeats = draw.choice(("", "", "before", "after"))
    if repeats == "before":
        stages.append(GrammarStage("repeat"))
    if batch > 1:
        stages.append(GrammarStage("batch", batch))
    if repeats == "after":
        stages.append(GrammarStage("repeat"))
    if draw.random() < 0.3:
        stages.append(GrammarStage("prefetch", draw.choice((1, 2, AUTOTUNE))))
    largest = max(stage.words.get("out", 4.0) for stage in stages)
    count = max(8 * batch, min(_EPOCH_SECONDS / cost, _CACHE_BYTES / largest)) / rows
    position = next((number for number, stage in enumerate(stages) if stage.op == "cache"), None)
    if position is not None:
        filling, filled = _cost(stages[:position])
        count = max(4 * batch / rows, min(count, _FILL_SECONDS / (filling * filled)))
    return " | ".join(stage.text for stage in (*_source(source, count, draw), *stages))


def _map(draw: random.Random) -> GrammarStage:
    microseconds = round(math.exp(draw.uniform(math.log(20), math.log(1500))))
    words = {"work": microseconds * 1e-6}
    if draw.random() < 0.5:
        words["out"] = 4e3 if microseconds < 100 else 64e3 if microseconds < 500 else 256e3
    if draw.random() < 0.4:
        words["random"] = 1.0
    return GrammarStage("map", draw.choice((None, None, None, 2, AUTOTUNE)), words)


def _with_cheap_operators(maps: list[GrammarStage], draw: random.Random) -> Iterator[GrammarStage]:
    """Yields the maps, and between them operators that do no work themselves."""
    cached = False
    for position, one in enumerate(maps):
        yield one
        last = position == len(maps) - 1
        if draw.random() < 0.15 and not last:
            yield GrammarStage("filter", None, {"keep": float(draw.choice((2, 3)))})
        if draw.random() < 0.12 and not last and one.words.get("out", 0.0) < 1e5:
            yield GrammarStage("flat_map", None, {"copies": float(draw.choice((2, 4)))})
        if draw.random() < 0.15 and not last and not cached:
            cached = True
            yield GrammarStage("cache")
        if draw.random() < 0.3:
            yield GrammarStage("shuffle", draw.choice((32, 128)))
        if draw.random() < 0.12 and not last:
            yield GrammarStage("prefetch", draw.choice((2, 8)))


def _cost(stages: list[GrammarStage]) -> tuple[float, float]:
    """Returns the thread seconds per output element in later epochs, and the output elements per source element."""
    seconds, rows = 0.0, 1.0
    for stage in stages:
        if stage.op == "cache":
            seconds = 0.0
        seconds += rows * (20e-6 + stage.words.get("work", 0.0) + stage.words.get("wait", 0.0))
        rows *= stage.words.get("copies", 1.0) / stage.words.get("keep", 1.0)
    return seconds / rows, rows


def _source(kind: str, count: float, draw: random.Random) -> tuple[GrammarStage, ...]:
    room = _MEMORY_BYTES if kind == "slices" else _FILE_BYTES
    size = float(draw.choice([size for size in (400, 4_000, 40_000) if size * count <= room] or [400]))
    if kind == "range":
        return (GrammarStage("range", round(count)),)
    if kind == "slices":
        return (GrammarStage("slices", max(64, round(min(count, _MEMORY_BYTES / size))), {"bytes": size}),)
    files = draw.choice((4, 8))
    each = float(max(16, round(min(count, _FILE_BYTES / size) / files)))
    stored = {"each": each, "bytes": size}
    if kind == "records":
        return (GrammarStage("records", files, stored),)
    return (
        GrammarStage("files", files, stored),
        GrammarStage("interleave", draw.choice((None, 2, AUTOTUNE)), {"cycle": float(draw.choice((2, 4)))}),
    )
