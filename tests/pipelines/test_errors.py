"""The first informative line of an error, without TensorFlow's stack and error count."""

from __future__ import annotations

import pytest

from pipetune.pipelines.errors import first_line


@pytest.mark.parametrize(("text", "line"), [
    ("too much", "too much"),
    ("Graph execution error:\n\nDetected at node Map\n  File \"a.py\"\ntoo much\n\t [[{{node Map}}]]", "too much"),
    ("Graph execution error:\n\n2 root error(s) found.\n  (0) INVALID_ARGUMENT:  too much\n  (1) x: y", "too much"),
    ("", "unknown"),
])  # fmt: skip
def test_first_line_of_an_error(text: str, line: str) -> None:
    assert first_line(ValueError(text)) == line and first_line(None) == "unknown"
