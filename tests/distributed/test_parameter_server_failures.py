"""A worker of a parameter-server job that is killed and restarted.

The coordinator calls the emitted function again, and no window is measured across the failure.

From the guide "Parameter server training": a step that was lost with its worker is run again by another one, and a
restarted worker rebuilds its dataset. Endless data has no epochs, so the guarantee is that all elements continue to
arrive, none more often than the number of passes that were started.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from tests.distributed.written_modules import emit, run

ROOT = Path(__file__).resolve().parents[2]
ROWS = 24

SERVERS = """
import faulthandler, json, os, subprocess, sys
faulthandler.dump_traceback_later(200, exit=True)
os.environ["GRPC_FAIL_FAST"] = "use_caller"  # as the guide has it: a lost worker is noticed at once

SERVER = '''
import json, sys
import tensorflow as tf
threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
cluster = tf.train.ClusterSpec(json.loads(sys.argv[1]))
tf.distribute.Server(cluster, sys.argv[2], int(sys.argv[3]), protocol="grpc", config=threads).join()
'''

from pipetune.core.cluster import free_addresses

first, second, third = free_addresses(3)
cluster = {"worker": [first, second], "ps": [third]}

def start(kind, index):
    command = [sys.executable, "-c", SERVER, json.dumps(cluster), kind, str(index)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)

servers = [start("ps", 0), start("worker", 0), start("worker", 1)]
"""
COORDINATOR = (
    SERVERS
    + """
try:
    import tensorflow as tf
    import distributed

    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster), rpc_layer="grpc")
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    iterator = iter(distributed.per_worker_dataset(coordinator))

    @tf.function
    def step(iterator):
        return strategy.run(lambda batch: batch, args=(next(iterator),))

    results = [coordinator.schedule(step, args=(iterator,)) for _ in range(15)]
    coordinator.join()
    servers[2].kill()
    servers[2].wait()
    results += [coordinator.schedule(step, args=(iterator,)) for _ in range(15)]
    servers.append(start("worker", 1))
    coordinator.join()
    results += [coordinator.schedule(step, args=(iterator,)) for _ in range(30)]
    coordinator.join()
    print(json.dumps([int(number) for result in results for number in result.fetch()]), flush=True)
finally:
    for server in servers:
        server.kill()
os._exit(0)
"""
)


@pytest.mark.exhaustive
@pytest.mark.mission("C4.again")
def test_all_data_is_delivered_after_a_worker_restarts(tmp_path: Path) -> None:
    made = emit(tf.data.Dataset.range(ROWS).shuffle(ROWS).batch(4), "parameter-server", tmp_path)
    assert made.module, made.notes
    seen = Counter(json.loads(run(COORDINATOR, tmp_path, path=ROOT).splitlines()[-1]))
    assert seen.total() == 60 * 4, "every step that was scheduled was done, once"
    assert set(seen) == set(range(ROWS))
    # Three pipelines delivered each row once per pass: those of two workers, and that of the restarted one.
    assert max(seen.values()) - min(seen.values()) <= 3


WINDOWS = (
    SERVERS
    + """
try:
    import numpy as np
    import tensorflow as tf
    from pipetune.core.results import RunFailed
    from pipetune.capture import coordinator_consumer
    from pipetune.pipelines import call_sites
    from tests.capture.test_hooks import run

    tf.get_logger().setLevel("CRITICAL")
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster), rpc_layer="grpc")
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        taken, drawn = tf.Variable(0, dtype=tf.int64), tf.Variable(tf.zeros([], tf.int64))

    @tf.function
    def step(iterator):
        def count(numbers):
            taken.assign_add(1)
            drawn.assign_add(numbers[0])

        strategy.run(count, args=(next(iterator),))

    def numbers():
        return tf.data.Dataset.range(12).batch(4, drop_remainder=True)

    def script():
        iterator = iter(coordinator.create_per_worker_dataset(numbers))
        coordinator.schedule(step, args=(iterator,))

    consumer = run(script).consumer
    schedule, calls, deaths = consumer.scheduled.schedule, 0, []

    def schedule_and_kill(*args, **kwargs):
        global calls
        calls += 1
        if calls in deaths:
            servers[-1].kill()
            servers[-1].wait()
            if calls == 6:  # and stays away after others
                servers.append(start("worker", 1))
        return schedule(*args, **kwargs)

    object.__setattr__(consumer.scheduled, "schedule", schedule_and_kill)

    def window(dataset, *, dies_at=()):
        global calls, deaths
        calls, deaths = 0, dies_at
        taken.assign(0)
        with call_sites.running_workflow():
            try:
                made = consumer.window(dataset, steps=6, warmup=2)
            except RunFailed as failure:
                return str(failure)
        return [made.steps, calls]

    def draws_once(_number):
        return tf.random.uniform([], maxval=1000, dtype=tf.int64)

    cached = tf.data.Dataset.range(1).map(draws_once).cache().repeat().batch(4, drop_remainder=True)
    found, sent = {"before": window(cached)}, cached._pipetune_sent[0]
    found["once"] = window(cached, dies_at=[6])
    found["filled anew"] = cached._pipetune_sent[0] is not sent
    found["twice"] = window(cached, dies_at=[6, 18])
    coordinator_consumer._RECOVERY_SECONDS = 2.0
    found["stays away"] = window(cached)
    print(json.dumps(found), flush=True)
finally:
    for server in servers:
        server.kill()
os._exit(0)
"""
)


@pytest.mark.exhaustive
@pytest.mark.mission("C4.window")
def test_window_is_repeated_after_the_failure_of_a_worker(tmp_path: Path) -> None:
    found = json.loads(run(WINDOWS, tmp_path, path=ROOT).splitlines()[-1])
    assert found["before"] == [6, 12]
    assert found["once"] == [6, 24], "taken once more, when the worker was back"
    assert found["filled anew"], "a cache of the one that came back is empty"
    assert "and again" in found["twice"]
    assert "did not come back" in found["stays away"]
