"""Whether a Python loop trains: what changes from one element to the next.

A loop that prints, previews, counts or evaluates takes elements like one that trains, but changes no weights. Read
without any change of the script: trainable variables of TensorFlow and Keras, calls of `torch.optim.Optimizer.step`,
and JAX arrays that an iteration of the loop reads and rebinds.
"""

from __future__ import annotations

import dis
import functools
import sys
import time
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from pipetune.pipelines import call_sites
from pipetune.timing.windows import readable_trainable_variables

FIRST_ELEMENTS = 20
"""Elements a loop must have taken before it is looked at; a loop that takes fewer is a preview. By judgement: one that
shows some examples shows fewer, and models are built within the first few steps."""

UNCERTAIN_ELEMENTS, UNCERTAIN_SECONDS = 200, 15.0
"""A loop that shows no sign is taken for training after so many elements and seconds, whichever is later: it may train
in a way that cannot be seen, such as on NumPy arrays."""

CHANGES_VARIABLES = "it changes trainable variables"

_MOST_VARIABLES, _MOST_VALUES = 200, 1_000_000  # read at a time, the smallest first: some ten milliseconds
_LONGEST_GAP = 64  # elements between two looks
_FRAMES = 5  # of the user's code, from the innermost: an iterator may be wrapped in generators


class TrainingSigns:
    """What a loop would change if it trained, as it was when the object was made.

    Args:
        frame: the innermost frame of the user's code in the loop.
    """

    def __init__(self, frame: FrameType | None) -> None:
        self._started = time.monotonic()
        optimizer = sys.modules.get("torch.optim.optimizer")
        register = getattr(optimizer, "register_optimizer_step_post_hook", None)  # PyTorch 2.0 and later
        self._torch_hook = register(self._add_torch_step) if register is not None else None
        self.renew(frame)

    def renew(self, frame: FrameType | None) -> None:
        """Counts from now on, not from when the object was made."""
        self._variables = [(variable, variable.numpy()) for variable in _smallest(readable_trainable_variables())]
        self._torch_steps = 0
        self._jax = dict(_jax_arrays(frame))
        self._gap = 1

    def describe(self, frame: FrameType | None) -> str:
        """Returns what shows that the loop trains; "" if nothing does so far."""
        for variable, value in self._variables:
            if variable.numpy().tobytes() != value.tobytes():  # a NaN equals nothing
                return CHANGES_VARIABLES
        if self._torch_steps:
            return "it calls torch.optim.Optimizer.step"
        for where, array in _jax_arrays(frame):
            if where in self._jax and array is not self._jax[where]:
                return f"it updates {where[1]}, which holds JAX arrays"
        return ""

    def waited_enough(self, elements: int) -> bool:
        return elements >= UNCERTAIN_ELEMENTS and time.monotonic() - self._started >= UNCERTAIN_SECONDS

    def next_look(self, elements: int) -> int:
        """Returns how many elements the loop shall have taken when it is looked at again: rarely after a while."""
        gap, self._gap = self._gap, min(2 * self._gap, _LONGEST_GAP)
        return elements + gap

    def close(self) -> None:
        """Frees what was copied, and ends counting."""
        self._variables, self._jax = [], {}
        if self._torch_hook is not None:
            self._torch_hook.remove()
            self._torch_hook = None

    def _add_torch_step(self, *_: object) -> None:
        self._torch_steps += 1


def _smallest(variables: list[Any]) -> list[Any]:
    chosen, values = [], 0
    for variable in sorted(variables, key=lambda one: one.shape.num_elements() or 0)[:_MOST_VARIABLES]:
        values += variable.shape.num_elements() or 0
        if values > _MOST_VALUES:
            break
        chosen.append(variable)
    return chosen


def _jax_arrays(frame: FrameType | None) -> Iterator[tuple[tuple[int, str], Any]]:
    """Yields the first JAX array with at least one axis in each variable that an iteration of a loop carries over.

    With each array, its place: the position of its frame, and the name of the variable. A running sum of numbers is
    none: it has no axis.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return
    position = 0
    while frame is not None and position < _FRAMES:
        for name in sorted(_loop_carried(frame.f_code, frame.f_lasti)):
            value = frame.f_locals.get(name, frame.f_globals.get(name))
            for leaf in jax.tree_util.tree_leaves(value):
                if isinstance(leaf, jax.Array) and leaf.ndim:
                    yield (position, name), leaf
                    break
        frame, _ = call_sites.user_frame(frame.f_back)
        position += 1


_LOADS = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")


@functools.lru_cache
def _loop_carried(code: CodeType, position: int) -> frozenset[str]:
    """Returns the names that the innermost loop around an instruction reads before it stores them, and stores.

    `position` is the byte offset of the instruction, as in `frame.f_lasti`.
    """
    instructions = list(dis.get_instructions(code))
    jumps = [one for one in instructions if one.opname.startswith("JUMP_BACKWARD")]
    loops = [(jump.argval, jump.offset) for jump in jumps if jump.argval <= position <= jump.offset]
    if not loops:
        return frozenset()
    start, end = min(loops, key=lambda loop: loop[1] - loop[0])
    body = [one for one in instructions if start <= one.offset <= end]
    after = [one for one in body if one.offset > position] + [one for one in body if one.offset <= position]
    read, stored = set[str](), set[str]()
    for instruction in after:  # from where the element arrives
        for kind, name in _accesses(instruction):
            if kind == "load" and name not in stored:
                read.add(name)
            elif kind == "store":
                stored.add(name)
    return frozenset(read & stored)


def _accesses(instruction: dis.Instruction) -> Iterator[tuple[str, str]]:
    """Yields ("load" or "store", name) for each variable an instruction accesses; some access two (Python 3.13)."""
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    if not instruction.opname.startswith((*_LOADS, *_STORES)):
        return
    kinds = [part.lower() for part in instruction.opname.split("_") if part in ("LOAD", "STORE")]
    for kind, name in zip(kinds, names, strict=False):
        if isinstance(name, str):
            yield kind, name
