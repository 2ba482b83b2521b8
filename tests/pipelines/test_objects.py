"""Objects of some types are found among all that are alive, whatever types the script has made."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pipetune.pipelines.objects import inherits, live_instances


class Mine:
    pass


class Derived(Mine):
    pass


class Proxy:
    """A lazy proxy: what reads its class loads what it stands for."""

    @property
    def __class__(self) -> type:
        raise AssertionError("loaded")


class EqualTypes(type):
    def __eq__(cls, other: object) -> bool:
        return cls is other


@pytest.fixture
def collected() -> Iterator[None]:
    gc.collect()
    yield
    gc.freeze()  # as before: what earlier files left is collected with what is thawed, which may take a minute


@pytest.mark.usefixtures("collected", "all_objects_searched")
def test_instances_of_a_type_and_of_what_inherits_it_are_found_frozen_or_not() -> None:
    one, two = Mine(), Derived()
    unhashable = EqualTypes("Unhashable", (), {})()
    proxy = Proxy()
    for freeze in (lambda: None, gc.freeze):
        freeze()
        frozen = gc.get_freeze_count() > 0
        found = live_instances(lambda kind: inherits(kind, Mine, Proxy))
        assert {id(one), id(two), id(proxy)} == {id(each) for each in found} and (gc.get_freeze_count() > 0) is frozen
    assert live_instances(lambda kind: False) == []
    del unhashable
