"""Other processes that train together with this one, as far as the environment of the job tells."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

import tensorflow as tf

from pipetune.core.handover import OWN_PIPELINES, Handover
from pipetune.mistakes.use import Workers
from pipetune.tf import private
from pipetune.tf.script import capture
from pipetune.tf.script.consumption import Consumption

_HOROVOD_SIZE = "HOROVOD_SIZE"
_ASKS = re.compile(
    r"\b(rank|local_rank|task_id|task_index|task_type|worker_index|worker_id|process_index|process_id|shard_index|"
    r"num_shards|shard_id|shard_num|input_pipeline_id|num_input_pipelines|TF_CONFIG)\b|\.shard\("
)
"""Names by which a script finds out which worker it is, or divides data over them."""


def of(use: Consumption) -> Workers | None:
    """The workers of the job; None where the script trains alone."""
    told = told_by(os.environ, horovod="horovod" in sys.modules)
    if told is None:
        return None
    count, by = told
    return Workers(count, by, distributed=use.across_workers, asked=asks(_sources()))


def handover(use: Consumption) -> Handover | None:
    """How the dataset comes to the replicas that train on it; None where the script trains alone."""
    if use.handed is not None:
        return use.handed.facts()
    told = told_by(os.environ, horovod="horovod" in sys.modules)
    if told is None or told[1] != _HOROVOD_SIZE or use.role != "training":
        return None
    return Handover("Horovod", told[0], OWN_PIPELINES, told[0], private.batch_size_seen(use.dataset))


def across(strategy: object) -> bool:
    """Whether a strategy gives each process of a job its share of a dataset."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def told_by(environment: Mapping[str, str], *, horovod: bool) -> tuple[int, str] | None:
    """How many workers the environment names, and the variable that does; None without one.

    With parameter servers each worker reads all of the data, as it is meant there.

    Args:
        horovod: whether the script imports it: only then `HOROVOD_SIZE` is about the script.
    """
    try:
        cluster = json.loads(environment.get("TF_CONFIG", "{}")).get("cluster", {})
        count = sum(len(cluster.get(kind, ())) for kind in ("chief", "worker"))
    except (ValueError, AttributeError, TypeError):
        return None
    if count > 1:
        return (count, "TF_CONFIG") if "ps" not in cluster else None
    size = environment.get(_HOROVOD_SIZE, "")
    return (int(size), _HOROVOD_SIZE) if horovod and size.isdecimal() and int(size) > 1 else None


def asks(sources: Iterable[str]) -> bool:
    """Whether one of these texts names what tells workers apart: it may divide the data in ways nobody sees."""
    return any(_ASKS.search(text) for text in sources)


def _sources() -> Iterator[str]:
    """The texts of the user's modules; what cannot be read counts as one that asks."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and not capture.is_library(file):
            try:
                with open(file, encoding="utf-8", errors="replace") as opened:
                    yield opened.read()
            except OSError:
                yield "rank"
