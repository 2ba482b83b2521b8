"""Elements are numbered at the source; the numbers reach the output, and the elements do not change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipetune.core.errors import CannotReplay

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.distributed.verify import numbering
from pipetune.distributed.verify.numbering import INSIDE_BITS, numbered
from pipetune.pipelines import live
from tests.distributed.numbered_files import lines

Data, Lines = tf.data.Dataset, tf.data.TextLineDataset


def pairs(dataset: Any) -> list[tuple[Any, Any]]:
    """(number, element); the number of an element of a file is (file, position)."""
    found = numbered(dataset)
    shown = []
    for number, element in found.dataset.as_numpy_iterator():
        place = (int(number) >> INSIDE_BITS, int(number) % 2**INSIDE_BITS) if found.inside else int(number)
        shown.append((place, element))
    return shown


def files(folder: Path) -> list[str]:
    """Lines "0".."2", "3".."5", "6".."8", and two that are equal."""
    (folder / "part3").write_text("7\n7\n")
    return [*lines(folder, 3, 3, 3), str(folder / "part3")]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: Data.range(5, 8), [(0, 5), (1, 6), (2, 7)]),
        (lambda: Data.from_tensor_slices([7, 7, 8]), [(0, 7), (1, 7), (2, 8)]),
        (lambda: Data.range(6).filter(lambda x: x % 2 == 1).map(lambda x: x * x), [(1, 1), (3, 9), (5, 25)]),
        (lambda: Data.range(9).shard(3, 1).skip(1).take(1), [(4, 4)]),
        (lambda: Data.range(2).repeat(2).prefetch(1).cache(), [(0, 0), (1, 1), (0, 0), (1, 1)]),
        (lambda: Data.range(9).take_while(lambda x: x < 2), [(0, 0), (1, 1)]),
        (lambda: Data.from_tensor_slices([2, 0, 1]).flat_map(lambda n: Data.range(tf.cast(n, tf.int64))),
         [((0, 0), 0), ((0, 1), 1), ((2, 0), 0)]),
    ],
)  # fmt: skip
def test_numbers_reach_the_output(made: Callable[[], Any], expected: list[Any]) -> None:
    dataset = made()
    assert pairs(dataset) == expected
    assert [element for _, element in expected] == list(dataset.as_numpy_iterator())


def test_numbers_reach_the_output_of_structured_elements() -> None:
    dataset = Data.from_tensor_slices({"x": [1, 2], "y": ([3, 4], [5, 6])}).map(lambda e: (e["y"], e["x"]))
    dataset = dataset.map(lambda y, x: {"sum": y[0] + y[1] + x, "x": x})
    assert pairs(dataset) == [(0, {"sum": 9, "x": 1}), (1, {"sum": 12, "x": 2})]


@pytest.mark.parametrize(
    "read",
    [
        lambda names: Lines(names),
        lambda names: Lines(names, num_parallel_reads=2),
        lambda names: Lines(Data.from_tensor_slices(names)),
        lambda names: Data.from_tensor_slices(names).interleave(Lines, cycle_length=2),
        lambda names: Data.from_tensor_slices(names).interleave(Lines, 3, block_length=2, num_parallel_calls=2),
        lambda names: Data.from_tensor_slices(names).shuffle(4, seed=3).flat_map(Lines),
    ],
)
def test_elements_of_files_are_numbered_by_file_and_position(tmp_path: Path, read: Any) -> None:
    names = files(tmp_path)
    dataset = read(names)
    found = pairs(dataset)
    assert [element for _, element in found] == list(dataset.as_numpy_iterator())
    wanted = {(file, place): str(3 * file + place).encode() for file in range(3) for place in range(3)}
    assert dict(found) == {**wanted, (3, 0): b"7", (3, 1): b"7"}
    assert dict(pairs(read(names[::-1]))) == dict(found), "a list in another order names the same files"


def test_numbered_seeded_shuffle_keeps_its_order_and_unseeded_its_elements() -> None:
    seeded = Data.range(50).shuffle(20, seed=5)
    assert [element for _, element in pairs(seeded)] == list(seeded.as_numpy_iterator())
    drawn = pairs(Data.range(50).shuffle(50))
    assert sorted(drawn) == [(number, number) for number in range(50)] and drawn != sorted(drawn)


@pytest.mark.parametrize(
    ("made", "who"),
    [
        (lambda: Data.range(6).batch(2), "batch"),
        (lambda: Data.zip((Data.range(3), Data.range(3))), "zip"),
        (lambda: Data.range(3).concatenate(Data.range(3)), "concatenate"),
        (lambda: Data.range(3).flat_map(lambda n: Data.range(n)).flat_map(lambda n: Data.range(n)), "more than once"),
    ],
)
def test_operator_that_loses_numbers_is_named(made: Callable[[], Any], who: str) -> None:
    with pytest.raises(CannotReplay, match=who):
        numbered(made())


@pytest.mark.parametrize(
    "made",
    [
        lambda: Data.from_tensor_slices((["a", "b", "a"], [1, 2, 1])),  # read in groups
        lambda: Data.from_tensor_slices([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]),
        lambda: Data.from_tensor_slices(["a", "b", "a"]).concatenate(Data.from_tensor_slices(["b"])),
    ],
)
def test_groups_have_the_fingerprints_of_their_elements(made: Callable[[], Any]) -> None:
    source = live.read(made())
    alone = list(numbering.fingerprints(source, source.pipeline).as_numpy_iterator())
    grouped, numbers, _ = numbering.numbered_groups(source, source.pipeline, 2)
    rows = np.concatenate(list(grouped.as_numpy_iterator()))
    assert rows[:, -1].tolist() == alone and len(set(alone)) == 2
    assert rows.shape[1] == 1 + numbers and (not numbers or rows[:, 0].tolist() == [0, 1, 2])
