"""Cases of distributed input: the computed delivery of each, and the same dataset for TensorFlow to distribute.

Imports TensorFlow only where a dataset is built.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipetune.model.delivery import ReplicaDelivery, dataset_delivery, function_delivery
from pipetune.model.sharding import AutoShardPolicy


@dataclass(frozen=True)
class Case:
    """One dataset with one kind of handover."""

    files: tuple[int, ...]  # elements in each
    batch: int  # the global batch size; with a function, that of a replica
    workers: int = 1
    replicas: int = 1  # of each worker
    policy: str = "auto"  # with a function: how it shards
    from_files: bool = True
    mapped: bool = False  # a map after the batch, which hides its size
    drop_remainder: bool = False
    steps: int | None = None  # of endless data
    function: bool = False

    def __str__(self) -> str:
        words = [f"{'+'.join(map(str, self.files))} by {self.batch}", self.policy, f"{self.workers}x{self.replicas}"]
        for word in ("mapped", "drop_remainder", "function"):
            words += [word] if getattr(self, word) else []
        words += [] if self.from_files else ["memory"]
        return ", ".join([*words, *([] if self.steps is None else [f"{self.steps} steps"])])

    def delivery(self) -> ReplicaDelivery:
        """The computed delivery."""
        if self.function:
            return function_delivery(
                self.files,
                self.batch,
                workers=self.workers,
                replicas_per_worker=self.replicas,
                policy=AutoShardPolicy(self.policy),
                drop_remainder=self.drop_remainder,
                steps=self.steps,
            )
        return dataset_delivery(
            self.files,
            self.batch,
            workers=self.workers,
            replicas_per_worker=self.replicas,
            policy=AutoShardPolicy(self.policy),
            from_files=self.from_files,
            batch_size_known=self.drop_remainder or not self.mapped,
            drop_remainder=self.drop_remainder,
            steps=self.steps,
        )

    def write(self, folder: Path) -> list[str]:
        """Writes the files, one number per line; returns their names."""
        own = folder / "-".join(map(str, self.files))
        own.mkdir(exist_ok=True)
        names, first = [], 0
        for index, count in enumerate(self.files):
            path = own / str(index)
            path.write_text("".join(f"{number}\n" for number in range(first, first + count)))
            names.append(str(path))
            first += count
        return names

    def dataset(self, names: list[str], context: Any = None) -> Any:
        """The dataset for `experimental_distribute_dataset`, or the result of a `dataset_fn` for a context."""
        import tensorflow as tf

        files = tf.data.Dataset.from_tensor_slices(names)
        if context is not None and self.policy == "file":
            files = files.shard(context.num_input_pipelines, context.input_pipeline_id)
        if self.from_files:
            dataset = tf.data.TextLineDataset(files).map(lambda line: tf.strings.to_number(line, tf.int64))
        else:
            dataset = tf.data.Dataset.range(sum(self.files))
        if context is not None and self.policy == "data":
            dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
        if self.steps is not None:
            dataset = dataset.repeat()
        dataset = dataset.batch(self.batch, drop_remainder=self.drop_remainder)
        if self.mapped:
            dataset = dataset.map(lambda batch: batch + 0)
        options = tf.data.Options()
        policy = getattr(tf.data.experimental.AutoShardPolicy, self.policy.upper())
        options.experimental_distribute.auto_shard_policy = policy
        return dataset.with_options(options)


def elements(delivery: ReplicaDelivery, worker: int) -> list[list[list[int]]]:
    """The numbers of the elements, by step and replica."""
    mine = delivery.workers[worker]
    return [
        [list(mine.elements(step, replica)) for replica in range(delivery.replicas_per_worker)]
        for step in range(delivery.steps)
    ]


def minibatches(delivery: ReplicaDelivery, worker: int) -> list[list[int]]:
    """The batches of a worker's own pipeline, without the runtime's dummy batches."""
    parts = [part for step in elements(delivery, worker) for part in step]
    return parts[: delivery.workers[worker].minibatches]


def drawn(count: int, seed: int) -> Iterator[Case]:
    """Random cases, without those that fail: too few files, or endless repetition of an empty dataset."""
    draw = random.Random(seed)
    while count:
        workers, function = draw.randint(1, 4), draw.random() < 0.2
        policy = draw.choice(["file", "data", "off"] if function else ["auto", "file", "data", "off"])
        from_files = policy == "file" or draw.random() < 0.6
        case = Case(
            files=tuple(draw.randint(0, 9) for _ in range(draw.randint(1, 6))),
            batch=draw.randint(1, 12),
            workers=workers,
            replicas=draw.randint(1, 3),
            policy=policy,
            from_files=from_files,
            mapped=draw.random() < 0.3,
            drop_remainder=draw.random() < 0.3,
            steps=draw.choice([None, None, None, 3]),
            function=function,
        )
        by_file = policy == "file" or (policy == "auto" and from_files)
        refused = by_file and len(case.files) < workers and (not function or case.steps is not None)
        if not refused and (case.steps is None or all(case.files)):
            count -= 1
            yield case


def _mirrored() -> Iterator[Case]:
    for count, batch, replicas in ((6, 4, 2), (4, 4, 5), (8, 4, 3)):  # the examples of TensorFlow's guide
        for policy in ("auto", "file", "data", "off"):
            yield Case((count,), batch, replicas=replicas, policy=policy, from_files=policy == "file")
    yield Case((3, 3), 4, replicas=2)
    for replicas in range(2, 9):
        yield Case((29,), 8, replicas=replicas, from_files=False, drop_remainder=replicas % 2 == 0)
        yield Case((10, 13), 5, replicas=replicas, mapped=replicas % 2 == 0)
    yield Case((3,), 2, replicas=4, policy="off", from_files=False)
    yield Case((5,), 6, replicas=3, from_files=False, steps=4)
    for drop in (False, True):
        yield Case((11,), 2, replicas=3, policy="data", drop_remainder=drop, function=True)
    yield Case((11,), 2, replicas=2, policy="off", steps=4, function=True)


def _cluster(workers: int) -> Iterator[Case]:
    for policy in ("auto", "file", "data", "off"):
        yield Case((6,) * workers, 4, workers, policy=policy)
        yield Case((7, 1, 3, 2), 5, workers, policy=policy)
    yield Case((12,), 4, workers, policy="data")
    yield Case((12,), 4, workers, policy="off")
    yield Case((16,), 4, workers, from_files=False)
    yield Case((6,) * workers, 4, workers, policy="file", mapped=True)
    yield Case((7, 2, 3, 4), 3, workers, policy="file", drop_remainder=True)
    yield Case((3,), 1, workers, policy="off", from_files=False)
    yield Case((5, 3, 2, 4), 4, workers, policy="file", steps=4)
    for policy in ("file", "data", "off"):
        yield Case((7, 1, 3), 2, workers, policy=policy, function=True)
    yield Case((11,), 2, workers, policy="data", drop_remainder=True, function=True)
    yield Case((4, 4), 2, workers, policy="file", function=True)


MIRRORED = tuple(_mirrored())
"""For logical devices of one process."""

CLUSTERS = {workers: tuple(_cluster(workers)) for workers in (2, 3, 4)}
"""By number of worker processes, with one replica each."""
