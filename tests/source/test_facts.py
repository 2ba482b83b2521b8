"""Results of dataset methods that are discarded."""

from __future__ import annotations

import pytest

from pipetune.source.source_mistakes import dropped_results
from tests.source.recorder import recorded


def found(tmp_path, text):
    _, recorder = recorded(tmp_path, "import tensorflow as tf\n" + text)
    return dropped_results(dataset.location for dataset in recorder.made)


@pytest.mark.parametrize(
    "text",
    [
        "ds = tf.data.Dataset.range(3)\nds = ds.shuffle(9)\ntrain(ds.batch(2))\n",
        "ds = tf.data.Dataset.range(3)\nlist(ds.batch(2))\n",
        "def f(): return tf.data.Dataset.range(3).batch(2)\nf()\n",
        "tf.data.Dataset.range(3)\n",  # nothing was changed, so nothing is lost
        "(ds := tf.data.Dataset.range(3).batch(2))\n",
    ],
)
def test_no_finding(tmp_path, text):
    assert found(tmp_path, text) == []


def test_discarded_result_is_reported(tmp_path):
    text = "ds = tf.data.Dataset.range(3)\nfor _ in (1, 2):\n    ds.shuffle(9)  # lost\ntrain(ds)\n"
    (finding,) = found(tmp_path, text)
    assert (finding.code, finding.line) == ("dropped-result", 4)
    assert "ds = ds.shuffle(...)" in finding.hint


def test_discarded_chain_is_one_finding(tmp_path):
    (finding,) = found(tmp_path, "tf.data.Dataset.range(3).map(abs).batch(2)\n")
    assert ".batch(...)" in finding.message and "ds = ds.batch" in finding.hint


def test_missing_file_is_skipped(tmp_path):
    path, recorder = recorded(tmp_path, "import tensorflow as tf\ntf.data.Dataset.range(3).batch(2)\n")
    locations = [dataset.location for dataset in recorder.made]
    assert dropped_results(locations)
    path.unlink()
    assert dropped_results(locations) == []
