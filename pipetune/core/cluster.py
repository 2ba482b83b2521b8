"""The processes of one training job, as described by `TF_CONFIG` or the environment variables of `horovodrun`.

Source: "Multi-worker training with Keras" and "Distributed training with TensorFlow" (guides), on `TF_CONFIG`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from pipetune.core.errors import PipetuneError
from pipetune.core.ranks import Rank, rank_in, rendezvous_address

LOOPBACK = "127.0.0.1"
VARIABLE = "TF_CONFIG"
_IN_STEP = ("chief", "worker")
_BESIDE = "evaluator"  # a task that need not be listed in the cluster: nobody connects to it
_LONGEST = 60  # characters of a value in a message


@dataclass(frozen=True)
class Task:
    """One of several processes that train in lockstep; the first one is the chief, which runs the analysis."""

    index: int
    workers: int
    link: tuple[int, ...] = ()  # sockets: the chief has one per other worker, a worker one to the chief
    elsewhere: bool = False  # existing cluster: each worker is one of its tasks, started by the command there

    @property
    def chief(self) -> bool:
        return self.index == 0


@dataclass(frozen=True)
class Place:
    """The task of this machine in a cluster that was not started by pipetune."""

    kind: str  # "chief", "worker", "ps", "evaluator"
    index: int  # among the tasks of its kind
    workers: int  # processes in lockstep: chief and workers; 1 if the job uses parameter servers
    has_chief: bool = False  # else the first worker acts as chief
    told_by: str = VARIABLE  # the environment variable that names this task
    host: str = field(default="", compare=False)  # host of the coordinating task, as the other tasks address it
    by_rendezvous: bool = False  # Horovod ranks that meet at a rendezvous server, which pipetune can provide

    @property
    def first(self) -> bool:
        """Whether this task coordinates the others: the chief, or the first worker if there is no chief."""
        return self.kind == "chief" or (self.kind == "worker" and self.index == 0 and not self.has_chief)

    @property
    def in_step(self) -> bool:
        """Whether it is one of several tasks that may train in lockstep and can be restarted any number of times."""
        again = self.by_rendezvous or not self.of_ranks  # under MPI a rank cannot be restarted
        return self.workers > 1 and self.kind in _IN_STEP and again

    @property
    def of_ranks(self) -> bool:
        """Whether it is a Horovod rank."""
        return self.told_by != VARIABLE

    @property
    def number(self) -> int:
        """Index among all processes that train in lockstep, starting with 0."""
        return self.index + (self.has_chief and self.kind != "chief")

    def __str__(self) -> str:
        return f"{self.kind} {self.index}"


def free_addresses(count: int) -> list[str]:
    """Returns `count` distinct loopback addresses, "host:port", that are free at the moment.

    Raises:
        OSError: there are not enough free ports.
    """
    with ExitStack() as stack:
        listening = [stack.enter_context(socket.create_server((LOOPBACK, 0))) for _ in range(count)]
        return [f"{LOOPBACK}:{one.getsockname()[1]}" for one in listening]


def configuration(addresses: Sequence[str], index: int) -> str:
    """Returns the `TF_CONFIG` of worker `index` in a cluster of workers at these addresses, "host:port"."""
    return task_configuration({"worker": addresses}, "worker", index)


def task_configuration(cluster: Mapping[str, Sequence[str]], kind: str, index: int) -> str:
    """Returns the `TF_CONFIG` of one task; `cluster` holds the addresses of each kind of task, "host:port"."""
    addresses = {one: list(its_own) for one, its_own in cluster.items()}
    return json.dumps({"cluster": addresses, "task": {"type": kind, "index": index}})


def with_servers(*, workers: int, servers: int) -> tuple[tuple[str, int], ...]:
    """Returns the tasks (kind, index) of a parameter-server job: the chief, which dispatches the steps, comes first."""
    counts = {"chief": 1, "worker": workers, "ps": servers}
    return tuple((kind, index) for kind, count in counts.items() for index in range(count))


def place_in(environment: Mapping[str, str], *, horovod: bool = False) -> Place | None:
    """Returns the task that the environment assigns to this machine; None if it describes no cluster of several tasks.

    A Horovod rank becomes the worker with that index, because all ranks train in lockstep.

    Args:
        horovod: as in `rank_in`.

    Raises:
        PipetuneError: TensorFlow cannot read `TF_CONFIG`; the message says what is wrong with it.
    """
    cluster, kind, index = _read(environment.get(VARIABLE, ""))
    counts = {kind: len(addresses) for kind, addresses in cluster.items()}
    if sum(counts.values()) < 2:
        rank = rank_in(environment, horovod=horovod)
        return _place_of(rank, environment) if rank is not None else None
    workers = 1 if "ps" in counts else sum(counts.get(one, 0) for one in _IN_STEP)
    has_chief = bool(counts.get("chief"))
    first = (cluster.get("chief") or cluster.get("worker") or [""])[0]
    return Place(kind, index, workers, has_chief, host=first.rpartition(":")[0].strip("[]"))


def _read(text: str) -> tuple[dict[str, list[str]], str, int]:
    """Parses `TF_CONFIG`: the addresses of each kind of task, and the kind and index of this task.

    Accepts what `tf.distribute.cluster_resolver.TFConfigClusterResolver` (2.21) accepts: an index given as text,
    addresses as an object keyed by index, a cluster without a task. As in strategies, the task must be in the cluster.
    Stricter in one respect: only a JSON object is accepted, while the resolver silently ignores a list or a string.

    Raises:
        PipetuneError: the text is anything else.
    """
    if not text.strip():  # treated as unset: scripts that never read it run like this
        return {}, _IN_STEP[1], 0
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _garbage(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _garbage(f"is {_named(found)}, not a JSON object")
    cluster, task = found.get("cluster", {}), found.get("task", {})
    if not isinstance(cluster, dict):
        raise _garbage(f'has a "cluster" that is {_named(cluster)}, not an object with a list for each kind of task')
    if not isinstance(task, dict):
        raise _garbage(f'has a "task" that is {_named(task)}, not an object with "type" and "index"')
    addresses = {str(kind): _addresses(str(kind), given) for kind, given in cluster.items()}
    several = sum(map(len, addresses.values())) > 1
    missing = [name for name in ("type", "index") if name not in task]
    if several and len(missing) == 1:
        raise _garbage(f'has a "task" without "{missing[0]}"')
    kind = str(task.get("type", _IN_STEP[1]))
    try:
        index = int(task.get("index", 0))
    except (TypeError, ValueError):
        raise _garbage(f'has a "task" whose "index" is {_named(task["index"])}, not a number') from None
    if several and kind not in addresses and kind != _BESIDE:
        raise _garbage(f'has a "task" of type "{kind}", and a "cluster" of {", ".join(addresses)}')
    count = len(addresses.get(kind, ())) or index + 1
    if several and not 0 <= index < count:
        raise _garbage(f'has a "task" with index {index}, and a "cluster" with {count} of type "{kind}"')
    return addresses, kind, index


def _addresses(kind: str, given: object) -> list[str]:
    """Returns the addresses of one kind of task in order, given as a list or as an object keyed by index."""
    if isinstance(given, dict):
        try:
            given = [given[number] for number in sorted(given, key=int)]
        except ValueError:
            raise _garbage(f'has a "cluster" whose "{kind}" is {_named(given)}: addresses by names') from None
    if not isinstance(given, list):
        raise _garbage(f'has a "cluster" whose "{kind}" is {_named(given)}, not a list of addresses')
    for address in given:
        if not isinstance(address, str):
            raise _garbage(f'has a "cluster" whose "{kind}" lists {_named(address)}, not an address "host:port"')
    return given


def _named(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _garbage(what: str) -> PipetuneError:
    return PipetuneError(
        f"{VARIABLE} {what}.",
        hint='Correct it, as in {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}, '
        "or unset it to analyse one process. Nothing was run.",
    )


def _place_of(rank: Rank, environment: Mapping[str, str]) -> Place:
    address = rendezvous_address(environment)
    host = address if rank.rank == 0 else ""
    return Place("worker", rank.rank, rank.ranks, told_by=rank.told_by, host=host, by_rendezvous=bool(address))
