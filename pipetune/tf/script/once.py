"""Whether a call in progress is made only once in the whole script, as far as its stack and its bytecode show.

The script is stopped at its first `fit`, so later calls are not seen. `fit(epochs=1)` in a loop over epochs, a second
`fit`, or `evaluate` on the same data, reads the data again.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FrameType

from pipetune.tf.script import capture


def made_once(frame: FrameType, name: str, *, data: str) -> bool:
    """Whether the call of `name` in progress in `frame` is the only one that reads its data; False in doubt.

    True if all frames out to the module's belong to one file, none of them is inside a loop, the file names `name` and
    each function on the stack exactly once, and `frame` does not use the variable `data` after the call.
    """
    if data and any(loaded == data and offset > frame.f_lasti for loaded, offset in _loads(frame.f_code)):
        return False
    names, file = [name], frame.f_code.co_filename
    while not _in_a_loop(frame.f_code, frame.f_lasti):
        if frame.f_code.co_name == "<module>":
            return all(_times_loaded(frame.f_code, one) == 1 for one in names)
        names.append(frame.f_code.co_name)
        if frame.f_back is None or frame.f_back.f_code.co_filename != file or capture.is_library(file):
            return False
        frame = frame.f_back
    return False


def _in_a_loop(code: CodeType, offset: int) -> bool:
    """Whether `offset` is inside a loop: a backward jump crosses it."""
    jumps = {*dis.hasjrel, *dis.hasjabs}
    return any(step.opcode in jumps and step.argval <= offset < step.offset for step in dis.get_instructions(code))


def _loads(code: CodeType) -> Iterator[tuple[str, int]]:
    """Yields the names that `code` loads, with their bytecode offsets."""
    for step in dis.get_instructions(code):
        if step.opname.startswith("LOAD_"):
            values = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            yield from ((value, step.offset) for value in values if isinstance(value, str))


def _times_loaded(code: CodeType, name: str) -> int:
    """Returns how often `code`, with the functions and classes in it, loads something called `name`."""
    inner = sum(_times_loaded(one, name) for one in code.co_consts if isinstance(one, CodeType))
    return inner + sum(loaded == name for loaded, _ in _loads(code))
