"""session.json and plan.json: round trips, schemas, and writes that are atomic."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from pipetune.core import plan_file, session_file
from pipetune.core.command import Command
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError, PlanMismatch
from pipetune.core.files import write_text
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.session import Session
from tests.core.schemas import schema
from tests.core.sessions import MACHINE, PARALLEL, WINDOW, pipeline, session


def written(tmp_path: Path, value: Session) -> dict[str, object]:
    session_file.save(value, tmp_path / "session.json")
    data: dict[str, object] = json.loads((tmp_path / "session.json").read_text())
    return data


def test_session_of_a_release_without_step_series_is_read(tmp_path: Path) -> None:
    data = written(tmp_path, session())
    (main, *others) = data["datasets"]  # type: ignore[misc]
    series = main.pop("step_series")
    (tmp_path / "session.json").write_text(json.dumps(data))
    (found, *_) = session_file.load(tmp_path).datasets
    assert found == replace(session().datasets[0], step_series={})
    jsonschema.validate(data, schema("session"))
    series["defaults"]["wait_seconds"] = [0.03, "long", 0.03]
    with pytest.raises(jsonschema.ValidationError, match="long"):
        jsonschema.validate({**data, "datasets": [{**main, "step_series": series}, *others]}, schema("session"))


def test_session_round_trip_starts_with_documented_keys_and_validates(tmp_path: Path) -> None:
    data = written(tmp_path, session())
    assert session_file.load(tmp_path / "session.json") == session_file.load(tmp_path) == session()
    assert list(data)[:7] == ["schema", "pipetune", "machine", "command", "datasets", "trials", "summary"]
    jsonschema.validate(data, schema("session"))


def test_session_without_measurements_validates(tmp_path: Path) -> None:
    data = written(tmp_path, Session("0.1.0", Command(), status="no-dataset"))
    jsonschema.validate(data, schema("session"))


def test_schema_rejects_unknown_verdict(tmp_path: Path) -> None:
    data = written(tmp_path, session())
    data["summary"]["verdict"] = "fast"  # type: ignore[index]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema("session"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b'{"schema": 1, "pipetune"', "is not valid JSON"),
        (b"\xff\xfe\x00\x01", "is not valid JSON"),
        (b"[1]", "schema is None, not 1"),
        (b'{"schema": 2}', "schema is 2, not 1"),
        (b'{"schema": 1, "command": {}}', "version: should be str"),
        (b'{"schema": 1, "pipetune": "0.1.0", "command": {}, "datasets": [{}]}', "datasets[0].pipeline: is missing"),
    ],
)
def test_damaged_session_is_rejected_with_hint(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "session.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PipetuneError) as caught:
        session_file.load(path)
    assert says in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_failed_write_keeps_old_file_and_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["session.json"]


def test_write_replaces_file_atomically(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    write_text(path, "old")
    with path.open() as reader:
        write_text(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"


def test_unwritable_folder_is_reported_with_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipetuneError, match="cannot be written") as caught:
        session_file.save(session(), tmp_path / "file" / "session.json")
    assert "--out" in caught.value.hint


def plan(tmp_path: Path) -> plan_file.PlanFile:
    found = plan_file.plan_file(session())
    assert found is not None
    plan_file.save_plan(found, tmp_path / "plan.json")
    return plan_file.load_plan(tmp_path)


def test_plan_round_trip(tmp_path: Path) -> None:
    found = plan(tmp_path)
    assert found == plan_file.plan_file(session())
    assert found.plan == Plan("train", (WINDOW, PARALLEL))
    assert found.edits == (*WINDOW.edits, *PARALLEL.edits)
    assert found.machine == MACHINE


def test_plan_json_starts_with_documented_keys_and_validates(tmp_path: Path) -> None:
    plan(tmp_path)
    data = json.loads((tmp_path / "plan.json").read_text())
    assert list(data)[:6] == ["schema", "pipetune", "machine", "fingerprint", "operators", "edits"]
    jsonschema.validate(data, schema("plan"))
    data["edits"][0]["type"] = "Explode"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema("plan"))


def test_plan_contains_second_tuned_dataset(tmp_path: Path) -> None:
    one = session()
    both = replace(
        one, datasets=(one.datasets[0], replace(one.datasets[0], pipeline=replace(pipeline(), name="second")))
    )
    found = plan_file.plan_file(both)
    assert found is not None
    plan_file.save_plan(found, tmp_path / "plan.json")
    assert [more.name for more in plan_file.load_plan(tmp_path).more] == ["second"]


def test_plan_accepts_its_own_pipeline_with_other_seeds_files_and_call_sites(tmp_path: Path) -> None:
    first, *rest = pipeline().nodes
    elsewhere = replace(first, arguments={"pattern": "/other/*", "seed": 3}, location=None)
    for one in (pipeline(), Pipeline((elsewhere, *rest))):
        plan(tmp_path).check(one)


def changed(index: int, node: Node) -> Pipeline:
    nodes = pipeline().nodes
    return Pipeline((*nodes[:index], node, *nodes[index + 1 :]))


def test_plan_mismatch_names_first_different_operator(tmp_path: Path) -> None:
    found = plan(tmp_path)
    nodes = pipeline().nodes
    function = nodes[2].function
    assert function is not None
    cases = {
        "operator 1 is flat_map here and interleave in the plan": changed(1, replace(nodes[1], op="flat_map")),
        "cycle_length=8 here, 4 in the plan": changed(
            1, replace(nodes[1], arguments={**nodes[1].arguments, "cycle_length": 8})
        ),
        "the function of operator 2, map, is different (/home/ada": changed(
            2, replace(nodes[2], function=replace(function, digest="d2"))
        ),
        "operator 3 of the plan, batch, is missing here": Pipeline(nodes[:3]),
        "operator 4 here, prefetch, is not in the plan": Pipeline((*nodes, Node("n4", "prefetch", ("n3",)))),
    }
    for says, other in cases.items():
        with pytest.raises(PlanMismatch) as caught:
            found.check(other)
        assert says in caught.value.message
