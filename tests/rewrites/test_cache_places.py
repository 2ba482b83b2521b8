"""Which cache places are tried: none that another beats in both time and bytes; and when a cache has paid off."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.edits import apply_edits
from pipetune.core.pipeline import Node
from pipetune.core.storage import FileUse, Sweep, SweepReader
from pipetune.model.memory import added_bytes
from pipetune.rewrites import cache_places
from pipetune.rewrites.cache import RULE
from pipetune.rewrites.cache_places import CachePosition, epochs_to_break_even, pareto_frontier, select_for_trial
from pipetune.rewrites.epoch_constancy import Constancy
from tests.rewrites.tables import with_profile
from tests.rules import context, proposals

_NUMBERS = st.one_of(st.integers(0, 6), st.floats(0, 1e6))


def _place(index: int, size: float, spared: float | None) -> CachePosition:
    return CachePosition(Node(f"n{index}", "map"), Constancy.SAME, 10, float(size), cpu_seconds_per_output=spared)


_PLACES = st.builds(
    lambda parts: [_place(index, size, spared) for index, (size, spared) in enumerate(parts)],
    st.lists(st.tuples(_NUMBERS, st.one_of(_NUMBERS, st.just(3.0))), max_size=9),
)


def _beats(one: CachePosition, other: CachePosition) -> bool:
    """Whether `one` saves at least as much and holds at most as much, and they are not equal in both."""
    assert one.saved_seconds_per_output is not None and other.saved_seconds_per_output is not None
    no_worse = one.saved_seconds_per_output >= other.saved_seconds_per_output and one.size_bytes <= other.size_bytes
    return no_worse and not _same(one, other)


def _same(one: CachePosition, other: CachePosition) -> bool:
    return (one.saved_seconds_per_output, one.size_bytes) == (other.saved_seconds_per_output, other.size_bytes)


@given(_PLACES)
def test_pareto_frontier_keeps_exactly_the_unbeaten_places(places: list[CachePosition]) -> None:
    kept = pareto_frontier(places)
    assert not any(_beats(other, place) for place in kept for other in places)
    assert all(any(_beats(one, place) or _same(one, place) for one in kept) for place in places)
    assert len({(place.saved_seconds_per_output, place.size_bytes) for place in kept}) == len(kept)
    savings = [place.saved_seconds_per_output or 0.0 for place in kept]
    assert savings == sorted(savings, reverse=True)
    for place in kept:  # of equal places the last, which leaves the least to run
        assert place is [other for other in places if _same(other, place)][-1]


@given(_PLACES, st.integers(1, 4))
def test_places_for_trial_are_few_and_differ_in_size(places: list[CachePosition], most: int) -> None:
    kept, chosen = pareto_frontier(places), select_for_trial(places, most=most)
    assert len(chosen) <= most and chosen[:1] == kept[:1]
    assert all(place in kept for place in chosen)
    sizes = sorted(place.size_bytes for place in chosen)
    assert all(less <= cache_places.MAX_SIZE_RATIO * more for less, more in itertools.pairwise(sizes))
    if len(chosen) > 1:  # the second saves most per byte among those that hold much less
        far = [one for one in kept[1:] if one.size_bytes <= cache_places.MAX_SIZE_RATIO * kept[0].size_bytes]
        assert chosen[1] is max(far, key=lambda one: (one.saved_seconds_per_output or 0.0) / max(one.size_bytes, 1.0))


def test_without_costs_the_later_place_counts_as_saving_more() -> None:
    places = [_place(0, 10, None), _place(1, 10, 5.0), _place(2, 30, 1.0)]
    assert [place.node.id for place in pareto_frontier(places)] == ["n2", "n1"]


@pytest.mark.parametrize("above", [
    "TFRecordDataset elements=10 bytes=1k",
    "TFRecordDataset elements=10 bytes=1k | filter",
    "TFRecordDataset elements=10 bytes=1k | shard 3 index=1",
    "TFRecordDataset elements=10 bytes=1k | skip 3 | filter | batch 2 | map bytes=5k",
    "TFRecordDataset elements=10 bytes=1k | map bytes=2k | batch 4",
    "TFRecordDataset elements=10 bytes=1k | map bytes=2k | ragged_batch 4 bytes=9k",
    "TFRecordDataset elements=10 bytes=1k | map bytes=2k | take 7",
])  # fmt: skip
def test_predicted_bytes_equal_those_checked_against_the_limit(above: str) -> None:
    described = context(f"{above} | map random | batch 2")
    assert described.profile is not None
    rewrites, _ = proposals(RULE, described)
    assert rewrites
    for rewrite in rewrites:
        edited = apply_edits(described.pipeline, rewrite.edits)
        assert added_bytes(described.pipeline, edited, described.profile) == pytest.approx(rewrite.predicted_bytes)


@given(st.floats(0, 10), st.floats(0.01, 10), st.booleans())
def test_break_even_is_the_first_epoch_that_is_ahead(each: float, saved: float, before: bool) -> None:
    place = replace(_place(0, each, saved), outputs_per_epoch=1.0)  # in files that are read at one byte per second
    found, once = epochs_to_break_even(_FILES, place, before_training=before), saved + each * before
    if found is None:
        assert saved <= each
        return
    ahead = [epochs * saved - once - epochs * each for epochs in (found - 1, found)]
    assert ahead[0] <= 1e-6 * max(1.0, once, found * saved) and ahead[1] >= -1e-6 * max(1.0, once, found * saved)


_ONE_BYTE_PER_SECOND = Sweep(SweepReader.FILES, (), ceiling=1.0)
_FILES = with_profile(context("range 9"), files=FileUse(sweeps=(_ONE_BYTE_PER_SECOND,)))


def test_cache_breaks_even_after_two_epochs() -> None:
    place = replace(_place(0, 10, 0.3), outputs_per_epoch=10.0)
    assert place.saved_seconds_per_epoch == pytest.approx(3.0) and not place.never_pays
    assert epochs_to_break_even(_FILES, replace(place, size_bytes=0.0), before_training=False) == 2
    assert replace(place, epochs=1.0).never_pays and not replace(place, epochs=1.5).never_pays
