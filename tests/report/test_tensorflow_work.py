"""TensorFlow's own work: shown as such."""

from __future__ import annotations

from pipetune.core import results
from pipetune.core.results import AppliedPass, AutotuneValues, OptimizationPasses, TunedValue
from pipetune.core.session import Session
from tests.report import sessions as samples
from tests.report.reading import sentences, table, texts, with_main

READING = AutotuneValues(
    (
        TunedValue("", "Prefetch", results.BUFFER_SIZE, 8.0, 0.0, 512.0, True, 1.0, 0.6),
        TunedValue("n3", "ParallelMapV2", results.PARALLELISM, 3.0, 1.0, 16.0, True, 16.0, 1.2),
        TunedValue("n2", "ParallelMapV2", results.PARALLELISM, 4.0, 4.0, 4.0, False, 4.0),
    ),
    3.0,
    True,
)
PASSES = OptimizationPasses((AppliedPass("map_parallelization", ("Map becomes ParallelMap",)),))


def session() -> Session:
    autotuned = {"defaults": READING, "autotune": AutotuneValues(note="The runtime shows no model.")}
    return with_main(samples.photos(), autotuned=autotuned, optimisations=PASSES)


def test_values_that_autotune_chose() -> None:
    added, tuned = table(session(), "tensorflow").rows
    assert texts(added) == ["current", "added by TensorFlow", "", "8", "0 to 512"]
    assert (added.cells[1].note, added.cells[3].note) == ("Prefetch", "buffered elements")
    assert texts(tuned) == ["current", "map", "photo_input.py:24", "3", "1 to 16"]


def test_passes_that_changed_something_and_whether_values_settled() -> None:
    assert sentences(session(), "tensorflow") == [
        "map_parallelization: Map becomes ParallelMap",
        "Current: parallelism did not change at the end of 3.00 s of observation.",
        "AUTOTUNE everywhere: The runtime shows no model.",
    ]
