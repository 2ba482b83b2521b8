"""Parameter servers: the functions a coordinator schedules, run on other datasets; the cluster is in one process."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from tests.starting import output_of


@pytest.mark.mission("C3.own", "C5.coordinator")
def test_all_is_as_expected() -> None:
    found = json.loads(output_of("tests.capture.coordinated"))
    assert len(found) > 40
    assert {what: seen for what, seen, _ in found} == {what: expected for what, _, expected in found}
