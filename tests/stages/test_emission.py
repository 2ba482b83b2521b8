"""The patch of a plan of which source can say a part only."""

from __future__ import annotations

from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import Plan, Rewrite, Safety, SetArgument, SetOption
from pipetune.core.results import Comparison, EqualityCheck
from pipetune.measure.runner import TensorFlowRunner
from pipetune.stages.emission import make_patch
from tests.stages.studies import DIAGNOSIS, executed, study_of

SCRIPT = "import tensorflow as tf\nds = tf.data.Dataset.range(64).map(lambda x: x * 2).batch(4)\n"
PARALLEL = Rewrite("parallel-map", "n1", Safety.EXACT, (SetArgument("n1", "num_parallel_calls", 2),), "")
NOT_WRITTEN = Rewrite("threads", "n2", Safety.EXACT, (SetOption("autotune.cpu_budget", "a text"),), "")
WHOLE = Plan("tuned", (PARALLEL, NOT_WRITTEN))


@pytest.mark.parametrize("equal", [True, False])
def test_part_of_a_plan_is_written_only_if_it_yields_the_same_data(
    equal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def compare(_: TensorFlowRunner, plan: Plan) -> Comparison:
        compared.append(plan.key)
        return Comparison(Safety.EXACT, (EqualityCheck("values", equal), EqualityCheck("epochs", equal)), 9, 3)

    monkeypatch.setattr(TensorFlowRunner, "compare", compare)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    study = study_of(executed(path, SCRIPT)["ds"], directory=str(tmp_path))
    study.journal.update_dataset(plan=WHOLE, diagnosis=DIAGNOSIS)
    patch = make_patch(study, WHOLE)
    assert compared == [PARALLEL.key]
    assert bool(patch.diff) is equal and patch.covered == ((PARALLEL.key,) if equal else ())
    assert equal or "same data" in patch.not_covered[-1].why
    assert bool(make_patch(study, Plan("rest", (PARALLEL,))).diff) is equal  # what is left once a rewrite has failed
    assert compared == [PARALLEL.key] * 2
    study.journal.update_dataset(plan=Plan("tuned", (PARALLEL,)))
    assert make_patch(study, Plan("tuned", (PARALLEL,))).diff and len(compared) == 2  # the search has compared it
