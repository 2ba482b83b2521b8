"""Collections that leave what is alive alone, and put that back."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from pipetune.core.garbage import short_collections


class Held:
    """Something in a cycle, which only the collector frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_is_made_within_is_collected_and_what_was_there_is_left() -> None:
    before = Held()
    earlier = weakref.ref(before)
    with short_collections():
        del before
        later = weakref.ref(Held())
        gc.collect()
        assert later() is None and earlier() is not None
    gc.collect()
    assert earlier() is None


def test_an_error_within_leaves_nothing_behind() -> None:
    with pytest.raises(ValueError, match="within"), short_collections():
        raise ValueError("within")
    assert gc.get_freeze_count() == 0


def test_what_the_script_froze_stays_frozen_and_no_more() -> None:
    gc.freeze()
    count = gc.get_freeze_count()
    later = Held()
    with short_collections():
        assert gc.get_freeze_count() == count
        gone = weakref.ref(later)
        del later
        gc.collect()
        assert gone() is None
    assert gc.get_freeze_count() == count
