"""Whether a call that is under way is made once in the whole script, as far as its frames and its source tell.

The script is stopped at its first `fit`: what would have come after it is not seen. `fit(epochs=1)` in a loop over
epochs, a second `fit`, or `evaluate` on the same data, reads the data again.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FrameType

from pipetune.tf.script import capture


def made_once(frame: FrameType, name: str, *, data: str) -> bool:
    """Whether the call of `name` at which `frame` stands is the only one that reads its data: in doubt it is not.

    It is where all frames down to the module's are of one file, none stands in a loop, that file names `name` and each
    function on the way once, and `frame` does not name the variable `data` any more.
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
    """Whether a jump back leads past `offset`."""
    jumps = {*dis.hasjrel, *dis.hasjabs}
    return any(step.opcode in jumps and step.argval <= offset < step.offset for step in dis.get_instructions(code))


def _loads(code: CodeType) -> Iterator[tuple[str, int]]:
    """What `code` loads by name, and where."""
    for step in dis.get_instructions(code):
        if step.opname.startswith("LOAD_"):
            values = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            yield from ((value, step.offset) for value in values if isinstance(value, str))


def _times_loaded(code: CodeType, name: str) -> int:
    """How often `code`, with the functions and classes in it, loads something called `name`."""
    inner = sum(_times_loaded(one, name) for one in code.co_consts if isinstance(one, CodeType))
    return inner + sum(loaded == name for loaded, _ in _loads(code))
