"""`make test-horovod`: a real Horovod runs the example, the module written for it, and `pipetune analyze` in lockstep.

Last passed on 21 November with Horovod 0.28.1, built with Gloo and without XLA, TensorFlow 2.21, two ranks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from tests.distributed.rank_deliveries import Loop, digest
from tests.e2e.command import ENVIRONMENT, ROOT, Case, analyze

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.horovod,
    pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="no Horovod here: make test-horovod"),
]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "distributed"
SCRIPT = EXAMPLES / "horovod" / "train.py"
GOT = Path(__file__).with_name("rank_deliveries.py")
LIMIT_SECONDS = 200

STEPS = 58
"""Of both ranks: 29 each, of 32 rows; a little more than the 899 or 898 of 1,797 digits that a rank reads."""

TRAINING = """
import sys

import horovod.tensorflow as hvd
import tensorflow as tf

import distributed

hvd.init()
for images, labels in distributed.dataset_fn(int(sys.argv[1])):
    hvd.allreduce(tf.reduce_mean(images))  # a rank with a step more would wait here for ever
"""


def two_ranks(*words: str | Path, cwd: Path, **variables: str) -> str:
    """The output of a command run by Horovod on two ranks; fails with that output."""
    horovodrun = Path(sys.executable).with_name("horovodrun")
    with subprocess.Popen(
        [sys.executable, horovodrun, "--gloo", "-np", "2", sys.executable, *map(str, words)],
        cwd=cwd,
        env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join((str(ROOT), str(cwd))), **variables},
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
    command = [sys.executable, EXAMPLES / "make_data.py", "--out", folder, "--small"]
    subprocess.run(command, check=True, env=ENVIRONMENT)
    return folder


@pytest.fixture(scope="module")
def digits(data: Path) -> Counter[str]:
    """The digits in the files, with their counts."""
    found: Counter[str] = Counter()
    for record in tf.data.TFRecordDataset(sorted(map(str, data.glob("train-*.tfrecord")))):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        found[digest(features["image"].bytes_list.value[0])] += 1
    assert found.total() == 1797
    return found


def an_epoch_of_both(folder: Path, digits: Counter[str], *, loops: int) -> None:
    """In every loop both ranks took equally many steps, and together read each digit once before any digit again."""
    got: list[list[Loop]] = [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [len(rank) for rank in got] == [loops, loops]
    for both in zip(*got, strict=True):
        assert [[len(step) for step in rank] for rank in both] == [[32] * (STEPS // 2)] * 2
        first, second = ([row for step in rank for row in step] for rank in both)
        assert Counter(first[:899]) + Counter(second[:898]) == digits


def test_example_trains_on_every_digit_once(data: Path, digits: Counter[str], tmp_path: Path) -> None:
    printed = two_ranks(GOT, tmp_path, SCRIPT, "--data", data, "--steps", STEPS, cwd=tmp_path)
    assert Counter(re.findall(r"rank (\d), epoch \d: (\d+) steps", printed)) == {("0", "29"): 2, ("1", "29"): 2}
    an_epoch_of_both(tmp_path, digits, loops=2)


def test_module_delivers_every_digit_once(data: Path, digits: Counter[str], tmp_path: Path) -> None:
    options = ("--no-trials", "--distribute", "horovod")
    done = analyze(Case(str(SCRIPT), ("--data", str(data)), options=options), tmp_path / "run")
    assert done.code == 0, done.err
    (done.results / "training.py").write_text(TRAINING)
    two_ranks(GOT, tmp_path, "training.py", STEPS, cwd=done.results)
    an_epoch_of_both(tmp_path, digits, loops=1)


def test_both_ranks_take_the_steps_of_every_window(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--quick", "--no-trials", "--out", out)
    printed = two_ranks("-m", "pipetune", "analyze", *options, SCRIPT, "--data", data, "--steps", STEPS, cwd=tmp_path)
    assert "Done, controlled by the first task" in printed
    session = json.loads((out / "session.json").read_text())
    assert session["summary"]["status"] == "done"
    found = session["datasets"][0]
    assert (found["handover"]["strategy"], found["handover"]["workers"]) == ("Horovod", 2)
    consumer = found["profile"]["consumer"]
    assert consumer["kind"] == "loop" and consumer["real_seconds"] and consumer["bound_seconds"], consumer["why"]
    assert [one["worker"] for one in found["skew"]["inputs"] if one["step_seconds"]] == [0, 1]
    left = sorted(path.name for path in (out / "worker-1").iterdir())
    assert left == ["latest", "runs", "script.log"], "the results are rank 0's"


@pytest.mark.parametrize("trained_by", ["loop", "fit"])
def test_rewrite_that_gains_in_both_ranks_is_patched_and_verified(trained_by: str, tmp_path: Path) -> None:
    (tmp_path / "died").touch()
    session, printed = waiting(trained_by, tmp_path)
    assert session["summary"]["training"]["speedup"]["low"] > 1, printed
    assert any(trial["unit"] == "training" and trial["ratios"] for trial in session["trials"])
    (dataset,) = session["summary"]["datasets"]
    assert "parallel-map" in [rewrite["rule"] for rewrite in dataset["rewrites"]]
    assert dataset["skew"]["slowest"] == 1
    patch = session["summary"]["patch"]
    assert patch["verified"] is True and "parallel-map" in patch["covered"]


def test_rank_killed_in_a_trial_fails_the_trial_and_both_ranks_restart(tmp_path: Path) -> None:
    session, printed = waiting("loop", tmp_path)
    assert (tmp_path / "died").exists(), "or the test shows nothing"
    said = " ".join(re.sub(r"\[\d\]<std(out|err)>:", "", printed).split())
    assert "lost worker 1, which was killed (SIGKILL)" in said
    assert "That plan is recorded as failed; restarting without it." in said
    assert session["summary"]["status"] == "done"
    (failed,) = (trial for trial in session["trials"] if trial["outcome"] == "failed")
    assert "lost worker 1" in failed["why"]


def waiting(trained_by: str, folder: Path) -> tuple[dict[str, Any], str]:
    """The session of the ranks that wait for their rows, and the output."""
    options = ("--quick", "--budget", "20", "--allow", "python-parallel,statistical", "--out", folder / "out")
    script = Path(__file__).with_name("rank_waits.py")
    words = ("-m", "pipetune", "analyze", *options, script, trained_by, folder / "died")
    printed = two_ranks(*words, cwd=folder, TF_USE_LEGACY_KERAS="1")
    return dict(json.loads((folder / "out" / "session.json").read_text())), printed


def test_ranks_without_a_common_folder_are_analysed_separately(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipetune", "analyze", "--quick", "--no-trials", "--out", tmp_path / "out"]
    words = shlex.join(map(str, [*command, SCRIPT, "--data", data, "--steps", STEPS]))
    apart = words.replace(str(tmp_path / "out"), str(tmp_path / "out-$HOROVOD_RANK"))
    printed = two_ranks("-c", f"import os; os.execvp('sh', ['sh', '-c', {apart!r}])", cwd=tmp_path)
    assert "Not all tasks of the cluster connected" in " ".join(re.sub(r"\[\d\]<std(out|err)>:", "", printed).split())
    for rank, folder in enumerate((tmp_path / "out-0", tmp_path / "out-1" / "worker-1")):
        session = json.loads((folder / "session.json").read_text())
        assert session["summary"]["status"] == "done"
        found = session["datasets"][0]
        assert (found["handover"]["strategy"], found["handover"]["workers"]) == ("Horovod", 2)
        (shard,) = (node for node in found["pipeline"]["nodes"] if node["op"] == "shard")
        assert (shard["arguments"]["num_shards"], shard["arguments"]["index"]) == (2, rank)
        assert "2 processes train in lockstep under Horovod" in json.dumps(session)
