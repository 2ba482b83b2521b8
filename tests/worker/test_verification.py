"""What the verifying worker runs leaves nothing where the user runs the script; when it is what the plan says."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core import sessionfile
from pipetune.core.cluster import Task
from pipetune.core.editing import apply_edits
from pipetune.core.edits import Edit, Insert, Plan, Rewrite, Safety, SetArgument, SplitFunction
from pipetune.core.errors import PipetuneError
from pipetune.core.functions import Cut, CutKind
from pipetune.core.in_step import Begin, Leave, Link, Order
from pipetune.core.messages import Job, MessageWriter, Mode
from pipetune.testing.words import pipeline
from pipetune.worker import verification
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


@pytest.mark.parametrize(
    ("edit", "node", "blamed"),
    [
        (Insert("n1", "prefetch", "prefetch@n1", {"buffer_size": 2}), "prefetch@n1", True),
        (Insert("n1", "prefetch", "prefetch@n1", {"buffer_size": 2}), "n0", False),
        (SetArgument("n1", "num_parallel_calls", 4), "n1", True),
    ],
)
def test_a_rewrite_is_blamed_for_an_operator_that_it_is_about(edit: Edit, node: str, blamed: bool) -> None:
    assert verification._is_about(edit, node) is blamed


def test_where_pipelines_differ_the_operator_of_the_plan_is_known() -> None:
    wanted = apply_edits(pipeline("range 9 | map"), [SetArgument("n1", "num_parallel_calls", 4)])
    different = verification._first_difference(pipeline("range 9 | map"), wanted)
    assert different is not None and different.node == "n1" and different.words.startswith("operator 1 is map")
    assert verification._first_difference(wanted, wanted) is None


@pytest.mark.parametrize(
    ("task", "order", "ran"),
    [
        pytest.param(None, Begin(), ["script"], id="begin"),
        pytest.param(None, Leave(), [], id="leave"),
        pytest.param(Task(0, 2), Begin(), ["script"], id="a chief"),
        pytest.param(Task(1, 2), None, ["follows"], id="a worker that follows"),
    ],
)
def test_the_script_runs_when_it_may(
    task: Task | None, order: Order | None, ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes import side by side, and run the user's script one after the other."""
    seen: list[str] = []

    class Observation:
        def __init__(self, *_given: object) -> None:
            pass

        def run(self) -> int:
            seen.append("script")
            return 0

    def follow(_job: Job, _writer: object) -> int:
        seen.append("follows")
        return 0

    monkeypatch.setattr(verification.observing, "Observation", Observation)
    monkeypatch.setattr(verification.together, "follow", follow)
    sessionfile.save(session(), tmp_path / "session.json")
    near, far = socket.socketpair()
    with contextlib.closing(Link(near.detach())) as link, open(os.devnull, "wb") as nowhere:
        if order is not None:
            link.order(order)
        saved = str(tmp_path / "session.json")
        job = Job(Mode.VERIFY, nowhere.fileno(), session=saved, task=task, orders=far.detach())
        assert verification.verify(job, MessageWriter(nowhere.fileno())) == 0
        if task is not None and not task.chief:
            os.close(job.orders)
    assert seen == ran


def test_without_a_patch_there_is_nothing_to_verify(tmp_path: Path) -> None:
    sessionfile.save(replace(session(), patch=None), tmp_path / "session.json")
    with pytest.raises(PipetuneError, match="holds no patch"):
        verification.verify(Job(Mode.VERIFY, -1, session=str(tmp_path / "session.json")), None)  # type: ignore[arg-type]
