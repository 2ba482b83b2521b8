"""`pipetune size`: what a larger job needs, from a session; missing figures are reported, not invented."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.core.profile import ConsumerProfile
from pipetune.core.session import Session
from tests.cli.results import Shell, saved
from tests.core.sessions import MACHINE, session
from tests.report.reading import with_main
from tests.report.sessions import photos

TUNED = session()
UNCOSTED = with_main(TUNED, profile=None)
UNTIMED = with_main(TUNED, "profile", consumer=ConsumerProfile("keras-fit", 0.1, input_seconds=0.05))


@pytest.mark.parametrize(
    ("value", "words", "says"),
    [
        (UNCOSTED, "--step-time 5", "no measured costs"),
        (UNCOSTED, "--step-time 5 --dataset train", "--no-trials --dataset train"),
        (UNTIMED, "", "--step-time MS"),
        (TUNED, "--dataset test", "It has train, validation."),
        (replace(TUNED, machine=None), "", "on which"),
        (TUNED, "--batch 64", "measured with 32 examples, not with 64"),
    ],
)
def test_missing_figure_is_requested(tmp_path: Path, pipetune: Shell, value: Session, words: str, says: str) -> None:
    done = pipetune(f"size --replicas 8 {words}", saved(tmp_path, value))
    assert done.code == 2 and says in done.err


def test_figures_of_options_are_not_requested(tmp_path: Path, pipetune: Shell) -> None:
    assert pipetune("size --replicas 8 --step-time 5", saved(tmp_path, UNTIMED)).code == 0
    assert pipetune("size --replicas 8 --batch 32", saved(tmp_path, TUNED)).code == 0


@pytest.fixture
def figures(tmp_path: Path, pipetune: Shell) -> Callable[[Session, str], dict[str, Any]]:
    def found(value: Session, words: str) -> dict[str, Any]:
        done = pipetune(f"size --json {words}", saved(tmp_path, value))
        assert done.code == 0
        return dict(json.loads(done.out))

    return found


def test_json_has_every_figure(figures: Callable[[Session, str], dict[str, Any]]) -> None:
    found = figures(photos(), "--replicas 64 --step-time 5 --per-host 8 --network 10Gb/s --cores 16")
    assert (found["hosts"], found["examples_per_second"]) == (8, pytest.approx(64 * 32 / 0.005))
    assert found["feeds_its_replicas"] is False
    job = found["job"]
    assert job["network_bytes_per_second"] == 1.25e9 and job["host_cores"] == 16
    given = dict.fromkeys(("replicas", "per_host", "step_seconds", "host_cores"), "given")
    assert job["bases"] == {**given, "batch_examples": "measured", "worker_cores": "measured"}
    written, tuned = found["feeds"]
    assert (written["variant"], tuned["variant"]) == ("current", "tuned")
    assert tuned["cores"]["low"] <= tuned["cores"]["high"]
    assert found["stops_at"] is not None and found["missing"]


def test_accelerators_of_the_session_are_the_replicas_per_host(
    figures: Callable[[Session, str], dict[str, Any]],
) -> None:
    devices = ("/device:CPU:0", "/device:GPU:0", "/device:GPU:1")
    there = replace(TUNED, machine=replace(MACHINE, device="gpu", devices=devices))
    for value, hosts, basis in ((there, 4, "measured"), (TUNED, 8, "assumed")):
        found = figures(value, "--replicas 8")
        assert (found["hosts"], found["job"]["bases"]["per_host"]) == (hosts, basis)


def test_terminal_lists_missing_figures_and_continues(tmp_path: Path, pipetune: Shell) -> None:
    code, printed, _ = pipetune("size --replicas 64 --step-time 5", saved(tmp_path, photos()))
    assert code == 0
    assert "64 replicas on 64 hosts, a training step of 5.00 ms" in printed
    assert "Storage: bytes read were not counted." in printed
