"""Horovod ranks, as described by the environment variables of `horovodrun` or `mpirun`.

Sources: "Run Horovod" and "Horovod with MPI" (Horovod documentation) on `HOROVOD_RANK`, `HOROVOD_SIZE` and `mpirun`;
`horovod/runner/gloo_run.py` (0.28.1) on the rendezvous of ranks that are started without MPI.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

RANK, RANKS, LOCAL_RANKS = "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"
BY_MPI = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
"""Variables of Open MPI, and of MPICH and Intel MPI, for rank and number of ranks; set for every process they start."""
RENDEZVOUS_HOST, RENDEZVOUS_PORT = "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"
_ELASTIC = "HOROVOD_ELASTIC"
_DISCARD = 9  # any port: nothing is sent to it


@dataclass(frozen=True)
class Rank:
    """One of several processes that a launcher started in parallel."""

    rank: int
    ranks: int
    told_by: str  # the environment variable with the rank
    number_told_by: str  # the environment variable with the number of ranks


def rank_in(environment: Mapping[str, str], *, horovod: bool) -> Rank | None:
    """Returns the Horovod rank of this process according to the environment; None if it is not one of several.

    Args:
        horovod: whether the script uses Horovod; only then are the variables of `mpirun` about Horovod ranks.
    """
    found = _rank_by(environment, RANK, RANKS)
    return found or (rank_by_mpi(environment) if horovod else None)


def rank_by_mpi(environment: Mapping[str, str]) -> Rank | None:
    """Returns the rank of this process under `mpirun`, with or without Horovod; None if there are not several."""
    return next((found for names in BY_MPI if (found := _rank_by(environment, *names))), None)


def rendezvous_address(environment: Mapping[str, str]) -> str:
    """Returns this machine's address for a new rendezvous server if the ranks can be restarted with one, else "".

    They can if `horovodrun` started them with Gloo and their number is fixed; under MPI a rank can start only once. It
    is the address in the network of the current rendezvous server, which all ranks use to reach each other.
    """
    theirs = environment.get(RENDEZVOUS_HOST, "")
    if not theirs or environment.get(_ELASTIC) or _rank_by(environment, RANK, RANKS) is None:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        try:
            unsent.connect((theirs, _DISCARD))  # for a datagram socket this only selects the route
            return str(unsent.getsockname()[0])
        except OSError:
            return ""


def _rank_by(environment: Mapping[str, str], rank: str, ranks: str) -> Rank | None:
    mine, all_of_them = environment.get(rank, ""), environment.get(ranks, "")
    if not (mine.isdecimal() and all_of_them.isdecimal()) or int(all_of_them) < 2:
        return None
    return Rank(int(mine), int(all_of_them), rank, ranks)
