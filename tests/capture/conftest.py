"""What several tests of the capture share."""

from __future__ import annotations

import pytest


@pytest.fixture
def any_loop_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are taken for training at once, though they change no variables."""
    from pipetune.capture.consumption import TrainingSigns

    monkeypatch.setattr(TrainingSigns, "waited_enough", lambda self, elements: True)
