"""Requests and replies between the chief and the other workers over real sockets, and the tasks of a cluster."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import NoReturn

import pytest

from pipetune.core import lockstep
from pipetune.core.cluster import MPI_VARIABLES, ClusterTask, HorovodRank, mpi_rank, task_from_environment
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.lockstep import ConnectionLost, MeasureInput, NoMoreRequests, PreparePipeline, StepReply, TakeSteps
from pipetune.core.measurement import RunFailed, Window
from tests.core.sessions import PARALLEL

Links = list[tuple[lockstep.RequestLink, lockstep.RequestLink]]
"""The chief's end and the worker's end of the connections to two other workers."""

OPERATORS = ("range (n0)", "map (n1)")
SAME = StepReply(operators=OPERATORS)


def window(steps: int = 5, **changes: float) -> Window:
    return Window(steps=steps, examples=5, wall_seconds=0.5, cpu_seconds=0.4, first_seconds=0.1, **changes)


TAKEN = StepReply(window=window())


class FellOut(Exception):
    """Raised instead of ending the process."""


class Chief(lockstep.LockstepTeam):
    """A team whose chief does not end its process."""

    def abort(self, why: str, cause: BaseException | None = None) -> NoReturn:
        raise FellOut(why)


@pytest.fixture
def links() -> Iterator[Links]:
    pairs = [socket.socketpair() for _ in range(2)]
    made = [(lockstep.RequestLink(near.detach()), lockstep.RequestLink(far.detach())) for near, far in pairs]
    yield made
    for pair in made:
        for end in pair:
            end.close()


def chief(links: Links) -> Chief:
    return Chief([near for near, _ in links], on_lockstep_lost=lambda why, cause: None)


def answer(links: Links, *answers: StepReply) -> None:
    for (_, far), one in zip(links, answers, strict=True):
        far.send_reply(one)


def test_requests_and_replies_round_trip(links: Links) -> None:
    near, far = links[0]
    prepared = [PreparePipeline(Plan("p", (PARALLEL,))), PreparePipeline()]
    orders = [*prepared, TakeSteps(5, 2), MeasureInput(0.5, 0.1), NoMoreRequests()]
    for order in orders:
        near.send_request(order)
    assert [far.receive_request(5) for _ in orders] == orders
    answers = [StepReply(window=window(compile_seconds=0.25)), StepReply(why="no"), SAME]
    for one in answers:
        far.send_reply(one)
    assert [near.receive_reply(5) for _ in answers] == answers


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([SAME, SAME], ""),
        ([SAME, StepReply(operators=(OPERATORS[0], "batch (n1)"))],
         "operator 2 is batch (n1) on worker 2, but map (n1) on worker 0"),
        ([StepReply(operators=OPERATORS[:1]), SAME], "worker 1 has 1 operators and worker 0 2"),
        ([StepReply(why="nothing trains"), SAME], "nothing trains"),
    ],
)  # fmt: skip
def test_workers_with_different_operators_are_reported(links: Links, answers: list[StepReply], why: str) -> None:
    answer(links, *answers)
    assert chief(links).wait_for_workers(OPERATORS) == why


def test_missing_worker_aborts_run_and_limit_for_all_workers_together_is_named(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 350)  # the first worker is waited for until then
    monkeypatch.setattr(lockstep, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    links[0][1].send_reply(SAME)
    with pytest.raises(FellOut, match="worker 2 did not reply within 600 s"):
        chief(links).wait_for_workers(OPERATORS)


def test_plan_that_one_worker_cannot_build_fails_before_training(links: Links) -> None:
    answer(links, StepReply(), StepReply(why="The plan cannot be built: no such file"))
    with pytest.raises(RunFailed, match="worker 2: The plan cannot be built"):
        chief(links).prepare(Plan("p"))
    assert [far.receive_request(5) for _, far in links] == [PreparePipeline(Plan("p"))] * 2
    answer(links, StepReply(), StepReply())
    chief(links).prepare(None)


def test_windows_with_equal_steps_are_collected(links: Links) -> None:
    found = chief(links)
    found.train(steps=5, warmup=2)
    assert [far.receive_request(5) for _, far in links] == [TakeSteps(5, 2)] * 2
    answer(links, StepReply(window=window(compile_seconds=1.0)), TAKEN)
    assert [one.compile_seconds for one in found.collect_windows(window())] == [1.0, 0.0]
    answer(links, StepReply(why="The script's loop ended."), StepReply(why="The script's loop ended."))
    assert found.collect_windows(None) == [], "nobody has taken them"


@pytest.mark.parametrize(
    ("answers", "own", "why"),
    [
        ([TAKEN, StepReply(window=window(4))], window(), "worker 2 took 4 steps, but worker 0 took 5"),
        ([StepReply(why="it raised"), TAKEN], window(), "worker 1 took fewer steps: it raised"),
        ([StepReply(why="it ended"), TAKEN], None, "worker 2 took 5 steps, but worker 0 took fewer"),
    ],
)
def test_windows_with_different_steps_abort_run(
    links: Links, answers: list[StepReply], own: Window | None, why: str
) -> None:
    answer(links, *answers)
    with pytest.raises(FellOut, match=why):
        chief(links).collect_windows(own)


def test_exited_worker_aborts_every_request(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockstep, "REPLY_TIMEOUT_SECONDS", 0.05)
    links[0][1].close()
    found = chief(links)
    with pytest.raises(FellOut, match="worker 1"):
        found.prepare(None)
    with pytest.raises(FellOut, match="worker 1"):
        found.collect_windows(window())
    for worker, why in ((1, "worker 1"), (2, "worker 2 did not reply")):
        with pytest.raises(FellOut, match=why):
            found.measure_input(worker, seconds=0.0, warmup_seconds=0.0)
    found.dismiss()
    heard = links[1][1].receive_request(5)
    assert isinstance(heard, MeasureInput | PreparePipeline | NoMoreRequests), "who is there hears it"


def test_one_worker_measures_its_input_while_others_are_idle(links: Links) -> None:
    links[1][1].send_reply(TAKEN)
    assert chief(links).measure_input(2, seconds=0.5, warmup_seconds=0.1) == window()
    assert links[1][1].receive_request(5) == MeasureInput(0.5, 0.1)
    with pytest.raises(ConnectionLost, match="did not reply"):
        links[0][1].receive_request(0.01)
    links[0][1].send_reply(StepReply(why="The dataset is empty."))
    with pytest.raises(RunFailed, match=r"^The dataset is empty\."):
        chief(links).measure_input(1, seconds=0.5, warmup_seconds=0.1)


TASK = '"task": {"type": "worker", "index": 1}}'


def config(kind: str = "worker", index: object = 0, **cluster: int) -> str:
    found = {kind: [f"host{number}:1" for number in range(count)] for kind, count in cluster.items()}
    return json.dumps({"cluster": found, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, None),
        (" ", None),
        (config(worker=1), None),
        ('{"task": {"type": "worker", "index": 3}}', None),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {}, "environment": "cloud"}', ClusterTask("worker", 0, 2)),
        (f'{{"cluster": {{"worker": {{"1": "b:1", "0": "a:1"}}}}, {TASK}', ClusterTask("worker", 1, 2)),
        (config(index="1", worker=2), ClusterTask("worker", 1, 2)),
        (config(index=1.0, worker=2), ClusterTask("worker", 1, 2)),
        (config("evaluator", index=0, chief=1, worker=1, evaluator=1), ClusterTask("evaluator", 0, 2, has_chief=True)),
        (config("evaluator", worker=2), ClusterTask("evaluator", 0, 2)),
        (config("chief", chief=1, worker=2), ClusterTask("chief", 0, 3, has_chief=True)),
        (config("ps", index=1, ps=2, worker=2), ClusterTask("ps", 1, 1)),
    ],
)
def test_task_from_tf_config(told: str | None, expected: ClusterTask | None) -> None:
    assert task_from_environment({} if told is None else {"TF_CONFIG": told}) == expected


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("no json", "is not JSON: Expecting value"),
        ("null", "is null, not a JSON object"),
        ('{"cluster": null}', 'has a "cluster" that is null, not an object'),
        ('{"cluster": {"worker": "a:1"}}', 'has a "cluster" whose "worker" is "a:1", not a list of addresses'),
        ('{"cluster": {"worker": [1, 2]}}', 'has a "cluster" whose "worker" lists 1, not an address'),
        ('{"cluster": {"worker": {"x": 1}}}', 'has a "cluster" whose "worker" is {"x": 1}: its keys must be numbers'),
        ('{"task": "worker"}', 'has a "task" that is "worker", not an object'),
        (config(index="last", worker=2), 'has a "task" whose "index" is "last", not a number'),
        (config(index=2, worker=2), 'has a "task" with index 2, but the "cluster" has 2 tasks of type "worker"'),
        (config(index=-1, worker=2), 'has a "task" with index -1, but the "cluster" has 2 tasks of type "worker"'),
        (config("chief", worker=2), 'has a "task" of type "chief", but the "cluster" has only worker'),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker"}}', 'has a "task" without "index"'),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"index": 0}}', 'has a "task" without "type"'),
        (json.dumps(["a" * 100]), f'is ["{"a" * 58}..., not a JSON object'),
    ],
)
def test_invalid_tf_config_is_rejected_with_reason(told: str, says: str) -> None:
    with pytest.raises(PipetuneError) as refused:
        task_from_environment({"TF_CONFIG": told})
    assert refused.value.message.startswith(f"TF_CONFIG {says}"), refused.value.message
    assert refused.value.exit_code == 2 and refused.value.hint.endswith("Nothing was run.")


@pytest.mark.parametrize(
    ("rank", "ranks", "expected"),
    [
        ("", "2", None),
        ("0", "", None),
        ("0", "1", None),
        ("0", "many", None),
        ("-1", "2", None),
        ("3", "4", ClusterTask("worker", 3, 4, source_variable="HOROVOD_RANK")),
    ],
)
@pytest.mark.mission("E1.recognised")
def test_horovod_rank_is_recognised_as_worker(rank: str, ranks: str, expected: ClusterTask | None) -> None:
    told = {"HOROVOD_RANK": rank, "HOROVOD_SIZE": ranks}
    assert task_from_environment(told) == expected
    first = task_from_environment({**told, "TF_CONFIG": config(worker=2)})
    assert first == ClusterTask("worker", 0, 2), "what it names comes first"


@pytest.mark.parametrize(
    "missing",
    [
        {"HOROVOD_GLOO_RENDEZVOUS_ADDR": ""},
        {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "no address"},
        {"HOROVOD_ELASTIC": "1"},  # their number may change
        {"HOROVOD_RANK": "", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},  # by MPI
    ],
)
def test_ranks_without_gloo_rendezvous_cannot_train_in_lockstep(missing: dict[str, str]) -> None:
    place = task_from_environment(by_gloo(0) | missing, horovod=True)
    assert place is not None and place.is_horovod_rank and not place.can_train_in_lockstep


@pytest.mark.mission("E1.recognised")
def test_ranks_with_gloo_rendezvous_can_train_in_lockstep() -> None:
    first, second = (task_from_environment(by_gloo(rank)) for rank in (0, 1))
    assert first is not None and second is not None
    assert first.can_train_in_lockstep and second.can_train_in_lockstep
    assert (first.coordinator_host, second.coordinator_host) == ("127.0.0.1", ""), "the first has to say the way to it"


def by_gloo(rank: int) -> dict[str, str]:
    """The variables that horovodrun sets."""
    ranks = {"HOROVOD_RANK": str(rank), "HOROVOD_SIZE": "2"}
    return {**ranks, "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "1"}


@pytest.mark.parametrize("names", MPI_VARIABLES)
@pytest.mark.mission("E1.recognised")
def test_mpirun_process_is_a_rank_only_if_script_uses_horovod(names: tuple[str, str]) -> None:
    told = dict(zip(names, ("1", "3"), strict=True))
    assert task_from_environment(told) is None, "it may be anything"
    assert task_from_environment(told, horovod=True) == ClusterTask("worker", 1, 3, source_variable=names[0])
    assert mpi_rank(told) == HorovodRank(1, 3, *names)
    assert task_from_environment(told | {names[1]: "1"}, horovod=True) is None
    assert task_from_environment({names[0]: "1"}, horovod=True) is None
    both = told | {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"}
    known = ClusterTask("worker", 0, 2, source_variable="HOROVOD_RANK")
    assert task_from_environment(both, horovod=True) == task_from_environment(both) == known


@pytest.mark.parametrize(
    ("place", "first"),
    [
        (ClusterTask("worker", 0, 2), True),
        (ClusterTask("worker", 1, 2), False),
        (ClusterTask("chief", 0, 2, has_chief=True), True),
        (ClusterTask("worker", 0, 2, has_chief=True), False),
        (ClusterTask("ps", 0, 1), False),
    ],
)
def test_chief_or_else_the_first_worker_is_the_coordinator(place: ClusterTask, first: bool) -> None:
    assert place.is_coordinator is first
    assert place.kind == "ps" or (place.worker_index == 0) is first
