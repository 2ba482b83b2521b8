"""Edits of datasets built by TensorFlow Datasets: the `read_config` of the call, as text and when run."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.core.edits import Edit, Insert, Plan, Remove, Rewrite, Safety, SetArgument, apply_edits
from pipetune.source.emit import Emission, emit
from tests.source.recorder import record, recorded, resolved, shape

HEAD = "import tensorflow as tf\n"
TFDS = "import tensorflow_datasets as tfds\n"
LONGER = (SetArgument("interleave", "cycle_length", 32), SetArgument("interleave", "block_length", 4))
TWO = (SetArgument("map#0", "num_parallel_calls", 2),)


def emitted(folder: Path, text: str, *edits: Edit, safety: Safety = Safety.REORDERS) -> tuple[Emission, str, Rewrite]:
    head = HEAD if "import load" in text else HEAD + TFDS
    path, recorder = recorded(folder, head + text + "\ntrain(ds)\n")
    pipeline = recorder.pipeline()
    found = tuple(resolved(pipeline, edit) for edit in edits)
    rewrite = Rewrite("a-rule", getattr(found[0], "node", ""), safety, found, "")
    emission = emit(pipeline, Plan("test", (rewrite,)))
    new = emission.files.get(str(path), ("", ""))[1]
    if new:
        wanted = apply_edits(pipeline, rewrite.edits)
        assert shape(record(path, new).pipeline()) == shape(wanted), "the new text makes what the edits say"
    return emission, new.removeprefix(head).removesuffix("\ntrain(ds)\n"), rewrite


LOAD = "ds = tfds.load('digits', split='train'"
BUILDER = "ds = tfds.builder('digits').as_dataset(split='train', read_config=config)"


@pytest.mark.parametrize(
    ("text", "edits", "expected"),
    [
        (f"{LOAD})", LONGER,
         f"{LOAD}, read_config=tfds.ReadConfig(interleave_cycle_length=32, interleave_block_length=4))"),
        ("ds = tfds.load(\n    'digits',\n    split='train',\n).batch(2)", TWO,
         "ds = tfds.load(\n    'digits',\n    split='train',\n"
         "    read_config=tfds.ReadConfig(num_parallel_calls_for_decode=2),\n).batch(2)"),
        (f"{LOAD}, read_config=None)", (SetArgument("interleave", "num_parallel_calls", 4),),
         f"{LOAD}, read_config=tfds.ReadConfig(num_parallel_calls_for_interleave_files=4))"),
        (f"config = tfds.ReadConfig(interleave_cycle_length=8)\n{BUILDER}", LONGER,
         f"config = tfds.ReadConfig(interleave_cycle_length=32, interleave_block_length=4)\n{BUILDER}"),
        (f"{LOAD}, read_config=tfds.ReadConfig(num_parallel_calls_for_decode=4))",
         (SetArgument("map#0", "num_parallel_calls", -1),),
         f"{LOAD}, read_config=tfds.ReadConfig(num_parallel_calls_for_decode=tf.data.AUTOTUNE))"),
        (f"{LOAD})", (Remove("prefetch"),), f"{LOAD}, read_config=tfds.ReadConfig(skip_prefetch=True))"),
    ],
)  # fmt: skip
def test_call_gets_a_read_config(tmp_path: Path, text: str, edits: tuple[Edit, ...], expected: str) -> None:
    emission, new, rewrite = emitted(tmp_path, text, *edits)
    assert new == expected, emission.not_covered
    assert emission.covered == (rewrite.key,)


BY_HAND = "By hand: tfds.load(..., read_config=tfds.ReadConfig(interleave_cycle_length=32, interleave_block_length=4))."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("given = {'split': 'train'}\nds = tfds.load('digits', **given)", "starred arguments"),
        (f"config = tfds.ReadConfig()\nconfig.shuffle_seed = 1\n{LOAD}, read_config=config)", "used in several places"),
        (f"configs = [tfds.ReadConfig()]\n{LOAD}, read_config=configs[0])", "find where the value of"),
        (f"fields = {{}}\n{LOAD}, read_config=tfds.ReadConfig(**fields))", "positional or starred"),
        ("def load(**more):\n    return tfds.load('digits', **more)\nds = load(split='train')", "starred arguments"),
        ("from tensorflow_datasets import load\nds = load('digits', split='train')",
         "not import tensorflow_datasets under a usable name"),
        ("ds, other = tfds.load('digits', split=['train', 'test'])\nvalidate(other)", "shared by 2 datasets"),
    ],
)  # fmt: skip
def test_unsupported_call_is_refused_with_instructions_by_hand(tmp_path: Path, text: str, reason: str) -> None:
    emission, new, _ = emitted(tmp_path, text, *LONGER)
    assert not new and not emission.covered
    (refused,) = emission.not_covered
    assert reason in refused.why and refused.why.endswith(BY_HAND), refused.why


def test_other_operators_of_the_call_are_not_patched(tmp_path: Path) -> None:
    emission, new, _ = emitted(tmp_path, f"{LOAD})", SetArgument("map#1", "num_parallel_calls", 2))
    assert not new
    (refused,) = emission.not_covered
    assert "map is made inside load" in refused.why and "By hand" not in refused.why


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{LOAD})", f"{LOAD}).prefetch(2)"),
        (f"{LOAD}, with_info=True)[0]", ""),
        (f"{LOAD}, with_info=True)[0]\nds = ds.map(abs)", f"{LOAD}, with_info=True)[0]\nds = ds.prefetch(2).map(abs)"),
        ("found = tfds.load('digits', split='train', with_info=True)\nds = found[0]", ""),
        (
            f"{LOAD.replace('ds', 'ds, info', 1)}, with_info=True)\nds = ds.map(abs)",
            f"{LOAD.replace('ds', 'ds, info', 1)}, with_info=True)\nds = ds.prefetch(2).map(abs)",
        ),
        ("split = ['train']\nfound = tfds.load('digits', split=split)\nds = found[0]", ""),
    ],
)
def test_operator_is_appended_only_to_a_call_that_returns_one_dataset(tmp_path: Path, text: str, expected: str) -> None:
    insert = Insert("prefetch", "prefetch", "prefetch@last", {"buffer_size": 2})
    emission, new, _ = emitted(tmp_path, text, insert, safety=Safety.EXACT)
    assert new == expected, emission.not_covered
