"""What the verifying worker runs leaves nothing where the user runs the script; when it is what the plan says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core import sessionfile
from pipetune.core.cluster import Task
from pipetune.core.editing import apply_edits
from pipetune.core.edits import Edit, Insert, Plan, Rewrite, Safety, SplitFunction
from pipetune.core.functions import Cut, CutKind
from pipetune.core.messages import Job, Mode
from pipetune.testing.words import pipeline
from pipetune.worker import verifying
from pipetune.worker.verification import first_difference, with_file_caches_in
from tests.core.sessions import session

NAME = "pipetune-cache-82d49b9a1066104b-rank0"
TEXT = f'dataset = dataset.map(parse).cache("{NAME}").cache("mine").batch(4)\n'


def _plan(*edits: Edit) -> Plan:
    return Plan("tuned", (Rewrite("cache", "n1", Safety.EXACT, edits, "Keeps it."),))


def test_the_files_of_the_plans_caches_are_put_elsewhere_and_the_users_own_stay() -> None:
    plan = _plan(Insert("n1", "cache", "cache@n1", {"filename": NAME}))
    found = with_file_caches_in("/tmp/elsewhere", {"train.py": TEXT, "other.py": "x = 1\n"}, plan)
    assert found == {"train.py": TEXT.replace(NAME, f"/tmp/elsewhere/{NAME}"), "other.py": "x = 1\n"}
    assert '.cache("mine")' in found["train.py"]


@pytest.mark.parametrize(
    "edit",
    [
        Insert("n1", "cache", "cache@n1", {"filename": ""}),
        Insert("n1", "cache", "cache@n1"),
        Insert("n1", "prefetch", "prefetch@n1", {"buffer_size": 2}),
    ],
)
def test_without_a_file_cache_nothing_is_changed(edit: Insert) -> None:
    assert with_file_caches_in("/tmp/elsewhere", {"train.py": TEXT}, _plan(edit)) == {"train.py": TEXT}


HANDED = "(TensorSpec(shape=(), dtype=tf.int64, name=None), TensorSpec(shape=(None, 3), dtype=tf.uint8, name=None))"
SWAPPED = "{'a': TensorSpec(shape=(None, 3), dtype=tf.uint8, name='a'), 'b': TensorSpec(shape=(), dtype=tf.int64)}"
MORE = HANDED.replace("(TensorSpec", "(TensorSpec(shape=<unknown>, dtype=tf.string, name=None), TensorSpec", 1)


@pytest.mark.parametrize(("spec", "same"), [(HANDED, True), (SWAPPED, True), (MORE, False), ("", False)])
def test_the_first_part_of_a_function_hands_on_what_the_plan_says(spec: str, same: bool) -> None:
    split = SplitFunction("n1", Cut(CutKind.BEFORE_DRAWS, spec=HANDED, head="cut", tail="cut too"))
    wanted = apply_edits(pipeline("range 9 | map random"), [split])
    found = pipeline("range 9 | map | map random")
    found = replace(found, nodes=(found.nodes[0], replace(found.nodes[1], spec=spec), found.nodes[2]))
    assert (first_difference(found, wanted) == "") is same


@pytest.mark.parametrize(("task", "code", "told"), [(None, 1, 1), (Task(0, 2), 1, 1), (Task(1, 2), 0, 0)])
def test_of_several_workers_the_chief_alone_says_what_came_of_it(
    task: Task | None, code: int, told: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Observation:
        """Of a script that does not come to its consumer."""

        def __init__(self, *_given: object) -> None:
            pass

        def run(self) -> int:
            return 0

    class Writer:
        def __init__(self) -> None:
            self.sent: list[Any] = []

        def send(self, message: Any) -> None:
            self.sent.append(message)

    monkeypatch.setattr(verifying.observing, "Observation", Observation)
    monkeypatch.setattr(verifying, "overlay_of", lambda _session: {})
    sessionfile.save(session(), tmp_path / "session.json")
    writer = Writer()
    job = Job(Mode.VERIFY, message_descriptor=-1, session=str(tmp_path / "session.json"), task=task)
    assert verifying.verify(job, writer) == code  # type: ignore[arg-type]
    assert len(writer.sent) == told
