"""What the chief of several workers and the others say, and what the chief makes of it; over real sockets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import NoReturn

import pytest

from pipetune.core import team as teams
from pipetune.core.cluster import Place, Task, configuration, place_in
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.in_step import Answer, Leave, Link, MeasureInput, Prepare, Train
from pipetune.core.json_lines import LinkBroken
from pipetune.core.measurement import RunFailed, Window
from pipetune.core.ranks import BY_MPI, Rank, rank_by_mpi
from pipetune.core.team import Team
from tests.core.sessions import PARALLEL

OPERATORS = ("range (n0)", "map (n1)")


def window(steps: int = 5, **changes: float) -> Window:
    return Window(steps=steps, examples=5, wall_seconds=0.5, cpu_seconds=0.4, first_seconds=0.1, **changes)


class FellOut(Exception):
    """In place of the end of the process."""


class Chief(Team):
    """A team whose chief does not end its process."""

    def fall_out(self, why: str, cause: BaseException | None = None) -> NoReturn:
        raise FellOut(why)


@pytest.fixture
def links() -> Iterator[list[tuple[Link, Link]]]:
    """Of two other workers: the chief's end, and theirs."""
    pairs = [socket.socketpair() for _ in range(2)]
    made = [(Link(near.detach()), Link(far.detach())) for near, far in pairs]
    yield made
    for pair in made:
        for end in pair:
            end.close()


def chief(links: list[tuple[Link, Link]]) -> Chief:
    return Chief([near for near, _ in links], out_of_step=lambda why, cause: None)


def answer(links: list[tuple[Link, Link]], *answers: Answer) -> None:
    for (_, far), one in zip(links, answers, strict=True):
        far.answer(one)


def test_orders_and_answers_arrive_as_they_were_sent(links: list[tuple[Link, Link]]) -> None:
    near, far = links[0]
    orders = [Prepare(Plan("p", (PARALLEL,))), Prepare(), Train(5, 2), MeasureInput(0.5, 0.1), Leave()]
    for order in orders:
        near.order(order)
    assert [far.next_order(5) for _ in orders] == orders
    answers = [Answer(window=window(compile_seconds=0.25)), Answer(why="no"), Answer(operators=OPERATORS)]
    for one in answers:
        far.answer(one)
    assert [near.next_answer(5) for _ in answers] == answers


def test_who_is_gone_or_silent_is_said_so(links: list[tuple[Link, Link]]) -> None:
    (near, far), (silent, _) = links
    far.close()
    with pytest.raises(LinkBroken, match="is gone"):
        near.next_answer(5)
    with pytest.raises(LinkBroken, match="is gone"):
        for _ in range(2):  # the first may still find room in the socket
            near.order(Leave())
    with pytest.raises(LinkBroken, match="did not answer for 0 s"):
        silent.next_answer(0.01)


def test_what_is_no_message_is_an_error(links: list[tuple[Link, Link]]) -> None:
    near, far = links[0]
    far._lines._socket.sendall(b"?\n")
    with pytest.raises(PipetuneError, match="no message"):
        near.next_answer(5)


def test_all_have_to_come_with_the_same_operators(links: list[tuple[Link, Link]]) -> None:
    answer(links, Answer(operators=OPERATORS), Answer(operators=OPERATORS))
    assert chief(links).gather(OPERATORS) == ""
    answer(links, Answer(operators=OPERATORS), Answer(operators=(OPERATORS[0], "batch (n1)")))
    assert chief(links).gather(OPERATORS) == "operator 2 is batch (n1) on worker 2 and map (n1) on worker 0"
    answer(links, Answer(operators=OPERATORS[:1]), Answer(operators=OPERATORS))
    assert chief(links).gather(OPERATORS) == "worker 1 has 1 operators and worker 0 2"
    answer(links, Answer(why="nothing trains"), Answer(operators=OPERATORS))
    assert chief(links).gather(OPERATORS) == "nothing trains"


def test_a_worker_that_does_not_come_ends_it(links: list[tuple[Link, Link]]) -> None:
    links[0][1].answer(Answer(operators=OPERATORS))
    with pytest.raises(FellOut, match="worker 2 did not answer"):
        chief(links).gather(OPERATORS, limit_seconds=0.05)


def test_what_one_cannot_build_fails_before_a_step(links: list[tuple[Link, Link]]) -> None:
    answer(links, Answer(), Answer(why="The plan cannot be built: no such file"))
    with pytest.raises(RunFailed, match="worker 2: The plan cannot be built"):
        chief(links).prepare(Plan("p"))
    assert [far.next_order(5) for _, far in links] == [Prepare(Plan("p"))] * 2
    answer(links, Answer(), Answer())
    chief(links).prepare(None)


