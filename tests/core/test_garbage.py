"""Collections that leave what is alive alone, and put that back."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

HELD = """
    import gc, weakref
    from pipetune.core.garbage import short_collections

    class Held:
        def __init__(self):
            self.itself = self  # a cycle, which only the collector frees
"""


def run(text: str) -> None:
    """Runs a script in a process of its own: freezing concerns all that a process holds."""
    script = textwrap.dedent(HELD) + textwrap.dedent(text)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


WITHIN = """
    before = Held()
    earlier = weakref.ref(before)
    with short_collections():
        del before
        later = weakref.ref(Held())
        gc.collect()
        assert later() is None and earlier() is not None
    gc.collect()
    assert earlier() is None
"""
"""What is made within is collected, and what was there before is left until the end."""

RAISES = """
    try:
        with short_collections():
            raise ValueError("within")
    except ValueError:
        pass
    assert gc.get_freeze_count() == 0
"""
"""An error within leaves nothing behind."""

FROZEN = """
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
"""
"""What the script froze stays frozen, and nothing else is."""


@pytest.mark.parametrize("text", [WITHIN, RAISES, FROZEN], ids=["within", "raises", "frozen"])
def test_collections_are_short_and_leave_what_the_script_has_set(text: str) -> None:
    run(text)
