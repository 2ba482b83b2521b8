"""What `pipetune size` prints: golden text of real-looking sessions, every sentence of a limit, hostile names."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.session import Session
from pipetune.core.sizing import Origin, QuantityRange, TrainingJob
from pipetune.core.storage import FileUse
from pipetune.model.sizing import compute_sizing
from pipetune.report.places import places_of
from pipetune.report.sizing import bits, print_sizing, span, speed, whole_replicas
from pipetune.report.words import plain, rate, seconds
from tests.report import sessions
from tests.report.reading import with_main

GIVEN = dict.fromkeys(("replicas", "per_host", "step_seconds"), Origin.GIVEN)
JOB = TrainingJob(64, 8, 0.05, batch_examples=32.0, host_cores=2.0, worker_cores=2.0, bases=GIVEN)


def printed(session: Session, **asked: Any) -> str:
    result, machine = session.datasets[0], session.machine
    assert machine is not None
    stream = io.StringIO()
    sizing = compute_sizing(result, machine, replace(JOB, **asked))
    print_sizing(sizing, result, places_of(session), stream=stream)
    return stream.getvalue()


ALL_KNOWN = {"storage_bytes_per_second": 1e9, "network_bytes_per_second": 1.25e9, "compression": 3.0}


def test_golden_text(golden: Callable[[str, str], None]) -> None:
    golden("sizing-short.txt", printed(sessions.photos()))
    known = with_main(sessions.photos(), "profile", files=FileUse(files=16, bytes_per_element=3.5e6))
    golden("sizing-enough.txt", printed(known, replicas=8, per_host=4, step_seconds=0.5, **ALL_KNOWN))
    golden("sizing-many-cores.txt", printed(known, host_cores=64.0, worker_cores=8.0, **ALL_KNOWN))


def test_every_line_fits() -> None:
    text = printed(sessions.photos(), replicas=100_000, step_seconds=1e-4, **ALL_KNOWN)
    assert all(len(line) <= 80 for line in text.splitlines())


def test_one_core_is_no_cores() -> None:
    known = with_main(sessions.photos(), "profile", files=FileUse(files=16, bytes_per_element=3.5e6))
    text = printed(known, host_cores=1.0, worker_cores=1.0, **ALL_KNOWN)
    assert "1 core feeds" in text and "delivers on 1 core " in text and "1 cores" not in text


def test_hostile_names_harm_nothing() -> None:
    text = printed(sessions.hostile())
    assert "\x1b" not in text and "\u202e" not in text


def test_a_confidential_session_shows_no_file() -> None:
    text = printed(sessions.confidential())
    assert "photo_input" not in text and "line 24" in text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (23.9, 23.9, "23 replicas"),
        (23.9, 25.1, "23 to 25 replicas"),
        (0.2, 0.9, "less than one replica"),
        (0.2, 1.1, "0 to 1 replica"),
        (1.0, 1.5, "1 replica"),
        (1e6, 1e6, "1,000,000 replicas"),
    ],
)
def test_whole_replicas(low: float, high: float, text: str) -> None:
    assert whole_replicas(QuantityRange(low, high, Origin.MEASURED)) == text


@pytest.mark.parametrize(
    ("low", "high", "form", "text"),
    [
        (62e-6, 67e-6, seconds, "62.0 to 67.0 us"),
        (900e-6, 1.1e-3, seconds, "900 us to 1.10 ms"),
        (5.0, 5.0, plain, "5"),
        (100.0, 200.0, rate, "100 to 200/s"),
        (1e9, 2e9, speed, "1.00 to 2.00 GB/s"),
        (5e8, 2e9, speed, "500 MB/s to 2.00 GB/s"),
        (1.25e9, 1.25e9, bits, "10.0 Gb/s"),
    ],
)
def test_ranges_say_their_unit_once(low: float, high: float, form: Callable[[float], str], text: str) -> None:
    assert span(QuantityRange(low, high, Origin.MEASURED), form) == text
