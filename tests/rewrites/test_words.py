"""The small language in which tests write pipelines."""

from __future__ import annotations

import pytest

from tests.words import pipeline


@pytest.mark.parametrize(
    "words", ["range 3 | mop", "range 3 | filter nonsense", "range 3 | map bytes=many", "range 3 | map cpu=3h"]
)
def test_unknown_word_is_an_error(words: str) -> None:
    with pytest.raises(ValueError, match=r"mop|nonsense|many|3h"):
        pipeline(words)
