"""A dataset of TensorFlow Datasets, built offline: the orders of its guide, and how pipetune reads it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # raised by what it imports; pipetune cannot change that
    tfds = pytest.importorskip("tensorflow_datasets")
    if not hasattr(tfds, "core"):  # its newest tensorflow-metadata needs protobuf 6, TensorFlow 2.18 and 2.19 need 5
        pytest.skip("tensorflow-datasets cannot be imported beside this TensorFlow", allow_module_level=True)
pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore")]

from pipetune.core.edits import Edit, Plan, Rewrite, Safety, SetArgument, apply_edits
from pipetune.core.results import ResumeMethod
from pipetune.core.storage import TfdsRead, description, read_config_fields, read_config_text, tfds_reads
from pipetune.distributed.writing import distribute
from pipetune.lint import DatasetUse, find_mistakes
from pipetune.pipelines import call_sites, live, resume_points
from pipetune.pipelines.replay import replay
from pipetune.rewrites import RuleContext, propose_all
from pipetune.source.emit import emit
from tests.rewrites.on_data.patching import Sample, rerun

SHARDS, EACH = 4, 40


class CountedDigits(tfds.core.GeneratorBasedBuilder):
    """Numbers, one file for every 40 of them."""

    __module__ = "counted_digits"  # otherwise the library searches the package of the tests for files of its own
    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> Any:
        features = tfds.features.FeaturesDict({"number": tf.int64})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, int]]]:
        for number in range(SHARDS * EACH):
            yield number, {"number": number}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tfds")
    builder = CountedDigits(data_dir=made)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=SHARDS))
    assert builder.info.splits["train"].shard_lengths == [EACH] * SHARDS
    return made


def load(folder: Path, **given: Any) -> Any:
    """The dataset with the ids of its examples."""
    config = given.pop("read_config", tfds.ReadConfig())
    config.add_tfds_id = True
    return tfds.load("counted_digits", data_dir=folder, split=given.pop("split", "train"), read_config=config, **given)


def recorded(make: Callable[[], Any]) -> tuple[live.LivePipeline, TfdsRead]:
    """The pipeline of a dataset whose calls are recorded, and how the library reads its files."""
    with call_sites.Recorder():
        source = live.read(make())
    (found,) = tfds_reads(source.pipeline)
    return source, found


def ids(dataset: Any, count: int = 20) -> list[int]:
    """The numbering of the guide for the first examples: file times examples per file, plus the index in the file."""
    names = [example["tfds_id"].numpy().decode() for example in dataset.take(count)]
    places = [re.fullmatch(r".*-(\d+)-of-\d+__(\d+)", name) for name in names]
    return [EACH * int(place[1]) + int(place[2]) for place in places if place]


SIXTEEN = [*range(16), EACH, EACH + 1, EACH + 2, EACH + 3]
THREE_TWO = [file * EACH + place for first in (0, 2, 4) for file in range(3) for place in (first, first + 1)] + [6, 7]


@pytest.mark.mission("D2.orders")
def test_orders_match_the_guide(folder: Path) -> None:
    assert ids(load(folder)) == ids(load(folder)) == SIXTEEN
    three_two = tfds.ReadConfig(interleave_cycle_length=3, interleave_block_length=2)
    assert ids(load(folder, read_config=three_two)) == THREE_TWO


@pytest.mark.mission("D1.files", "D3.analysed")
def test_tfds_reading_operators_are_recognised(folder: Path) -> None:
    source, found = recorded(lambda: load(folder, shuffle_files=True).map(lambda one: one["number"]).batch(4))
    assert {node.location.library for node in found.operators if node.location} == {"tensorflow_datasets"}
    assert found.call == "tfds.load" and found.shuffle is not None and found.shard is None
    assert found.decode is not None and found.decode.op == "map"
    assert (found.files(source.pipeline), found.block_length) == (SHARDS, 16)
    ops = [node.op for node in source.pipeline if node not in found.operators]
    assert ops == ["map", "batch"], "what the script does is the script's"
    assert "reads 4 files in a different order every time, 4 at a time in turns of 16 examples" in description(
        source.pipeline, found
    )


@pytest.mark.parametrize("wanted", [
    {"cycle_length": 2, "block_length": 16, "num_parallel_calls": 2}, {"cycle_length": 16, "block_length": 5},
])  # fmt: skip
@pytest.mark.mission("D3.config")
def test_rewrite_and_read_config_read_in_the_same_order(folder: Path, wanted: dict[str, int]) -> None:
    source, found = recorded(lambda: load(folder))
    edits: list[Edit] = [SetArgument(found.interleave.id, name, value) for name, value in wanted.items()]
    text = read_config_text(read_config_fields(source.pipeline, edits))
    said = ids(load(folder, read_config=eval(text, {"tfds": tfds, "tf": tf})), SHARDS * EACH)
    replayed = ids(replay(source, apply_edits(source.pipeline, edits)), SHARDS * EACH)
    assert said == replayed != ids(load(folder), SHARDS * EACH)
    assert sorted(said) == list(range(SHARDS * EACH))


SCRIPT = """
import tensorflow as tf
import tensorflow_datasets as tfds

