"""Repeated parts of a session are stored once and restored on loading; a large session stays under 1 MB."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from pipetune.core import session_file
from pipetune.core.codec import encode
from pipetune.core.command import Command
from pipetune.core.edits import Plan, Rewrite, Safety, SetArgument
from pipetune.core.errors import PipetuneError
from pipetune.core.functions import FunctionFacts
from pipetune.core.pipeline import Node, Pipeline, SourceLocation
from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.core.results import Interval, Outcome, Trial
from pipetune.core.session import DatasetResult, OptionalRewrite, Rejection, Session
from tests.core.schemas import schema
from tests.core.sessions import MACHINE, PARALLEL, WINDOW, session

OPERATORS = 400
OPERATIONS = tuple(f"AnOperationOfTensorFlow{number}" for number in range(12))


def big_session() -> Session:
    """A chain of 400 maps, each with a function and a call site; every second one has a rewrite with a trial."""
    nodes = [
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
    ]
    rewrites = [
        Rewrite(
            "parallel-map",
            f"n{number}",
            Safety.STATISTICAL,
            (SetArgument(f"n{number}", "num_parallel_calls", -1),),
            "Run the map function in as many calls as AUTOTUNE finds useful at a time.",
            group=f"parallel-map@n{number}",
            notes=("Parallel calls draw random numbers in the order in which they happen to run.",),
        )
        for number in range(0, OPERATORS, 2)
    ]
    ratios = tuple(1.1234567890123456 + number / 1000 for number in range(32))
    gain = Interval(1.1234567890123456, 1.0234567890123456, 1.2234567890123456, 32)
    whole = Plan("tuned", tuple(rewrites))
    trials = [
        Trial(Plan("tuned", (one,)), Outcome.SCREENED, "short windows: +1 % examples per second", ratios=(1.01,))
        for one in rewrites
    ]
    for number in range(20):  # all rewrites, halves, thirds and quarters
        part = Plan("tuned", tuple(rewrites[:: number % 4 + 1]))
        trials.append(Trial(part, Outcome.REJECTED, "no gain of 3 % to be had", gain, ratios=ratios, seconds=33.3))
    tuned = [
        replace(node, arguments={**node.arguments, "num_parallel_calls": -1}) if number % 2 == 0 else node
        for number, node in enumerate(nodes)
    ]
    operators = tuple(
        OperatorProfile(node.id, Stage.TRANSFORM, 1.23456789e-4, 1.3456789e-4, 12345, 1.0, 1.0, 1e6, 1e6, 2.0, 2e6)
        for node in nodes
    )
    dataset = DatasetResult(
        Pipeline(tuple(nodes)),
        "training",
        profile=Profile(operators, ConsumerProfile("loop")),
        plan=whole,
        gains={one.key: gain for one in rewrites[:50]},
        offered=tuple(OptionalRewrite(one, gain, "--allow statistical") for one in rewrites[:20]),
        rejected=tuple(Rejection(one.rule, one.node, "adds nothing to the plan", gain) for one in rewrites),
        tuned=Pipeline(tuple(tuned)),
    )
    return Session("0.1.0", Command(), MACHINE, (dataset,), tuple(trials))


def test_session_of_hundreds_of_operators_stays_under_one_megabyte(tmp_path: Path) -> None:
    big = big_session()
    assert len(json.dumps(encode(big))) > 2_000_000  # its size without folding
    path = tmp_path / "session.json"
    session_file.save(big, path)
    assert path.stat().st_size < session_file.MAX_READABLE_BYTES
    assert session_file.load(path) == big
    jsonschema.validate(json.loads(path.read_text()), schema("session"))


def test_trials_refer_to_rewrites_and_unchanged_operators_are_ids(tmp_path: Path) -> None:
    other = replace(PARALLEL, edits=(SetArgument("n2", "num_parallel_calls", 4),))  # same rule, same operator
    trials = [Trial(Plan("tuned", part), Outcome.REJECTED, "") for part in ((WINDOW, PARALLEL), (other,), ())]
    kept = replace(session(), trials=tuple(trials))
    path = tmp_path / "session.json"
    session_file.save(kept, path)
    data = json.loads(path.read_text())
    assert [trial["plan"]["rewrites"] for trial in data["trials"]] == [
        ["prefetch@n3", "parallel-map@n2"],
        ["parallel-map@n2#2"],
        [],
    ]
    assert data["rewrites"]["parallel-map@n2#2"]["edits"][0]["value"] == 4
    assert data["datasets"][0]["tuned"]["nodes"] == ["n0", "n1", "n2", "n3"]
    assert session_file.load(path) == kept


def test_changed_operators_are_stored_as_differences(tmp_path: Path) -> None:
    one = session()
    written = one.datasets[0].pipeline
    first, second, third, fourth = written.nodes
    tuned = Pipeline(
        (
            first,
            replace(second, arguments={"cycle_length": 8}),
            replace(third, function=None, location=None),  # fields reset to their defaults
            Node("prefetch@n2", "prefetch", ("n2",)),
            fourth,
        )
    )
    kept = replace(one, datasets=(replace(one.datasets[0], tuned=tuned),))
    for most in (session_file.MAX_READABLE_BYTES, 10):  # within the limit, and compact where it would be exceeded
        path = tmp_path / f"{most}.json"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session_file, "MAX_READABLE_BYTES", most)
            session_file.save(kept, path)
        nodes = json.loads(path.read_text())["datasets"][0]["tuned"]["nodes"]
        assert (nodes[0], nodes[4]) == ("n0", "n3")
        assert nodes[1] == {"like": "n1", "arguments": {"cycle_length": 8}}
        assert session_file.load(path) == kept


def test_unfolded_session_is_loaded(tmp_path: Path) -> None:
    data = {**encode(session()), "schema": 1, "pipetune": "0.1.0"}  # type: ignore[dict-item]
    path = tmp_path / "session.json"
    path.write_text(json.dumps(data))
    assert session_file.load(path) == session()


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
    path = tmp_path / "session.json"
    session_file.save(session(), path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(PipetuneError, match=says):
        session_file.load(path)