def test_windows_of_as_many_steps_are_in_step(links: list[tuple[Link, Link]]) -> None:
    found = chief(links)
    found.train(steps=5, warmup=2)
    assert [far.next_order(5) for _, far in links] == [Train(5, 2)] * 2
    answer(links, Answer(window=window(compile_seconds=1.0)), Answer(window=window()))
    assert [one.compile_seconds for one in found.windows(window())] == [1.0, 0.0]
    answer(links, Answer(why="The script's loop ended."), Answer(why="The script's loop ended."))
    assert found.windows(None) == [], "nobody has taken them"


@pytest.mark.parametrize(
    ("answers", "own", "why"),
    [
        ((Answer(window=window()), Answer(window=window(4))), window(), "worker 2 took 4 steps, worker 0 5"),
        ((Answer(why="it raised"), Answer(window=window())), window(), "worker 1 took fewer steps: it raised"),
        ((Answer(why="it ended"), Answer(window=window())), None, "worker 2 took 5 steps, worker 0 fewer"),
    ],
)
def test_windows_of_other_steps_are_not(
    links: list[tuple[Link, Link]], answers: tuple[Answer, ...], own: Window | None, why: str
) -> None:
    answer(links, *answers)
    with pytest.raises(FellOut, match=why):
        chief(links).windows(own)


def test_a_worker_that_is_gone_ends_it_whatever_is_asked(
    links: list[tuple[Link, Link]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teams, "ANSWER_SECONDS", 0.05)
    links[0][1].close()
    found = chief(links)
    for ask in (
        lambda: found.prepare(None),
        lambda: found.windows(window()),
        lambda: found.measure_input(1, seconds=0.0, warmup_seconds=0.0),
    ):
        with pytest.raises(FellOut, match="worker 1"):
            ask()
    with pytest.raises(FellOut, match="worker 2 did not answer"):
        found.measure_input(2, seconds=0.0, warmup_seconds=0.0)
    found.leave()
    assert isinstance(links[1][1].next_order(5), MeasureInput | Prepare | Leave), "who is there hears it"


def test_one_worker_measures_while_the_others_rest(links: list[tuple[Link, Link]]) -> None:
    links[1][1].answer(Answer(window=window()))
    assert chief(links).measure_input(2, seconds=0.5, warmup_seconds=0.1) == window()
    assert links[1][1].next_order(5) == MeasureInput(0.5, 0.1)
    with pytest.raises(LinkBroken, match="did not answer"):
        links[0][1].next_order(0.01)
    links[0][1].answer(Answer(why="The dataset is empty."))
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
        ("", None),
        (" ", None),
        ("{}", None),
        (config(worker=1), None),
        ('{"task": {"type": "worker", "index": 3}}', None),
        ('{"cluster": {}, "task": {"type": "worker"}}', None),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief"}}', None),
        ('{"cluster": {"worker": ["a:1", "b:1"]}}', Place("worker", 0, 2)),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {}, "environment": "cloud"}', Place("worker", 0, 2)),
        (f'{{"cluster": {{"worker": {{"1": "b:1", "0": "a:1"}}}}, {TASK}', Place("worker", 1, 2)),
        (config(index="1", worker=2), Place("worker", 1, 2)),
        (config(index=1.0, worker=2), Place("worker", 1, 2)),
        (config("evaluator", index=0, chief=1, worker=1, evaluator=1), Place("evaluator", 0, 2, has_chief=True)),
        (config("evaluator", worker=2), Place("evaluator", 0, 2)),
        (config(worker=2), Place("worker", 0, 2)),
        (config(index=1, worker=2), Place("worker", 1, 2)),
        (config("chief", chief=1, worker=2), Place("chief", 0, 3, has_chief=True)),
        (config("ps", index=1, ps=2, worker=2), Place("ps", 1, 1)),
    ],
)
def test_the_place_of_a_machine_in_a_cluster(told: str | None, expected: Place | None) -> None:
    assert place_in({} if told is None else {"TF_CONFIG": told}) == expected


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("no json", "is not JSON: Expecting value"),
        ('{"cluster": {', "is not JSON: Expecting property name"),
        ("null", "is null, not a JSON object"),
        ("[1]", "is [1], not a JSON object"),
        ('"worker"', 'is "worker", not a JSON object'),
        ('{"cluster": null}', 'has a "cluster" that is null, not an object'),
        ('{"cluster": ["a:1"]}', 'has a "cluster" that is ["a:1"], not an object'),
        ('{"cluster": {"worker": 3}}', 'has a "cluster" whose "worker" is 3, not a list of addresses'),
        ('{"cluster": {"worker": "a:1"}}', 'has a "cluster" whose "worker" is "a:1", not a list of addresses'),
        ('{"cluster": {"worker": [1, 2]}}', 'has a "cluster" whose "worker" lists 1, not an address'),
        ('{"cluster": {"worker": {"x": "a:1"}}}', 'has a "cluster" whose "worker" is {"x": "a:1"}: addresses by names'),
        ('{"task": "worker"}', 'has a "task" that is "worker", not an object'),
        ('{"task": null}', 'has a "task" that is null, not an object'),
        ('{"task": {"index": null}}', 'has a "task" whose "index" is null, not a number'),
        (config(index="last", worker=2), 'has a "task" whose "index" is "last", not a number'),
        (config(index=2, worker=2), 'has a "task" with index 2, and a "cluster" with 2 of type "worker"'),
        (config(index=-1, worker=2), 'has a "task" with index -1, and a "cluster" with 2 of type "worker"'),
        (config("chief", worker=2), 'has a "task" of type "chief", and a "cluster" of worker'),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker"}}', 'has a "task" without "index"'),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"index": 0}}', 'has a "task" without "type"'),
        (json.dumps(["a" * 100]), f'is ["{"a" * 58}..., not a JSON object'),
    ],
)
def test_a_configuration_that_tensorflow_cannot_read_is_refused_with_what_is_wrong(told: str, says: str) -> None:
    with pytest.raises(PipetuneError) as refused:
        place_in({"TF_CONFIG": told})
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
        ("0", "2", Place("worker", 0, 2, told_by="HOROVOD_RANK")),
        ("3", "4", Place("worker", 3, 4, told_by="HOROVOD_RANK")),
    ],
)
@pytest.mark.mission("E1.recognised")
def test_a_rank_of_horovod_is_a_worker_of_a_cluster(rank: str, ranks: str, expected: Place | None) -> None:
    told = {"HOROVOD_RANK": rank, "HOROVOD_SIZE": ranks}
    assert place_in(told) == expected
    assert place_in({**told, "TF_CONFIG": config(worker=2)}) == Place("worker", 0, 2), "what it names comes first"


