"""A worker of a tf.data service that is killed in the middle of an epoch and comes back: what still arrives.

After `tf.data.experimental.service.ShardingPolicy`: by DYNAMIC nothing comes twice, and what the lost worker was
working on may be missed; by OFF a worker that comes back begins again from the start.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipetune.model.coverage import times

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.source.standalone_service_files import companions
from pipetune.tf.standalone.processes import addresses, running

FILES, LINES = 12, 20
WANTED = Counter(range(FILES * LINES))
SECONDS = 60.0
KILLED_AFTER = 30

service = tf.data.experimental.service


@dataclass
class Service:
    """A dispatcher and workers, which are real processes; `serve.py` as it is written beside a module."""

    folder: Path
    stack: ExitStack
    address: str = ""
    workers: dict[int, Any] = field(default_factory=dict)

    def start(self, name: str, *arguments: str) -> Any:
        own = self.folder / name
        own.mkdir()
        command = (sys.executable, "-P", str(self.folder / "serve.py"), *arguments)
        started = self.stack.enter_context(running(own, [command], [{}]))
        started.wait_for(lambda: " at " in started.printed(0), SECONDS)
        return started

    def start_worker(self, port: int, name: str) -> None:
        to = self.address.partition("://")[2]
        arguments = ("worker", "--dispatcher", to, "--host", "127.0.0.1", "--port", str(port))
        self.workers[port] = self.start(name, *arguments).processes[0]

    def kill(self, port: int) -> None:
        self.workers[port].kill()
        self.workers[port].wait()


@contextmanager
def serving(folder: Path, workers: int) -> Iterator[Service]:
    with ExitStack() as stack:
        found = Service(folder, stack)
        (folder / "serve.py").write_text(dict(companions(""))["serve.py"])
        dispatcher = found.start("dispatcher", "dispatcher", "--port", "0")
        found.address = dispatcher.printed(0).split()[-1]
        for index, place in enumerate(addresses(workers)):
            found.start_worker(int(place.rpartition(":")[2]), f"worker-{index}")
        yield found


def numbers(folder: Path) -> Any:
    """The numbers of `WANTED` from files, each a few milliseconds of work."""
    for file in range(FILES):
        lines = "".join(f"{number}\n" for number in range(file * LINES, (file + 1) * LINES))
        (folder / f"part-{file:02d}.txt").write_text(lines)

    def worked(line: Any) -> Any:
        matrix = tf.random.stateless_uniform([300, 300], [1, 2])
        return tf.strings.to_number(line, tf.int64) + tf.cast(tf.reduce_max(matrix @ matrix) * 0, tf.int64)

    names = tf.data.Dataset.list_files(str(folder / "part-*.txt"), shuffle=False)
    return names.flat_map(tf.data.TextLineDataset).map(worked)


def came(folder: Path, dataset: Any, policy: Any) -> Counter[int]:
    """What a training process reads of two workers, one of which is killed after some elements and started again."""
    found: Counter[int] = Counter()
    with serving(folder, 2) as running_service:
        read = dataset.apply(
            service.distribute(policy, running_service.address, max_outstanding_requests=2, compression=None)
        )
        for count, number in enumerate(read.as_numpy_iterator()):
            found[int(number)] += 1
            if count == KILLED_AFTER:
                port = next(iter(running_service.workers))
                running_service.kill(port)
                running_service.start_worker(port, "again")
    return found


def test_by_dynamic_sharding_nothing_comes_twice_and_little_is_missed(tmp_path: Path) -> None:
    found = came(tmp_path, numbers(tmp_path), service.ShardingPolicy.DYNAMIC)
    told = times(WANTED, found)
    assert (told.twice, told.oftener, told.foreign) == (0, 0, 0)
    # The lost worker had a file, and elements on their way; all else comes, from the worker that comes back too.
    assert told.once >= (FILES - 3) * LINES and told.never + told.once == FILES * LINES


def test_without_sharding_a_worker_that_comes_back_begins_again(tmp_path: Path) -> None:
    found = came(tmp_path, numbers(tmp_path), service.ShardingPolicy.OFF)
    told = times(WANTED, found)
    assert (told.never, told.foreign) == (0, 0)
    assert min(found.values()) >= 2 and told.oftener > 0, "all of both, and again what the lost worker had given"
