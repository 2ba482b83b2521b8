"""The ranks of Horovod, as the variables of `horovodrun` or of `mpirun` name them.

Source: "Run Horovod" and "Horovod with MPI" (its documentation) on `HOROVOD_RANK` and `HOROVOD_SIZE`, and on `mpirun`;
`horovod/runner/gloo_run.py` (0.28.1) on where ranks that are started without MPI find each other.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

RANK, RANKS, LOCAL_RANKS = "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"
BY_MPI = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
"""A rank and the number of ranks as Open MPI, and MPICH and Intel MPI, tell every process, Horovod's or not."""
RENDEZVOUS_HOST, RENDEZVOUS_PORT = "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"
_ELASTIC = "HOROVOD_ELASTIC"
_DISCARD = 9  # a port, of which nothing is wanted


@dataclass(frozen=True)
class Rank:
    """One process of several that a launcher started side by side."""

    rank: int
    ranks: int
    told_by: str  # the variable of the rank
    number_told_by: str  # that of their number


def rank_in(environment: Mapping[str, str], *, horovod: bool) -> Rank | None:
    """The rank of Horovod that the environment says this process is; None where it names none of several.

    Args:
        horovod: whether the script uses it: only then what `mpirun` tells is about ranks of Horovod.
    """
    found = _rank_by(environment, RANK, RANKS)
    return found or (rank_by_mpi(environment) if horovod else None)


def rank_by_mpi(environment: Mapping[str, str]) -> Rank | None:
    """Which of the processes of `mpirun` this is, whatever they do; None where there are not several."""
    return next((found for names in BY_MPI if (found := _rank_by(environment, *names))), None)


def rendezvous_address(environment: Mapping[str, str]) -> str:
    """This machine's, where ranks can be started again with a server there by which they find each other; else "".

    That is where `horovodrun` has started them with Gloo, and their number stays. MPI lets a rank begin only once. The
    address is that in the network of the server that they have now, in which each rank knows all others.
    """
    theirs = environment.get(RENDEZVOUS_HOST, "")
    if not theirs or environment.get(_ELASTIC) or _rank_by(environment, RANK, RANKS) is None:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        try:
            unsent.connect((theirs, _DISCARD))  # of a datagram socket this looks up the way, and sends nothing
            return str(unsent.getsockname()[0])
        except OSError:
            return ""


def _rank_by(environment: Mapping[str, str], rank: str, ranks: str) -> Rank | None:
    mine, all_of_them = environment.get(rank, ""), environment.get(ranks, "")
    if not (mine.isdecimal() and all_of_them.isdecimal()) or int(all_of_them) < 2:
        return None
    return Rank(int(mine), int(all_of_them), rank, ranks)