@pytest.mark.parametrize(
    "missing",
    [
        {"HOROVOD_GLOO_RENDEZVOUS_ADDR": ""},
        {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "no address"},
        {"HOROVOD_ELASTIC": "1"},
        {"HOROVOD_RANK": "", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
    ],
    ids=["none", "unknown", "their number may change", "by MPI"],
)
def test_ranks_that_cannot_be_started_again_are_not_asked_to(missing: dict[str, str]) -> None:
    place = place_in(by_gloo(0) | missing, horovod=True)
    assert place is not None and place.of_ranks and not place.in_step


@pytest.mark.mission("E1.recognised")
def test_ranks_that_find_each_other_by_a_server_may_be_started_with_one_of_ours() -> None:
    first, second = (place_in(by_gloo(rank)) for rank in (0, 1))
    assert first is not None and second is not None
    assert first.in_step and second.in_step
    assert (first.host, second.host) == ("127.0.0.1", ""), "the way to the first, which it has to say"
    told = {**by_gloo(1), "TF_CONFIG": config(worker=2)}
    assert place_in(told) == Place("worker", 0, 2), "what it names comes first"


def by_gloo(rank: int) -> dict[str, str]:
    """What horovodrun tells."""
    ranks = {"HOROVOD_RANK": str(rank), "HOROVOD_SIZE": "2"}
    return {**ranks, "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "1"}


@pytest.mark.parametrize("names", BY_MPI)
@pytest.mark.mission("E1.recognised")
def test_a_process_of_mpirun_is_a_rank_only_of_a_script_that_uses_horovod(names: tuple[str, str]) -> None:
    told = dict(zip(names, ("1", "3"), strict=True))
    assert place_in(told) is None, "it may be anything"
    assert place_in(told, horovod=True) == Place("worker", 1, 3, told_by=names[0])
    assert rank_by_mpi(told) == Rank(1, 3, *names)
    assert place_in(told | {names[1]: "1"}, horovod=True) is None
    assert place_in({names[0]: "1"}, horovod=True) is None
    both = told | {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"}
    assert place_in(both, horovod=True) == place_in(both) == Place("worker", 0, 2, told_by="HOROVOD_RANK")
    assert place_in({**told, "TF_CONFIG": config(worker=2)}, horovod=True) == Place("worker", 0, 2)


def test_the_configuration_of_a_worker_is_read_back() -> None:
    told = configuration(["127.0.0.1:1", "127.0.0.1:2"], 1)
    assert place_in({"TF_CONFIG": told}) == Place("worker", 1, 2)


@pytest.mark.parametrize(
    ("place", "first"),
    [
        (Place("worker", 0, 2), True),
        (Place("worker", 1, 2), False),
        (Place("chief", 0, 2, has_chief=True), True),
        (Place("worker", 0, 2, has_chief=True), False),
        (Place("ps", 0, 1), False),
    ],
)
def test_who_speaks_for_all(place: Place, first: bool) -> None:
    assert place.first is first
    assert Task(0, 2).chief and not Task(1, 2).chief
