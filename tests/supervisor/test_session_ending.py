"""The messages at the end of a session."""

from __future__ import annotations

import pytest

from pipetune.supervisor.session_ending import exception_line

FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    fit()\n'
QUOTED = 'Traceback (most recent call last):\n\n  File "ops.py", line 1, in call\n    f()\n\nValueError: inner\n'


@pytest.mark.parametrize(
    ("traceback", "line"),
    [
        (f"{FRAMES}ValueError: of the user\n", "ValueError: of the user"),
        (f"{FRAMES}OpError: broken [x]\n\t [[node Assert]] [Op:Next] name: \n", "OpError: broken [x]"),
        (f"{FRAMES}OpError: ValueError: inner\n{QUOTED}\n\t [[node]] name: \n", "OpError: ValueError: inner"),
        (f"{FRAMES}KeyError: 'a'\n\nDuring handling, another:\n\n{FRAMES}TypeError: b\n", "TypeError: b"),
        ("Traceback (most recent call last):\nValueError: no frame is left\n", "ValueError: no frame is left"),
        ("", ""),
    ],
)
def test_exception_line_of_traceback(traceback: str, line: str) -> None:
    assert exception_line(traceback) == line
