"""A real Horovod runs the example and the module written for it: `make test-horovod`, which says where it is.

Last passed on 21 November with Horovod 0.28.1, built with Gloo and without XLA, TensorFlow 2.21, two ranks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.command import ENVIRONMENT, Case, analyze

HOROVODRUN = os.environ.get("HOROVODRUN", "")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "distributed"

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.skipif(not HOROVODRUN, reason="needs a Horovod: make test-horovod"),
]

COUNTS = """
import horovod.tensorflow as hvd
import tensorflow as tf
import distributed

hvd.init()
steps = rows = 0
for images, labels in distributed.dataset_fn(40):
    steps, rows = steps + 1, rows + len(labels)
together = int(hvd.allreduce(tf.constant(rows), op=hvd.Sum))
print(f"rank {hvd.rank()} of {hvd.size()}: {steps} steps, {rows} rows, {together} of all", flush=True)
"""


def two_ranks(*words: str | Path, cwd: Path) -> str:
    command = [sys.executable, HOROVODRUN, "--gloo", "-np", "2", sys.executable, *map(str, words)]
    done = subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("horovod") / "data"
    subprocess.run([sys.executable, EXAMPLES / "make_data.py", "--out", folder, "--small"], check=True)
    return folder


def test_the_example_trains_on_two_ranks(data: Path, tmp_path: Path) -> None:
    printed = two_ranks(EXAMPLES / "horovod" / "train.py", "--data", data, "--steps", "40", cwd=tmp_path)
    assert Counter(re.findall(r"rank (\d), epoch \d: (\d+) steps", printed)) == {("0", "20"): 2, ("1", "20"): 2}


def test_the_module_gives_both_ranks_as_many_steps(data: Path, tmp_path: Path) -> None:
    script = EXAMPLES / "horovod" / "train.py"
    done = analyze(
        Case(str(script), ("--data", str(data)), options=("--no-trials", "--distribute", "horovod")), tmp_path / "run"
    )
    assert done.code == 0, done.err
    (done.results / "counts.py").write_text(COUNTS)
    printed = two_ranks("counts.py", cwd=done.results)
    found = re.findall(r"rank (\d) of 2: (\d+) steps, (\d+) rows, (\d+) of all", printed)
    assert sorted(rank for rank, *_ in found) == ["0", "1"]
    assert {steps for _, steps, *_ in found} == {"20"}
    assert {int(together) for *_, together in found} == {sum(int(rows) for *_, rows, _ in found)}
