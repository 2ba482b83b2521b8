"""Bugs of the script that are said with the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.stages.verdict import give_verdict
from pipetune.tf.script import capture
from tests.stages.test_own_work import PROFILE, study

SCRIPT = """import tensorflow as tf
dataset = tf.data.Dataset.range(512).batch(8)
dataset.shuffle(16)
dataset = dataset.prefetch(8)
"""


def test_bugs_of_pipeline_and_source_are_said_together(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    made: dict[str, Any] = {"__name__": "__main__"}
    capture.forget()
    with capture.Recorder():
        exec(compile(SCRIPT, str(path), "exec"), made)
    one = study(made["dataset"])
    give_verdict(one, PROFILE)
    found = one.journal.session.findings
    assert [(finding.code, finding.line) for finding in found] == [("prefetch-batch-size", 4), ("dropped-result", 3)]
    assert {finding.file for finding in found} == {str(path)}
    give_verdict(one, PROFILE)
    assert one.journal.session.findings == found, "each is told once"
