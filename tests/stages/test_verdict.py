"""Mistakes in the script that are reported with the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.pipelines import call_sites
from pipetune.stages.planning import give_verdict
from tests.stages.test_graph_passes import PROFILE, study

SCRIPT = """import tensorflow as tf
dataset = tf.data.Dataset.range(512).batch(8)
dataset.shuffle(16)
dataset = dataset.prefetch(8)
"""


def test_mistakes_of_pipeline_and_source_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    made: dict[str, Any] = {"__name__": "__main__"}
    call_sites.clear()
    with call_sites.Recorder():
        exec(compile(SCRIPT, str(path), "exec"), made)
    one = study(made["dataset"])
    give_verdict(one, PROFILE)
    found = one.journal.session.findings
    assert [(finding.code, finding.line) for finding in found] == [("prefetch-batch-size", 4), ("dropped-result", 3)]
    assert {finding.file for finding in found} == {str(path)}
    give_verdict(one, PROFILE)
    assert one.journal.session.findings == found, "each is told once"
