"""What the verifying worker runs leaves nothing where the user runs the script."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import Edit, Insert, Plan, Rewrite, Safety
from pipetune.worker.verifying import with_file_caches_in

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
