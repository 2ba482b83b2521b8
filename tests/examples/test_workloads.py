"""The workloads of the examples: their data is created once, their datasets yield the expected batches, they train."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.rivals.workloads import find_workloads
from tests.default_run import cases

pytestmark = pytest.mark.tensorflow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXPECTED = {  # each part of a batch: its type and shape
    "csv": "float32:512x28 float32:512",
    "frames": "uint8:4x10x224x224x3 int32:4",
    "gnmt": "int32:128x50 int32:128x50 int32:128 int32:128 int32:128x50",
    "images": "float32:128x28x28 uint8:128",
    "mask_rcnn": "float32:4x15345x4 int32:4x15345 float32:4x20x4 int32:4x20 float32:4x192x320x3 uint8:4x20x112x112",
    "resnet": "bfloat16:224x224x3x32 int32:32",
    "simclr": "float32:32x224x224x6",
    "speech": "float32:16x1000x257 int32:16x200",
    "ssd": "float32:16x150x150x12 int32:16x8732 float32:16x8732x4",
    "staged": "float32:32x224x224x3 int32:32",
    "storage": "uint8:40x114660",
    "tokens": "int32:32x? int32:32",  # padded to the longest line of the batch
    "transformer": " ".join(["int32:16x256"] * 6),
}
ALL = sorted(path.parent.name for path in EXAMPLES.glob("*/train.py"))


def load(name: str, script: str) -> ModuleType:
    path = EXAMPLES / name / script
    specification = importlib.util.spec_from_file_location(f"pipetune_test_{name}_{path.stem}", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Small data of a workload by its name, created at the first use."""
    folders: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            load(name, "make_data.py").make(folders[name], True)
        return folders[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))  # the scripts prepend the folder of their shared modules
        yield make


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_yields_batches_of_expected_types_and_shapes(name: str, made: Any) -> None:
    import tensorflow as tf

    dataset = load(name, "train.py").training_dataset(made(name))
    batches = list(dataset.take(2))
    assert len(batches) == 2
    for batch in batches:
        parts = tf.nest.flatten(batch)
        found = " ".join(f"{part.dtype.name}:{'x'.join(map(str, part.shape.as_list()))}" for part in parts)
        assert re.fullmatch(EXPECTED[name].replace("?", r"\d+"), found), found
        assert all(bool(tf.reduce_all(tf.math.is_finite(part))) for part in parts if part.dtype.is_floating)
    first, second = (tf.nest.flatten(batch)[0] for batch in batches)
    assert first.shape != second.shape or bool(tf.reduce_any(first != second))


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize("name", cases(sorted(EXPECTED), default={"csv", "gnmt", "images", "tokens"}))
def test_trains(name: str, made: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", str(made(name)), "--epochs", "1", "--steps", "2"]
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    load(name, "train.py").main()
    printed = capfd.readouterr().out
    assert "2/2" in printed or "epoch 1:" in printed
    assert "nan" not in printed


def test_emulated_step_takes_requested_time(made: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    arguments = ["--data", str(made("csv")), "--epochs", "1", "--steps", "2", "--step-time", "30"]
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    load("csv", "train.py").main()
    assert float(capsys.readouterr().out.split()[2]) >= 30


def test_stage_is_stored_once_with_same_images(made: Any) -> None:
    import tensorflow as tf

    staged = load("staged", "train.py")
    staged.crop = lambda image, label: (image[:8, :8], label)  # replaces the random part
    for stage in (None, "resized", "resized"):
        images = [image for batch, _ in staged.training_dataset(made("staged"), stage) for image in batch]
        totals = sorted(float(tf.reduce_sum(image)) for image in images)
        if stage is None:
            expected = totals
        assert totals == expected
    assert (made("staged") / "resized").is_dir()


def test_data_is_created_once_and_foreign_files_are_kept(tmp_path: Path, capsys: Any) -> None:
    sys.path.insert(0, str(EXAMPLES))
    try:
        making = load(".", "making.py")
    finally:
        sys.path.remove(str(EXAMPLES))
    script, folder, calls = tmp_path / "make_data.py", tmp_path / "data", []

    def make(unfinished: Path, small: bool) -> None:
        calls.append(small)
        (unfinished / "numbers").write_text("1 2 3")

    script.write_text("first")
    making.once(script, folder, make, small=True)
    making.once(script, folder, make, small=True)
    assert calls == [True] and "already complete" in capsys.readouterr().out
    making.once(script, folder, make, small=False)
    script.write_text("second")
    making.once(script, folder, make, small=False)
    assert calls == [True, False, False]
    assert sorted(path.name for path in folder.iterdir()) == ["about.json", "numbers"]
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    with pytest.raises(SystemExit, match="holds files"):
        making.once(script, foreign, make, small=True)
    assert (foreign / "thesis.txt").read_text() == "mine"


def test_workloads_have_descriptions_and_examples_are_listed() -> None:
    for name in find_workloads():
        about = tomllib.loads((EXAMPLES / name / "workload.toml").read_text())
        assert about.keys() >= {"title", "source", "note"}, name
        assert about.keys() <= {"title", "source", "note", "published_bytes", "published_examples", "arguments"}, name
        assert ("published_bytes" in about) == ("published_examples" in about), name
        assert all(isinstance(about[key], int) and about[key] > 0 for key in about if key.startswith("published"))
    listed = (EXAMPLES / "README.md").read_text()
    assert [name for name in ALL if f"[`{name}`]({name})" not in listed] == []
