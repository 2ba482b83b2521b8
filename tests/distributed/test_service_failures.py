"""Elements delivered by a tf.data service when a worker is killed in the middle of an epoch and restarted.

According to `tf.data.experimental.service.ShardingPolicy`, with DYNAMIC no element is delivered twice, and those that
the lost worker was processing may be missed; with OFF a restarted worker begins again from the start.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipetune.core.cluster import free_addresses
from pipetune.model.coverage import count_deliveries

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.distributed.emit.kinds.service import companions
from tests.processes.side_by_side import running

FILES, LINES = 12, 20
WANTED = Counter(range(FILES * LINES))
SECONDS = 200.0
KILLED_AFTER = 30

service = tf.data.experimental.service


@dataclass
class Service:
    """A dispatcher and workers in separate processes, with `serve.py` as it is written next to a module."""

    folder: Path
    stack: ExitStack
    address: str = ""
    workers: dict[str, Any] = field(default_factory=dict)  # by port

    def start(self, name: str, *arguments: str) -> Any:
        own = self.folder / name
        own.mkdir()
        command = (sys.executable, "-P", str(self.folder / "serve.py"), *arguments)
        return self.stack.enter_context(running(own, [command], [{}]))

    def start_workers(self, *ports: str, name: str) -> None:
        common = ("worker", "--dispatcher", self.address.partition("://")[2], "--host", "127.0.0.1", "--port")
        started = [self.start(f"{name}-{port}", *common, port) for port in ports]
        for port, one in zip(ports, started, strict=True):
            one.wait_for(lambda one=one: "worker of" in one.printed(0), SECONDS)
            self.workers[port] = one.processes[0]

    def lose_a_worker(self, name: str) -> None:
        """Kills a worker and starts another at the same address."""
        port = next(iter(self.workers))
        self.workers[port].kill()
        self.workers[port].wait()
        self.start_workers(port, name=name)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "serve.py").write_text(dict(companions(""))["serve.py"])
    with ExitStack() as stack:
        found = Service(folder, stack)
        dispatcher = found.start("dispatcher", "dispatcher", "--port", "0")
        dispatcher.wait_for(lambda: "dispatcher at" in dispatcher.printed(0), SECONDS)
        found.address = dispatcher.printed(0).split()[-1]
        found.start_workers(*(place.rpartition(":")[2] for place in free_addresses(2)), name="worker")
        yield found


def numbers(folder: Path) -> Any:
    """The numbers of `WANTED` from files, each with a few milliseconds of work."""
    for file in range(FILES):
        lines = "".join(f"{number}\n" for number in range(file * LINES, (file + 1) * LINES))
        (folder / f"part-{file:02d}.txt").write_text(lines)

    def worked(line: Any) -> Any:
        matrix = tf.random.stateless_uniform([300, 300], [1, 2])
        return tf.strings.to_number(line, tf.int64) + tf.cast(tf.reduce_max(matrix @ matrix) * 0, tf.int64)

    names = tf.data.Dataset.list_files(str(folder / "part-*.txt"), shuffle=False)
    return names.flat_map(tf.data.TextLineDataset).map(worked)


def came(served: Service, folder: Path, policy: Any) -> Counter[int]:
    """The elements a training process gets from two workers, one of which is killed and restarted."""
    found: Counter[int] = Counter()
    read = numbers(folder).apply(
        service.distribute(policy, served.address, max_outstanding_requests=2, compression=None)
    )
    both, lost = policy is service.ShardingPolicy.DYNAMIC, False
    for count, number in enumerate(read.as_numpy_iterator()):
        found[int(number)] += 1
        both = both or found[int(number)] == 2  # without sharding, a repeated element shows that both have delivered
        if both and count >= KILLED_AFTER and not lost:
            served.lose_a_worker(policy.name)
            lost = True
    assert lost
    return found


@pytest.mark.exhaustive
def test_health_check_tells_whether_a_server_answers(served: Service) -> None:
    for address, code in ((served.address, 0), (free_addresses(1)[0], 1)):
        port = address.rpartition(":")[2]
        command = [sys.executable, str(served.folder / "serve.py"), "check", "--port", port]
        assert subprocess.run(command, timeout=120, check=False, capture_output=True).returncode == code


@pytest.mark.exhaustive
def test_dynamic_sharding_repeats_nothing_and_loses_little(tmp_path: Path, served: Service) -> None:
    found = came(served, tmp_path, service.ShardingPolicy.DYNAMIC)
    told = count_deliveries(WANTED, found)
    assert (told.twice, told.more_than_twice, told.unexpected) == (0, 0, 0)
    # The lost worker had a file and undelivered elements; all others are delivered, also by the restarted worker.
    assert told.once >= (FILES - 3) * LINES and told.never + told.once == FILES * LINES


@pytest.mark.exhaustive
def test_restarted_worker_without_sharding_begins_from_the_start(tmp_path: Path, served: Service) -> None:
    found = came(served, tmp_path, service.ShardingPolicy.OFF)
    told = count_deliveries(WANTED, found)
    assert (told.never, told.unexpected) == (0, 0)
    assert min(found.values()) >= 2 and told.more_than_twice > 0, (
        "all of both, and again what the lost worker had given"
    )
