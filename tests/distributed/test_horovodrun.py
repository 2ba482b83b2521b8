"""`make test-horovod`: a real Horovod runs the example, the module written for it, and `pipetune analyze`.

Last passed on 21 November with Horovod 0.28.1, built with Gloo and without XLA, TensorFlow 2.21, two ranks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

from tests.distributed.got_by_ranks import Loop, digest
from tests.e2e.command import ENVIRONMENT, ROOT, Case, analyze

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.horovod,
    pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="no Horovod here: make test-horovod"),
]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "distributed"
SCRIPT = EXAMPLES / "horovod" / "train.py"
GOT = Path(__file__).with_name("got_by_ranks.py")
LIMIT_SECONDS = 200

STEPS = 58
"""Of both ranks together: 29 of 32 rows each, a little more than a rank's 899 or 898 of the 1,797 digits."""

TRAINING = """
import sys

import horovod.tensorflow as hvd
import tensorflow as tf

import distributed

hvd.init()
for images, labels in distributed.dataset_fn(int(sys.argv[1])):
    hvd.allreduce(tf.reduce_mean(images))  # a rank with a step more would wait here for ever
"""


def two_ranks(*words: str | Path, cwd: Path) -> str:
    """What a command printed that Horovod ran twice; fails with all of it where a rank failed."""
    horovodrun = Path(sys.executable).with_name("horovodrun")
    with subprocess.Popen(
        [sys.executable, horovodrun, "--gloo", "-np", "2", sys.executable, *map(str, words)],
        cwd=cwd,
        env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join((str(ROOT), str(cwd)))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=LIMIT_SECONDS)
        finally:
            process.terminate()  # it then ends its ranks
    assert process.returncode == 0, printed
    return printed


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits, each once."""
    folder = tmp_path_factory.mktemp("horovod") / "data"
    subprocess.run([sys.executable, EXAMPLES / "make_data.py", "--out", folder, "--small"], check=True)
    return folder


@pytest.fixture(scope="module")
def digits(data: Path) -> Counter[str]:
    """Every digit in the files, and how often it is there."""
    found: Counter[str] = Counter()
    for record in tf.data.TFRecordDataset(sorted(map(str, data.glob("train-*.tfrecord")))):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        found[digest(features["image"].bytes_list.value[0])] += 1
    assert found.total() == 1797
    return found


def an_epoch_of_both(folder: Path, digits: Counter[str], *, loops: int) -> None:
    """In every loop both ranks took as many steps, and before a rank saw a digit again, both together saw each once."""
    got: list[list[Loop]] = [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [len(rank) for rank in got] == [loops, loops]
    for both in zip(*got, strict=True):
        assert [[len(step) for step in rank] for rank in both] == [[32] * (STEPS // 2)] * 2
        first, second = ([row for step in rank for row in step] for rank in both)
        assert Counter(first[:899]) + Counter(second[:898]) == digits


def test_the_example_trains_on_every_digit_once(data: Path, digits: Counter[str], tmp_path: Path) -> None:
    printed = two_ranks(GOT, tmp_path, SCRIPT, "--data", data, "--steps", STEPS, cwd=tmp_path)
    assert Counter(re.findall(r"rank (\d), epoch \d: (\d+) steps", printed)) == {("0", "29"): 2, ("1", "29"): 2}
    an_epoch_of_both(tmp_path, digits, loops=2)


def test_the_module_gives_every_digit_once(data: Path, digits: Counter[str], tmp_path: Path) -> None:
    options = ("--no-trials", "--distribute", "horovod")
    done = analyze(Case(str(SCRIPT), ("--data", str(data)), options=options), tmp_path / "run")
    assert done.code == 0, done.err
    (done.results / "training.py").write_text(TRAINING)
    two_ranks(GOT, tmp_path, "training.py", STEPS, cwd=done.results)
    an_epoch_of_both(tmp_path, digits, loops=1)


def test_every_rank_is_analysed_alone_and_none_waits_for_another(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--quick", "--force", "--budget", "10", "--out", out)
    two_ranks("-m", "pipetune", "analyze", *options, SCRIPT, "--data", data, "--steps", STEPS, cwd=tmp_path)
    sessions = [json.loads((folder / "session.json").read_text()) for folder in (out, out / "worker-1")]
    assert [session["summary"]["status"] for session in sessions] == ["done", "done"]
    for rank, session in enumerate(sessions):
        found = session["datasets"][0]
        assert (found["handover"]["strategy"], found["handover"]["workers"]) == ("Horovod", 2)
        (shard,) = (node for node in found["pipeline"]["nodes"] if node["op"] == "shard")
        assert (shard["arguments"]["num_shards"], shard["arguments"]["index"]) == (2, rank)
        assert "2 processes train in step under Horovod" in json.dumps(session)
    inputs = sessions[0]["datasets"][0]["skew"]["inputs"]
    assert [one["worker"] for one in inputs if one["step_seconds"]] == [0, 1]
