"""Which distributed input is written, and its part of the session, on real datasets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.distribution import FIT, FUNCTION, InputDistribution
from pipetune.core.profile import ConsumerProfile, Profile
from pipetune.stages import distributed_form
from pipetune.stages.study import Study
from tests.stages.studies import DIAGNOSIS, operators_of, study_of


def rows() -> Any:
    return tf.data.Dataset.range(24).map(lambda number: tf.fill([64], number)).batch(8)


def studied(folder: Path, handover: InputDistribution | None = None, **settings: Any) -> Study:
    one = study_of(rows())
    one.settings = replace(one.settings, out=str(folder), **settings)
    one.journal.update_dataset(handover=handover)
    distributed_form.write_distributed_form(one, None)
    return one


def test_no_distributed_input_without_strategy_or_for_own_input_function(tmp_path: Path) -> None:
    for handover, said in ((None, ()), (InputDistribution("MirroredStrategy", 2, FUNCTION), ("a function",))):
        session = studied(tmp_path, handover).journal.session
        assert session.distributed is None and not (tmp_path / "distributed.py").exists()
        assert all(words in note for words, note in zip(said, session.notes, strict=True))


def test_strategy_of_script_selects_default_kind(tmp_path: Path) -> None:
    mirrored = InputDistribution("MirroredStrategy", 2, FIT, batch=8, shares=(4, 4))
    form = studied(tmp_path, mirrored).journal.session.distributed
    assert form is not None and form.kind == "mirrored" and form.module == (tmp_path / "distributed.py").read_text()
    assert form.advice[0].startswith("Written because the script trains under MirroredStrategy")


def test_service_is_written_with_its_benefit_and_alternative(tmp_path: Path) -> None:
    one = study_of(rows())
    operators = operators_of(one, cpu_seconds=0.01, visits=1.0)
    consumer = ConsumerProfile("loop", real_seconds=0.1, bound_seconds=0.001)
    profile = Profile(operators, consumer, examples_per_element=8.0, element_bytes=4096.0, input_cpu_seconds=0.03)
    one.settings = replace(one.settings, out=str(tmp_path), distribute="service")
    one.journal.update_dataset(profile=profile, diagnosis=DIAGNOSIS)
    distributed_form.write_distributed_form(one, None)
    form = one.journal.session.distributed
    assert form is not None and form.service is not None and form.service.recommended is True
    assert form.service.packed_bytes_per_second is not None, "a batch was weighed"
    workers = form.service.max_workers
    assert workers is not None and f"{workers} machines of 2 cores" in (tmp_path / "serve.py").read_text()
    assert form.stored is not None and form.advice[-1] == form.stored.sentence
    assert form.advice[0].startswith("A tf.data service helps: training consumes at most 8,000 examples/s")
    assert "Nothing checks that a saved dataset" in form.notes[-1]
    assert form.notes[0].startswith("How often an element comes (DYNAMIC): once in an epoch")
