"""The summary: all documented keys with their values, null where nothing was measured; and redaction."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.distribution import OriginalSharding
from pipetune.core.edits import Consent
from pipetune.core.profile import Finding
from pipetune.core.session import Session
from pipetune.core.session_file import WITHHELD, redact, session_data
from pipetune.core.settings import Command, Settings
from pipetune.core.summary import summary
from tests.core.sessions import SCRIPT, session


def full() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(summary(session()), allow_nan=False))
    return found


def test_summary_has_documented_keys() -> None:
    data = full()
    assert list(data)[:5] == ["outcome", "training_at", "verdict", "input_wait", "datasets"]
    assert list(data)[5:10] == ["training", "warnings", "patch", "side_effects", "seconds"]
    assert set(data["datasets"][0]) == (
        {"name", "file", "line", "role", "rates", "input_speedup", "input_speedup_over_autotune", "predicted"}
        | {"rewrites", "candidate", "offered", "rejected", "equality", "order", "handover", "skew", "as_written"}
    )
    assert set(data["datasets"][0]["rates"]) == {"off", "defaults", "autotune", "tuned"}
    assert {"capture", "profile", "verdict", "trials", "confirmation", "total"} <= set(data["seconds"])


def test_summary_values() -> None:
    data = full()
    (dataset,) = data["datasets"]  # only those that are profiled
    assert data["verdict"] == "input-bound"
    assert data["input_wait"] == {"share": {"median": 0.3, "low": 0.25, "high": 0.35}, "ms_per_step": 30.0}
    assert (dataset["name"], dataset["file"], dataset["line"]) == ("train", SCRIPT, 7)
    assert dataset["rates"]["tuned"]["examples_per_second"] == 1500.0
    assert dataset["rates"]["off"] is None
    assert dataset["predicted"] == {"examples_per_second": 1600.0, "peak_rss_mib": 720.0}
    assert (dataset["equality"]["class"], dataset["equality"]["equal"]) == ("STATISTICAL", True)
    assert data["training"]["speedup"]["median"] == 1.3
    assert data["patch"]["covered"] == ["prefetch"]
    assert data["side_effects"] == {"saves_suppressed": 2}
    assert data["seconds"]["profile"] is None


def test_coverage_of_workers_in_summary() -> None:
    data = full()
    form = data["distributed"]
    assert (form["kind"], len(form["coverage"])) == ("multiworker", 1)
    (found,) = form["coverage"]
    assert (found["never"], found["once"], found["twice"], found["told_by"]) == (1, 3, 1, "number")
    assert (found["first_out"], found["short_batches"], found["idle_workers"]) == (1, 1, [])
    assert found["read_over_used"] == 2.0
    assert (found["read_bytes"], found["used_bytes"], found["bytes_read_over_used"]) == (180, 60, 3.0)
    assert [worker["elements"] for worker in found["workers"]] == [3, 2]
    assert [(worker["read_bytes"], worker["used_bytes"]) for worker in found["workers"]] == [(90, 20), (90, 40)]
    assert data["datasets"][0]["as_written"] is None
    (dataset, *_) = session().datasets
    told = OriginalSharding(4, policy="FILE", why="too few files", refused=True)
    refused = summary(replace(session(), datasets=(replace(dataset, as_written=told),)))
    assert refused["datasets"][0]["as_written"] == {  # type: ignore[index,call-overload]
        "workers": 4, "policy": "FILE", "coverage": None, "why": "too few files", "refused": True,
        "files": 0, "file_bytes": None,
    }  # fmt: skip


def test_rewrites_in_summary_have_call_site_gain_and_edits() -> None:
    window, parallel = full()["datasets"][0]["rewrites"]
    assert (window["rule"], window["file"], window["line"], window["safety"]) == ("prefetch", SCRIPT, 7, "EXACT")
    assert window["gain"]["median"] == 1.2
    assert window["edits"][0]["type"] == "Insert"
    assert parallel["edits"] == [{"type": "SetArgument", "node": "n2", "name": "num_parallel_calls", "value": 2}]
    (offered,) = full()["datasets"][0]["offered"]
    assert offered["consent"] == "--allow reorder,file-cache"


def test_summary_of_empty_session_has_null_values() -> None:
    data = summary(Session("0.1.0", Command()))
    assert (
        data["verdict"] == "undetermined"
        and data["training"] is None
        and data["input_wait"] is None
        and data["patch"] is None
    )


@pytest.mark.parametrize(
    "secret", ["ada", "secret project", "train.py", "hunter2-token", "/data/private", "import hunter", "+++ b/"]
)
def test_redacted_session_contains_no_user_data(secret: str) -> None:
    assert secret in json.dumps(session_data(session()))
    assert secret not in json.dumps(session_data(redact(session())))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Files in data/cats are small.", "Files in withheld are small."),
        ("acme is read slowly", "withheld is read slowly"),
        ("gs://bucket/x/y.tfrecord", "withheld"),
        ("s3://other/z.tfrecord of it", "withheld of it"),
        ("See https://www.tensorflow.org/guide.", "See https://www.tensorflow.org/guide."),
    ],
)
def test_paths_and_values_of_arguments_are_hidden_in_sentences(text: str, shown: str) -> None:
    command = Command(script="train.py", arguments=("--dir", "data/", "--project=acme", "gs://bucket"))
    assert redact(Session("0.1.0", command, notes=(text,))).notes == (shown,)


def test_redacted_session_keeps_measurements() -> None:
    before, after = full(), json.loads(json.dumps(summary(redact(session()))))
    assert after["training"] == before["training"]
    assert after["verdict"] == before["verdict"]
    assert after["datasets"][0]["rates"] == before["datasets"][0]["rates"]
    gains, kept = ([row["gain"] for row in one["datasets"][0]["rewrites"]] for one in (before, after))
    assert gains == kept
    assert after["datasets"][0]["file"] == WITHHELD
    assert redact(session()).datasets[0].pipeline["n3"].argument("batch_size") == 32
    assert redact(session()).machine == session().machine
    assert redact(session()).command.confidential is True


@pytest.mark.parametrize(
    "word",
    ["training", "EXACT", "accepted", "map", "file", "prefetch", "n3", "cpu", "reorder", "model", "source", "failed"],
)
def test_script_argument_equal_to_own_term_is_harmless_in_redaction(word: str) -> None:
    options = Settings(allow=frozenset({Consent.REORDER}))
    named = replace(session(), command=replace(session().command, arguments=(word,), options=options))
    clean = redact(named)
    assert clean.datasets[0].role == "training"
    assert [node.op for node in clean.datasets[0].pipeline] == [node.op for node in session().datasets[0].pipeline]
    assert clean.machine == session().machine


def test_unlisted_path_in_text_is_redacted() -> None:
    leak = Finding("unreadable", "opening /home/eve/other.bin failed; 3 steps/s, input and/or model", "")
    (finding,) = redact(replace(session(), findings=(leak,))).findings
    assert finding.message == f"opening {WITHHELD} failed; 3 steps/s, input and/or model"
