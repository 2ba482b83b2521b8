"""`pipetune size`: what a larger job needs, from a session; missing figures are reported, not invented."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.cli.main import main
from pipetune.core.session import Session
from tests.cli.results import saved
from tests.core.sessions import MACHINE, session
from tests.report.sessions import photos


def without(*, costs: bool = False) -> Session:
    """A session without the costs of its first dataset, or without its training step."""
    first, *others = session().datasets
    assert first.profile is not None
    untimed = replace(first.profile, consumer=replace(first.profile.consumer, bound_seconds=None))
    return replace(session(), datasets=(replace(first, profile=None if costs else untimed), *others))


@pytest.mark.parametrize(
    ("value", "words", "says"),
    [
        (without(costs=True), ["--step-time", "5"], "no measured costs"),
        (without(costs=True), ["--step-time", "5", "--dataset", "train"], "--no-trials --dataset train"),
        (without(), [], "--step-time MS"),
        (session(), ["--dataset", "test"], "It has train, validation."),
        (replace(session(), machine=None), [], "on which"),
        (session(), ["--batch", "64"], "measured with 32 examples, not with 64"),
    ],
)
def test_missing_figure_is_requested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: Session, words: list[str], says: str
) -> None:
    assert main(["size", saved(tmp_path, value), "--replicas", "8", *words]) == 2
    assert says in capsys.readouterr().err


def test_figures_of_options_are_not_requested(tmp_path: Path) -> None:
    assert main(["size", saved(tmp_path, without()), "--replicas", "8", "--step-time", "5"]) == 0
    assert main(["size", saved(tmp_path, session()), "--replicas", "8", "--batch", "32"]) == 0


def figures(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(["size", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_json_has_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--replicas", "64", "--step-time", "5", "--per-host", "8", "--network", "10Gb/s", "--cores", "16"]
    found = figures(capsys, saved(tmp_path, photos()), *words)
    assert (found["hosts"], found["examples_per_second"]) == (8, pytest.approx(64 * 32 / 0.005))
    assert found["feeds_its_replicas"] is False
    job = found["job"]
    assert isinstance(job, dict)
    assert job["network_bytes_per_second"] == 1.25e9 and job["host_cores"] == 16
    assert job["bases"] == {
        "replicas": "given",
        "per_host": "given",
        "step_seconds": "given",
        "batch_examples": "measured",
        "host_cores": "given",
        "worker_cores": "measured",
    }
    written, tuned = found["feeds"]  # type: ignore[misc]
    assert (written["variant"], tuned["variant"]) == ("current", "tuned")
    assert tuned["cores"]["low"] <= tuned["cores"]["high"]
    assert found["stops_at"] is not None and found["missing"]


def test_accelerators_of_the_session_are_the_replicas_per_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = ("/device:CPU:0", "/device:GPU:0", "/device:GPU:1")
    there = replace(session(), machine=replace(MACHINE, device="gpu", devices=devices))
    found = figures(capsys, saved(tmp_path, there), "--replicas", "8")
    assert found["hosts"] == 4 and found["job"]["bases"]["per_host"] == "measured"  # type: ignore[index]
    alone = figures(capsys, saved(tmp_path, session()), "--replicas", "8")
    assert alone["hosts"] == 8 and alone["job"]["bases"]["per_host"] == "assumed"  # type: ignore[index]


def test_terminal_lists_missing_figures_and_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", saved(tmp_path, photos()), "--replicas", "64", "--step-time", "5"]) == 0
    printed = capsys.readouterr().out
    assert "64 replicas on 64 hosts, a training step of 5.00 ms" in printed
    assert "Storage: bytes read were not counted." in printed
    assert "cores busy with the input" in printed
    assert all(len(line) <= 80 for line in printed.splitlines())
