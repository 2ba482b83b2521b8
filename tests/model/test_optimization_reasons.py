"""The reasons why a graph pass left an operator unchanged, on pipelines from text."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from pipetune.core.operators import DEFAULT_PASSES, passes_in_force
from pipetune.model.optimization_reasons import unchanged_reasons
from tests.words import pipeline

OFF = {"experimental_optimization.apply_default_optimizations": False}
STATEFUL = {"n1": ("RandomUniform",)}

CASES: list[tuple[str, str, Mapping[str, Collection[str]], str]] = [
    ("map_parallelization", "range 9 | batch 2", {}, "there is no map"),
    ("map_parallelization", "range 9 | map 4", {}, "num_parallel_calls is set already"),
    ("map_parallelization", "range 9 | map synchronous=True", {}, "synchronous"),
    ("map_parallelization", "range 9 | map random", STATEFUL, "stateful function: it draws random numbers (RandomUni"),
    ("map_parallelization", "range 9 | map python", {"n1": ("EagerPyFunc",)}, "Python op: its function calls Python"),
    ("map_parallelization", "range 9 | map variable=w", {"n1": ("ReadVariableOp",)}, "captured resource: its function"),
    ("map_parallelization", "range 9 | map", {"n1": ("LookupTableFindV2",)}, "lookup table (LookupTableFindV2)"),
    ("map_parallelization", "range 9 | map print", {"n1": ("PrintV2",)}, "stateful function: it calls PrintV2"),
    ("map_parallelization", "range 9 | map unknown", {}, "nothing is known about its function"),
    ("map_parallelization", "list_files | interleave inner=TFRecordDataset+map", {}, "not part of the outer pipeline"),
    ("map_and_batch_fusion", "range 9 | map", {}, "there is no batch"),
    (
        "map_and_batch_fusion",
        "range 9 | map | shuffle 9 | batch 2",
        {},
        "shuffle is directly upstream of it, not a map",
    ),
    ("map_and_batch_fusion", "range 9 | map | batch 2 num_parallel_calls=2", {}, "parallel batch is never fused"),
    ("map_and_batch_fusion", "range 9 | map | padded_batch 2", {}, "no fused variant"),
    ("shuffle_and_repeat_fusion", "range 9 | shuffle 9 | batch 2", {}, "no shuffle followed by a repeat"),
    (
        "shuffle_and_repeat_fusion",
        "range 9 | shuffle 9 | batch 2 | repeat",
        {},
        "batch is directly upstream of this repeat",
    ),
    ("inject_prefetch", "range 9 | prefetch 2", {}, "ends in a prefetch"),
    ("inject_prefetch", "range 9 | prefetch 2 | with_options", {}, "ends in a prefetch"),
    ("inject_prefetch", "range 9 | map", {}, "the map at the end already runs in the background"),
    ("inject_prefetch", "range 9 | map | batch 2", {}, "the batch at the end already runs in the background"),
    ("noop_elimination", "range 9 | map", {}, "no operator is without effect"),
    ("parallel_batch", "range 9 | map", {}, "there is no batch"),
    ("seq_interleave_prefetch", "list_files | interleave", {}, "no parallel interleave"),
]


@pytest.mark.parametrize(("name", "words", "stateful", "why"), CASES)
def test_reason_for_unchanged_operator(
    name: str, words: str, stateful: Mapping[str, Collection[str]], why: str
) -> None:
    found = unchanged_reasons(name, pipeline(words), in_force=True, stateful=stateful)
    assert any(why in reason.why for reason in found), found


def test_no_reason_if_pass_is_applicable() -> None:
    for name, words in (
        ("map_parallelization", "range 9 | map"),
        ("map_and_batch_fusion", "range 9 | map | batch 2"),
        ("shuffle_and_repeat_fusion", "range 9 | shuffle 9 | repeat"),
        ("inject_prefetch", "range 9 | shuffle 9"),
    ):
        assert unchanged_reasons(name, pipeline(words), in_force=True, stateful={}) == ()


def test_options_are_first_reason() -> None:
    words = "range 9 | map random"
    off = pipeline(words, options={"experimental_optimization.map_parallelization": False})
    (only,) = unchanged_reasons("map_parallelization", off, in_force=False, stateful=STATEFUL)
    assert "options.experimental_optimization.map_parallelization = False" in only.why
    (only,) = unchanged_reasons("map_parallelization", pipeline(words, options=OFF), in_force=False, stateful=STATEFUL)
    assert "apply_default_optimizations = False" in only.why
    (only,) = unchanged_reasons(
        "map_parallelization", pipeline(words, options={"autotune.enabled": False}), in_force=True, stateful={}
    )
    assert "autotune.enabled = False" in only.why
    first, *_ = unchanged_reasons("map_fusion", pipeline(words), in_force=False, stateful={})
    assert first.why == "off unless options.experimental_optimization.map_fusion = True"
    first, *_ = unchanged_reasons("batch_parallelization", pipeline(words), in_force=False, stateful={})
    assert first.why == "TensorFlow offers no option for it"
    first, *_ = unchanged_reasons("make_sloppy", pipeline(words), in_force=False, stateful={})
    assert first.why == "off unless options.deterministic = False"


def test_enabled_passes() -> None:
    known = (*sorted(DEFAULT_PASSES), "map_fusion", "make_sloppy")
    assert set(passes_in_force({}, known)) == DEFAULT_PASSES
    assert passes_in_force(OFF, known) == ()
    on = {**OFF, "experimental_optimization.map_fusion": True, "deterministic": False}
    assert passes_in_force(on, known) == ("map_fusion", "make_sloppy")
    off = {"experimental_optimization.inject_prefetch": False}
    assert set(passes_in_force(off, known)) == DEFAULT_PASSES - {"inject_prefetch"}
    assert passes_in_force({}, ()) == ()