ds = tfds.load("counted_digits", split="train", data_dir={folder!r}).map(lambda example: example["number"]).batch(4)
"""


@pytest.mark.mission("D3.config")
def test_patched_call_matches_the_plan(folder: Path, tmp_path: Path) -> None:
    sample = Sample(tmp_path, SCRIPT.format(folder=str(folder)))
    source = live.read(sample.run().ds)
    (found,) = tfds_reads(source.pipeline)
    assert found.decode is not None
    turns = (SetArgument(found.interleave.id, "cycle_length", 3), SetArgument(found.interleave.id, "block_length", 2))
    calls = (SetArgument(found.decode.id, "num_parallel_calls", 2),)
    rewrites = (
        Rewrite("parallel-interleave", found.interleave.id, Safety.REORDERS, turns, "Three files in turn."),
        Rewrite("parallel-map", found.decode.id, Safety.EXACT, calls, "Two calls at a time."),
    )
    emission = emit(source.pipeline, Plan("plan", rewrites))
    assert not emission.not_covered
    (new,) = (text for _, text in emission.files.values())
    fields = "interleave_cycle_length=3, interleave_block_length=2, num_parallel_calls_for_decode=2"
    assert f"read_config=tfds.ReadConfig({fields})" in new
    patched = live.read(rerun(sample, new).ds)
    edited = apply_edits(source.pipeline, Plan("plan", rewrites).edits)
    assert patched.pipeline.identities() == edited.identities()
    order = [batch.tolist() for batch in patched.dataset.as_numpy_iterator()]
    assert order == [batch.tolist() for batch in replay(source, edited).as_numpy_iterator()]


@pytest.mark.mission("D4.take")
def test_take_is_distinguished_from_a_subsplit(folder: Path) -> None:
    with call_sites.Recorder():
        taken = load(folder).take(25)
        part = load(folder, split="train[:25]")
    assert ids(part, 25) == list(range(25)) != ids(taken, 25)
    subsets = [one.message for one in find_mistakes(DatasetUse(live.read(taken).pipeline)) if one.code == "tfds-subset"]
    assert len(subsets) == 1 and "take(25) returns 16 examples of each of 4 files" in subsets[0]
    assert not find_mistakes(DatasetUse(live.read(part).pipeline))


@pytest.mark.mission("D4.resuming", "D2.silent")
def test_resumed_job_is_warned_of_another_order(folder: Path) -> None:
    steps_done = 7
    config = tfds.ReadConfig(interleave_cycle_length=2)
    source, _ = recorded(lambda: load(folder, read_config=config).batch(4).skip(steps_done))
    found = tuple(resume_points.find(source))
    assert {one.way for one in found} == {ResumeMethod.SKIP, ResumeMethod.IDS}
    rewrites, _ = propose_all(RuleContext(source.pipeline, cores=2, resuming=found))
    (longer,) = (one for one in rewrites if any("interleave_cycle_length=4" in note for note in one.notes))
    assert longer.safety is Safety.REORDERS
    assert any("skip(steps_done)" in note for note in longer.notes), longer.notes


@pytest.mark.parametrize(("kind", "says"), [
    ("multiworker", "read_config=tfds.ReadConfig(input_context=input_context)"),
    ("horovod", "input_context=tf.distribute.InputContext(hvd.size(), hvd.rank())"),
    ("parameter-server", "shuffle_files=True"),
    ("service", "tf.data.experimental.service.distribute"),
])  # fmt: skip
def test_generated_module_is_refused_with_an_alternative(folder: Path, tmp_path: Path, kind: str, says: str) -> None:
    source, _ = recorded(lambda: load(folder).batch(4))
    result = distribute(source, source.pipeline, kind=kind, out_file=tmp_path / "distributed.py")
    assert not result.module and any(says in note for note in result.notes)
