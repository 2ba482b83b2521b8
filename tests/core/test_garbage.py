"""Shortened garbage collections: existing objects are frozen, and unfrozen afterwards."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

HELD = """
    import gc, weakref
    from pipetune.core.garbage import shortened_collections

    class Held:
        def __init__(self):
            self.itself = self  # a cycle, which only the collector frees
"""


def run(text: str) -> None:
    """Runs a script in its own process: freezing affects all objects of a process."""
    script = textwrap.dedent(HELD) + textwrap.dedent(text)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


WITHIN = """
    before = Held()
    earlier = weakref.ref(before)
    with shortened_collections():
        del before
        later = weakref.ref(Held())
        gc.collect()
        assert later() is None and earlier() is not None
    gc.collect()
    assert earlier() is None
"""
"""New objects are collected; objects from before are kept until the end."""

RAISES = """
    try:
        with shortened_collections():
            raise ValueError("within")
    except ValueError:
        pass
    assert gc.get_freeze_count() == 0
"""
"""Nothing stays frozen after an error."""

FROZEN = """
    gc.freeze()
    count = gc.get_freeze_count()
    later = Held()
    with shortened_collections():
        assert gc.get_freeze_count() == count
        gone = weakref.ref(later)
        del later
        gc.collect()
        assert gone() is None
    assert gc.get_freeze_count() == count
"""
"""Objects that the script froze stay frozen, and no others."""


@pytest.mark.parametrize("text", [WITHIN, RAISES, FROZEN], ids=["within", "raises", "frozen"])
def test_shortened_collections_restore_state_of_collector(text: str) -> None:
    run(text)
