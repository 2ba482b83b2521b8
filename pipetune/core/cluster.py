"""The processes of one training job, from `TF_CONFIG` or the environment variables of Horovod's launchers."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from pipetune.core.errors import PipetuneError

LOOPBACK = "127.0.0.1"
TF_CONFIG = "TF_CONFIG"
_LOCKSTEP_KINDS = ("chief", "worker")
_EVALUATOR = "evaluator"  # a task that need not be listed in the cluster: nobody connects to it
_MAX_VALUE_LENGTH = 60  # characters of a value in a message


@dataclass(frozen=True)
class LockstepRole:
    """One of several processes that train in lockstep; the first one is the chief, which runs the analysis."""

    index: int
    workers: int
    link_descriptors: tuple[int, ...] = ()  # sockets: the chief has one per other worker, a worker one to the chief
    existing_cluster: bool = False  # each worker is a task of an existing cluster, started by the command there

    @property
    def is_chief(self) -> bool:
        return self.index == 0


@dataclass(frozen=True)
class ClusterTask:
    """The task of this machine in a cluster that was not started by pipetune."""

    kind: str  # "chief", "worker", "ps", "evaluator"
    index: int  # among the tasks of its kind
    workers: int  # processes in lockstep: chief and workers; 1 if the job uses parameter servers
    has_chief: bool = False  # False: the first worker acts as chief
    source_variable: str = TF_CONFIG  # the environment variable that names this task
    # Host of the coordinating task, as the other tasks address it.
    coordinator_host: str = field(default="", compare=False)
    has_rendezvous: bool = False  # Horovod ranks that meet at a rendezvous server, which pipetune can provide

    @property
    def is_coordinator(self) -> bool:
        """Whether this task coordinates the others: the chief, or the first worker if there is no chief."""
        return self.kind == "chief" or (self.kind == "worker" and self.index == 0 and not self.has_chief)

    @property
    def can_train_in_lockstep(self) -> bool:
        """Whether it is one of several tasks that may train in lockstep and can be restarted any number of times."""
        again = self.has_rendezvous or not self.is_horovod_rank  # under MPI a rank cannot be restarted
        return self.workers > 1 and self.kind in _LOCKSTEP_KINDS and again

    @property
    def is_horovod_rank(self) -> bool:
        return self.source_variable != TF_CONFIG

    @property
    def worker_index(self) -> int:
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


def tf_config(cluster: Mapping[str, Sequence[str]], kind: str, index: int) -> str:
    """Returns the `TF_CONFIG` of one task; `cluster` maps each kind of task to its addresses, "host:port"."""
    addresses = {one: list(its_own) for one, its_own in cluster.items()}
    return json.dumps({"cluster": addresses, "task": {"type": kind, "index": index}})


def parameter_server_tasks(*, workers: int, servers: int) -> tuple[tuple[str, int], ...]:
    """Returns the tasks (kind, index) of a parameter-server job: the chief, which dispatches the steps, comes first."""
    counts = {"chief": 1, "worker": workers, "ps": servers}
    return tuple((kind, index) for kind, count in counts.items() for index in range(count))


def task_from_environment(environment: Mapping[str, str], *, horovod: bool = False) -> ClusterTask | None:
    """Returns the task that the environment assigns to this machine; None if it describes no cluster of several tasks.

    A Horovod rank (see `horovod_rank`) becomes the worker with that index, because all ranks train in lockstep.

    Raises:
        PipetuneError: TensorFlow cannot read `TF_CONFIG`; the message says what is wrong with it.
    """
    cluster, kind, index = _read(environment.get(TF_CONFIG, ""))
    counts = {kind: len(addresses) for kind, addresses in cluster.items()}
    if sum(counts.values()) < 2:
        rank = horovod_rank(environment, horovod=horovod)
        if rank is None:
            return None
        address = new_rendezvous_address(environment)
        return ClusterTask(
            "worker",
            rank.rank,
            rank.size,
            source_variable=rank.rank_variable,
            coordinator_host=address if rank.rank == 0 else "",
            has_rendezvous=bool(address),
        )
    workers = 1 if "ps" in counts else sum(counts.get(one, 0) for one in _LOCKSTEP_KINDS)
    has_chief = bool(counts.get("chief"))
    first = (cluster.get("chief") or cluster.get("worker") or [""])[0]
    return ClusterTask(kind, index, workers, has_chief, coordinator_host=first.rpartition(":")[0].strip("[]"))


def _read(text: str) -> tuple[dict[str, list[str]], str, int]:
    """Returns the contents of `TF_CONFIG`: the addresses of each kind of task, and the kind and index of this task.

    Accepts what `tf.distribute.cluster_resolver.TFConfigClusterResolver` (2.21) accepts: an index given as text,
    addresses as an object keyed by index, a cluster without a task. As in strategies, the task must be in the cluster.
    Stricter in one respect: only a JSON object is accepted, while the resolver silently ignores a list or a string.

    Raises:
        PipetuneError: the text is anything else.
    """
    if not text.strip():  # treated as unset: scripts that never read it run like this
        return {}, _LOCKSTEP_KINDS[1], 0
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _invalid_tf_config(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _invalid_tf_config(f"is {_abbreviated(found)}, not a JSON object")
    cluster, task = found.get("cluster", {}), found.get("task", {})
    if not isinstance(cluster, dict):
        raise _invalid_tf_config(
            f'has a "cluster" that is {_abbreviated(cluster)}, not an object with a list of addresses for '
            "each task type"
        )
    if not isinstance(task, dict):
        raise _invalid_tf_config(f'has a "task" that is {_abbreviated(task)}, not an object with "type" and "index"')
    addresses = {str(kind): _addresses(str(kind), given) for kind, given in cluster.items()}
    several = sum(map(len, addresses.values())) > 1
    missing = [name for name in ("type", "index") if name not in task]
    if several and len(missing) == 1:
        raise _invalid_tf_config(f'has a "task" without "{missing[0]}"')
    kind = str(task.get("type", _LOCKSTEP_KINDS[1]))
    try:
        index = int(task.get("index", 0))
    except (TypeError, ValueError):
        raise _invalid_tf_config(f'has a "task" whose "index" is {_abbreviated(task["index"])}, not a number') from None
    if several and kind not in addresses and kind != _EVALUATOR:
        raise _invalid_tf_config(f'has a "task" of type "{kind}", but the "cluster" has only {", ".join(addresses)}')
    count = len(addresses.get(kind, ())) or index + 1
    if several and not 0 <= index < count:
        raise _invalid_tf_config(
            f'has a "task" with index {index}, but the "cluster" has {count} tasks of type "{kind}"'
        )
    return addresses, kind, index


def _addresses(kind: str, given: object) -> list[str]:
    """Returns the addresses of one kind of task in order, given as a list or as an object keyed by index."""
    if isinstance(given, dict):
        try:
            given = [given[number] for number in sorted(given, key=int)]
        except ValueError:
            raise _invalid_tf_config(
                f'has a "cluster" whose "{kind}" is {_abbreviated(given)}: its keys must be numbers'
            ) from None
    if not isinstance(given, list):
        raise _invalid_tf_config(f'has a "cluster" whose "{kind}" is {_abbreviated(given)}, not a list of addresses')
    for address in given:
        if not isinstance(address, str):
            raise _invalid_tf_config(
                f'has a "cluster" whose "{kind}" lists {_abbreviated(address)}, not an address "host:port"'
            )
    return given


def _abbreviated(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."


def _invalid_tf_config(what: str) -> PipetuneError:
    return PipetuneError(
        f"{TF_CONFIG} {what}.",
        hint='Correct it, as in {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}, '
        "or unset it to analyze a single process. Nothing was run.",
    )


RANK_VARIABLE, SIZE_VARIABLE, LOCAL_SIZE_VARIABLE = "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"
MPI_VARIABLES = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
"""Variables of Open MPI, and of MPICH and Intel MPI, for rank and number of ranks; set for every process they start."""
RENDEZVOUS_HOST, RENDEZVOUS_PORT = "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"
_ELASTIC = "HOROVOD_ELASTIC"
_DISCARD_PORT = 9  # any port: nothing is sent to it


@dataclass(frozen=True)
class HorovodRank:
    """One of several processes that a launcher started in parallel."""

    rank: int
    size: int
    rank_variable: str  # the environment variable with the rank
    size_variable: str  # the environment variable with the number of ranks


def horovod_rank(environment: Mapping[str, str], *, horovod: bool) -> HorovodRank | None:
    """Returns the Horovod rank of this process according to the environment; None if it is not one of several.

    The variables of `mpirun` refer to Horovod ranks only if the script uses `horovod`.
    """
    return _rank_from(environment, RANK_VARIABLE, SIZE_VARIABLE) or (mpi_rank(environment) if horovod else None)


def mpi_rank(environment: Mapping[str, str]) -> HorovodRank | None:
    """Returns the rank of this process under `mpirun`, with or without Horovod; None if there are not several."""
    return next((found for names in MPI_VARIABLES if (found := _rank_from(environment, *names))), None)


def new_rendezvous_address(environment: Mapping[str, str]) -> str:
    """Returns this machine's address for a new rendezvous server if the ranks can be restarted with one, else "".

    Ranks can be restarted if `horovodrun` started them with Gloo and their number is fixed; under MPI a rank can start
    only once. The address is the one in the network of the current rendezvous server, which all ranks can reach.
    """
    address = environment.get(RENDEZVOUS_HOST, "")
    if not address or environment.get(_ELASTIC) or _rank_from(environment, RANK_VARIABLE, SIZE_VARIABLE) is None:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        try:
            unsent.connect((address, _DISCARD_PORT))  # for a datagram socket this only selects the route
            return str(unsent.getsockname()[0])
        except OSError:
            return ""


def _rank_from(environment: Mapping[str, str], rank: str, ranks: str) -> HorovodRank | None:
    mine, all_of_them = environment.get(rank, ""), environment.get(ranks, "")
    if not (mine.isdecimal() and all_of_them.isdecimal()) or int(all_of_them) < 2:
        return None
    return HorovodRank(int(mine), int(all_of_them), rank, ranks)
