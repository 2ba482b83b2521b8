"""The examples run without pipetune, and the photographs have the documented properties."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.exhaustive]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COUNT, SHARDS = 40, 8


def run(script: str, *arguments: str | Path) -> str:
    """Runs an example in its own process and returns its output; fails with its errors if it fails."""
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.tfrecord")}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few photographs."""
    folder = tmp_path_factory.mktemp("photos") / "data"
    run("photos/make_data.py", "--out", folder, "--count", str(COUNT), "--shards", str(SHARDS))
    return folder


def records(folder: Path, part: str) -> Iterator[tuple[bytes, int]]:
    import tensorflow as tf

    for path in sorted(folder.glob(f"{part}-*.tfrecord")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            feature = tf.train.Example.FromString(record).features.feature
            yield feature["image"].bytes_list.value[0], feature["label"].int64_list.value[0]


def test_photos_are_jpegs_of_documented_sizes(photos: Path) -> None:
    training, validation = list(records(photos, "train")), list(records(photos, "validation"))
    about = json.loads((photos / "about.json").read_text())
    assert (len(training), len(validation)) == (about["training_images"], about["validation_images"]) == (35, 5)
    assert len(list(photos.glob("*.tfrecord"))) == SHARDS
    shapes = set()
    for data, label in training + validation:
        assert 50_000 <= len(data) <= 110_000
        assert label in range(4)
        image = Image.open(io.BytesIO(data))
        assert (image.format, image.mode) == ("JPEG", "RGB")
        assert min(image.size) >= 256, "the random crop needs 256 pixels each way"
        shapes.add(image.size)
    assert len(shapes) > COUNT // 2, "the images differ in size"
    assert len({data for data, _ in training + validation}) == COUNT, "no image twice"


def test_photos_are_reproducible_and_created_once_for_the_same_arguments(photos: Path, tmp_path: Path) -> None:
    arguments = ["--out", tmp_path, "--count", str(COUNT), "--shards", str(SHARDS)]
    assert f"{COUNT} images" in run("photos/make_data.py", *arguments)
    assert digests(tmp_path) == digests(photos)
    (tmp_path / "train-00000-of-00007.tfrecord").write_bytes(b"kept as it is")
    assert "already complete" in run("photos/make_data.py", *arguments)
    assert (tmp_path / "train-00000-of-00007.tfrecord").read_bytes() == b"kept as it is"
    run("photos/make_data.py", "--out", tmp_path, "--count", "3", "--shards", "2")
    assert sorted(digests(tmp_path)) == ["train-00000-of-00001.tfrecord", "validation-00000-of-00001.tfrecord"]
    assert len([*records(tmp_path, "train"), *records(tmp_path, "validation")]) == 3


def test_photos_trains_and_saves(photos: Path, tmp_path: Path) -> None:
    saved = tmp_path / "model.keras"
    printed = run("photos/train.py", "--data", photos, "--epochs", "1", "--steps", "3", "--out", saved)
    assert "3/3" in printed and "val_accuracy" in printed
    assert saved.stat().st_size > 0


def test_photos_without_data_fails_with_hint(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "photos" / "train.py"), "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert "make_data.py" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("example", "smaller", "saved", "said"),
    [
        ("digits", ["--copies", "1"], "digits.weights.h5", "epoch 1: 3 steps"),
        ("artificial", ["--files", "2", "--samples", "2"], None, "ms per step"),
        ("busy", ["--width", "16"], "busy.keras", "3/3"),
        ("table", ["--rows", "1000"], "table.keras", "3/3"),
        ("series", ["--length", "500"], "series.keras", "3/3"),
    ],
)
def test_example_trains_and_saves(
    example: str, smaller: list[str], saved: str | None, said: str, tmp_path: Path
) -> None:
    out = ["--out", tmp_path / saved] if saved else []
    assert said in run(f"{example}/train.py", "--epochs", "1", "--steps", "3", *smaller, *out)
    assert saved is None or (tmp_path / saved).stat().st_size > 0
