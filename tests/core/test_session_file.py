"""session.json and plan.json: round trips, schemas, writes that are atomic, repeated parts that are stored once."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pipetune.core import plan_file, session_file
from pipetune.core.codec import encode
from pipetune.core.edits import Plan, SetArgument, apply_edits
from pipetune.core.errors import PipetuneError, PlanMismatch
from pipetune.core.files import write_text
from pipetune.core.functions import FunctionFacts
from pipetune.core.measurement import Interval
from pipetune.core.pipeline import Node, Pipeline, SourceLocation
from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.core.results import Outcome, Trial
from pipetune.core.session import DatasetResult, Rejection, Session
from pipetune.core.settings import Command
from tests.core.schemas import schema
from tests.core.sessions import MACHINE, PARALLEL, WINDOW, pipeline, session


def written(tmp_path: Path, value: Session) -> dict[str, Any]:
    session_file.save(value, tmp_path / "session.json")
    data: dict[str, Any] = json.loads((tmp_path / "session.json").read_text())
    return data


def test_unfolded_session_and_that_of_a_release_without_step_series_are_read(tmp_path: Path) -> None:
    data = {**encode(session()), "schema": 1, "pipetune": "0.1.0"}  # type: ignore[dict-item]
    (tmp_path / "session.json").write_text(json.dumps(data))
    assert session_file.load(tmp_path) == session()
    data = written(tmp_path, session())
    (main, *others) = data["datasets"]
    series = main.pop("step_series")
    (tmp_path / "session.json").write_text(json.dumps(data))
    (found, *_) = session_file.load(tmp_path).datasets
    assert found == replace(session().datasets[0], step_series={})
    jsonschema.validate(data, schema("session"))
    series["defaults"]["wait_seconds"] = [0.03, "long", 0.03]
    with pytest.raises(jsonschema.ValidationError, match="long"):
        jsonschema.validate({**data, "datasets": [{**main, "step_series": series}, *others]}, schema("session"))


@pytest.mark.parametrize(
    "value", [session(), Session("0.1.0", Command(), status="no-dataset")], ids=["complete", "without measurements"]
)
def test_session_round_trip_starts_with_documented_keys_and_validates(tmp_path: Path, value: Session) -> None:
    data = written(tmp_path, value)
    assert session_file.load(tmp_path / "session.json") == session_file.load(tmp_path) == value
    assert list(data)[:7] == ["schema", "pipetune", "machine", "command", "datasets", "trials", "summary"]
    jsonschema.validate(data, schema("session"))
    data["summary"]["verdict"] = "fast"
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
    assert caught.value.hint and caught.value.exit_code == 2


def test_write_replaces_file_atomically_and_failed_one_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["session.json"]
    with path.open() as reader:
        write_text(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"


def test_unwritable_folder_is_reported_with_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipetuneError, match="cannot be written") as caught:
        session_file.save(session(), tmp_path / "file" / "session.json")
    assert "--out" in caught.value.hint


def plan(tmp_path: Path, value: Session) -> plan_file.PlanFile:
    found = plan_file.plan_file(value)
    assert found is not None
    plan_file.save_plan(found, tmp_path / "plan.json")
    return plan_file.load_plan(tmp_path)


def test_plan_round_trip_starts_with_documented_keys_and_validates(tmp_path: Path) -> None:
    found = plan(tmp_path, session())
    assert found == plan_file.plan_file(session())
    assert found.plan == Plan("train", (WINDOW, PARALLEL))
    assert found.edits == (*WINDOW.edits, *PARALLEL.edits)
    assert found.machine == MACHINE
    data = json.loads((tmp_path / "plan.json").read_text())
    assert list(data)[:6] == ["schema", "pipetune", "machine", "fingerprint", "operators", "edits"]
    jsonschema.validate(data, schema("plan"))
    data["edits"][0]["type"] = "Explode"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema("plan"))


def test_plan_contains_second_tuned_dataset(tmp_path: Path) -> None:
    first = session().datasets[0]
    both = replace(session(), datasets=(first, replace(first, pipeline=replace(pipeline(), name="second"))))
    assert [more.name for more in plan(tmp_path, both).more] == ["second"]


def test_plan_accepts_its_own_pipeline_with_other_seeds_files_and_call_sites(tmp_path: Path) -> None:
    first, *rest = pipeline().nodes
    elsewhere = replace(first, arguments={"pattern": "/other/*", "seed": 3}, location=None)
    for one in (pipeline(), Pipeline((elsewhere, *rest))):
        plan(tmp_path, session()).check(one)


def changed(index: int, **changes: Any) -> Pipeline:
    nodes = list(pipeline().nodes)
    nodes[index] = replace(nodes[index], **changes)
    return Pipeline(tuple(nodes))


def test_plan_mismatch_names_first_different_operator(tmp_path: Path) -> None:
    found, nodes = plan(tmp_path, session()), pipeline().nodes
    digest = replace(nodes[2].function, digest="d2")  # type: ignore[type-var]
    cases = {
        "operator 1 is flat_map here and interleave in the plan": changed(1, op="flat_map"),
        "cycle_length=8 here, 4 in the plan": changed(1, arguments={**nodes[1].arguments, "cycle_length": 8}),
        "the function of operator 2, map, is different (/home/ada": changed(2, function=digest),
        "operator 3 of the plan, batch, is missing here": Pipeline(nodes[:3]),
        "operator 4 here, prefetch, is not in the plan": Pipeline((*nodes, Node("n4", "prefetch", ("n3",)))),
    }
    for says, other in cases.items():
        with pytest.raises(PlanMismatch) as caught:
            found.check(other)
        assert says in caught.value.message


OPERATORS = 400
OPERATIONS = tuple(f"AnOperationOfTensorFlow{number}" for number in range(12))


def big_session() -> Session:
    """A chain of 400 maps; every second one has a rewrite with a trial, and larger plans were tried too."""
    nodes = tuple(
        Node(
            f"n{number}",
            "map",
            (f"n{number - 1}",) if number else (),
            {"num_parallel_calls": None, "deterministic": None},
            function=FunctionFacts(f"function_{number}", f"{number:016x}", operations=OPERATIONS, size=40),
            location=SourceLocation("/home/ada/project/input/pipeline.py", number, 4, number, 40, "map", "make"),
            spec="(TensorSpec(shape=(None, 224, 224, 3), dtype=tf.float32, name=None))",
        )
        for number in range(OPERATORS)
    )
    parallel = {node.id: (SetArgument(node.id, "num_parallel_calls", -1),) for node in nodes[::2]}
    rewrites = tuple(replace(PARALLEL, node=node, edits=edits) for node, edits in parallel.items())
    gain = Interval(1.1234567890123456, 1.0234567890123456, 1.2234567890123456, 32)
    ratios = tuple(1.1234567890123456 + number / 1000 for number in range(32))
    parts = [(one,) for one in rewrites] + [rewrites[::step] for step in (1, 2, 3, 4) * 5]
    trials = tuple(Trial(Plan("tuned", part), Outcome.REJECTED, "no gain", gain, ratios=ratios) for part in parts)
    costs = (1.23456789e-4, 1.3456789e-4, 12345, 1.0, 1.0, 1e6, 1e6, 2.0, 2e6)
    profiles = [OperatorProfile(node.id, Stage.TRANSFORM, *costs) for node in nodes]
    dataset = DatasetResult(
        Pipeline(nodes),
        "training",
        profile=Profile(tuple(profiles), ConsumerProfile("loop")),
        plan=Plan("tuned", rewrites),
        rejected=tuple(Rejection(one.rule, one.node, "adds nothing to the plan", gain) for one in rewrites),
        tuned=apply_edits(Pipeline(nodes), [edit for edits in parallel.values() for edit in edits]),
    )
    return Session("0.1.0", Command(), MACHINE, (dataset,), trials)


def test_session_of_hundreds_of_operators_stays_under_one_megabyte(tmp_path: Path) -> None:
    big = big_session()
    assert len(json.dumps(encode(big))) > 2_000_000  # its size without folding
    path = tmp_path / "session.json"
    session_file.save(big, path)
    assert path.stat().st_size < session_file.MAX_READABLE_BYTES
    assert session_file.load(path) == big


def test_trials_refer_to_rewrites_and_unchanged_operators_are_ids(tmp_path: Path) -> None:
    other = replace(PARALLEL, edits=(SetArgument("n2", "num_parallel_calls", 4),))  # same rule, same operator
    trials = [Trial(Plan("tuned", part), Outcome.REJECTED, "") for part in ((WINDOW, PARALLEL), (other,), ())]
    kept = replace(session(), trials=tuple(trials))
    data = written(tmp_path, kept)
    keys = [["prefetch@n3", "parallel-map@n2"], ["parallel-map@n2#2"], []]
    assert [trial["plan"]["rewrites"] for trial in data["trials"]] == keys
    assert data["rewrites"]["parallel-map@n2#2"]["edits"][0]["value"] == 4
    assert data["datasets"][0]["tuned"]["nodes"] == ["n0", "n1", "n2", "n3"]
    assert session_file.load(tmp_path) == kept


def test_changed_operators_are_stored_as_differences(tmp_path: Path) -> None:
    dataset = session().datasets[0]
    first, second, third, fourth = dataset.pipeline.nodes
    longer = replace(second, arguments={"cycle_length": 8})
    bare = replace(third, function=None, location=None)  # fields reset to their defaults
    tuned = Pipeline((first, longer, bare, Node("prefetch@n2", "prefetch", ("n2",)), fourth))
    kept = replace(session(), datasets=(replace(dataset, tuned=tuned),))
    for most in (session_file.MAX_READABLE_BYTES, 10):  # within the limit, and compact where it would be exceeded
        path = tmp_path / f"{most}.json"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session_file, "MAX_READABLE_BYTES", most)
            session_file.save(kept, path)
        data = json.loads(path.read_text())
        jsonschema.validate(data, schema("session"))
        nodes = data["datasets"][0]["tuned"]["nodes"]
        assert (nodes[0], nodes[4]) == ("n0", "n3")
        assert nodes[1] == {"like": "n1", "arguments": {"cycle_length": 8}}
        assert session_file.load(path) == kept


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rewrites": {}}, r"datasets\[0\].plan.rewrites\[0\]: should be an object"),
        ({"rewrites": 3}, r"datasets\[0\].plan.rewrites\[0\]: should be an object"),
        ({"trials": [3]}, r"trials\[0\]: should be an object"),
        ({"trials": 3}, "trials: should be a list"),
        ({"datasets": [None]}, r"datasets\[0\]: should be an object"),
    ],
)
def test_damaged_folded_session_is_rejected(change: dict[str, object], says: str, tmp_path: Path) -> None:
    data = {**written(tmp_path, session()), **change}
    (tmp_path / "session.json").write_text(json.dumps(data))
    with pytest.raises(PipetuneError, match=says):
        session_file.load(tmp_path)
