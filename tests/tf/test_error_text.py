"""One line of what an error says: TensorFlow's stack, and its count of errors, stand before it."""

from __future__ import annotations

import pytest

from pipetune.tf.error_text import first_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("too much", "too much"),
        ("Graph execution error:\n\nDetected at node Map\n  File \"a.py\"\ntoo much\n\t [[{{node Map}}]]", "too much"),
        ("Graph execution error:\n\n2 root error(s) found.\n  (0) INVALID_ARGUMENT:  too much\n  (1) x: y", "too much"),
        ("", "unknown"),
    ],
)  # fmt: skip
def test_what_it_says(text: str, line: str) -> None:
    assert first_line(ValueError(text)) == line
    assert first_line(None) == "unknown"
