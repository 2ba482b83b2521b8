"""Plumber's plans, compared with results computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.rivals.plumber import allocate, cache_place, plumber_edits
from pipetune.core.edits import apply_edits
from pipetune.core.storage import FileUse, Sweep, SweepReader
from pipetune.rewrites.rule import RuleContext
from tests.words import parse


def context(text: str, *, cores: int = 4, memory: float = 1e9) -> RuleContext:
    words = parse(text)
    return RuleContext(words.pipeline, words.profile, cores=cores, memory_limit_bytes=memory)


TWO_MAPS = "range elements=100 cpu=0us | map cpu=3ms | map cpu=1ms | batch 10 cpu=0us"


def test_cores_are_divided_by_work() -> None:
    found = allocate(context(TWO_MAPS))
    assert found.rate == pytest.approx(100)  # batches: 40 ms of work each, four cores
    assert found.cores == {"n1": pytest.approx(3), "n2": pytest.approx(1)}
    assert found.calls == {"n1": 3, "n2": 2}  # never fewer than two
    assert found.in_flight == pytest.approx(4)


def test_single_threaded_operator_bounds_the_rate() -> None:
    found = allocate(context("range cpu=0us | map cpu=4ms | shuffle 9 cpu=2ms | batch 1 cpu=0us", cores=16))
    assert found.rate == pytest.approx(500)
    assert found.calls == {"n1": 2} and found.cores["n2"] == pytest.approx(1)


def test_storage_bounds_the_rate() -> None:
    sweep = Sweep(SweepReader.FILES, (), ceiling=5e7)
    known = context(TWO_MAPS)
    assert known.profile is not None
    files = FileUse(bytes_per_element=1e6, sweeps=(sweep,))
    found = allocate(replace(known, profile=replace(known.profile, files=files)))
    assert found.rate == pytest.approx(50) and found.calls == {"n1": 2, "n2": 2}


PLACES: list[tuple[str, str | None]] = [
    ("range elements=100 | map bytes=1k | shuffle 9 bytes=1k | batch 10 bytes=10k", "n1"),  # above what differs
    ("range elements=100 | map bytes=1k | batch 10 bytes=10k", "n2"),  # as near the end as it goes
    ("range elements=100 | map bytes=1k | batch 10 bytes=10k | repeat", "n2"),
    ("range elements=100 | map bytes=1k | map random bytes=1k | batch 10 bytes=10k", "n1"),
    ("range elements=100 | map bytes=1k | map bytes=9k | batch 10 bytes=90k", "n1"),  # what is behind it is too large
    ("range elements=100 | map random bytes=1k | batch 10 bytes=10k", None),
    ("range elements=100 bytes=8 | batch 10 bytes=80", None),  # memory is a cache already
    ("range elements=100 | map bytes=9k | batch 10 bytes=90k", None),
    ("range | map bytes=1k | batch 10 bytes=10k", None),  # nobody knows how many
    ("range elements=100 | repeat | map bytes=1k", None),
    ("range elements=100 | map bytes=1k | cache | batch 10 bytes=10k", None),
    ("from_generator elements=100 | map bytes=1k | batch 10 bytes=10k", None),
]


@pytest.mark.parametrize(("text", "place"), PLACES)
def test_cache_is_as_near_the_end_as_allowed(text: str, place: str | None) -> None:
    found = cache_place(context(text, memory=200e3))
    assert (found and found.id) == place


def test_tenth_of_the_memory_stays_free() -> None:
    text = "range elements=100 | map bytes=1k"
    assert cache_place(context(text, memory=110e3)) is None
    assert cache_place(context(text, memory=112e3)) is not None


def test_operators_after_a_cache_get_all_cores() -> None:
    known = context("range elements=100 cpu=0us | map cpu=9ms bytes=1k | map random cpu=1ms | batch 1 cpu=0us")
    edited = apply_edits(known.pipeline, plumber_edits(known))
    assert [node.op for node in edited] == ["range", "map", "cache", "map", "batch", "prefetch"]
    assert [node.argument("num_parallel_calls") for node in edited if node.op == "map"] == [2, 4]
    assert edited.output.argument("buffer_size") == 4
    bare = apply_edits(known.pipeline, plumber_edits(known, cached=False))
    assert [node.argument("num_parallel_calls") for node in bare if node.op == "map"] == [4, 2]


def test_prefetch_follows_a_cache_at_the_end() -> None:
    known = context("range elements=100 | map bytes=1k")
    edited = apply_edits(known.pipeline, plumber_edits(known))
    assert [node.op for node in edited] == ["range", "map", "cache", "prefetch"]
