"""Two replicas under MirroredStrategy: the data TensorFlow gives them, and what pipetune reads, checks and serves."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from tests.starting import output_of


@pytest.mark.mission("B9.under", "C5.fit")
def test_all_is_as_expected() -> None:
    found = json.loads(output_of("tests.capture.two_replicas", TF_USE_LEGACY_KERAS="1"))
    assert len(found) > 30
    assert {what: seen for what, seen, _ in found} == {what: expected for what, _, expected in found}
