"""On random pipelines, every rewrite of every rule can be applied and leaves a well-formed pipeline."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetune.core.edits import Insert, Remove, ReplaceSource, Rewrite, Safety, SetArgument, SplitFunction, apply_edits
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Diagnosis, Verdict
from pipetune.rewrites import find_rules, propose_all
from pipetune.rewrites.conflicts import find_conflict
from tests.rules import context, proposals


def _one_of(stages: str) -> st.SearchStrategy[str]:
    return st.sampled_from([stage.strip() for stage in stages.split(";")])


_SOURCES = _one_of(
    "range 9 elements=9; from_tensor_slices gathers elements=9 bytes=1k; list_files elements=4;"
    "list_files shuffle=False elements=4; TFRecordDataset elements=50 bytes=1k; from_generator; from_generator python;"
    "TextLineDataset filenames=a,b; opaque"
)
_FUNCTIONS = (
    "; random; seeded; python; variable=w; table; print; raises; unknown; rows=exact; bytes=5k; bytes=9k; passes=0;"
    "fused=n1; fused=n2; pads=256; random draws=2k head=90% cpu=1ms"
)
_MAPS = st.builds(
    lambda calls, function: " ".join(f"map {calls} {function}".split()),
    _one_of("; 2; AUTOTUNE; deterministic=False; 4 deterministic=True"),
    _one_of(_FUNCTIONS),
)
_OTHERS = _one_of(
    "interleave bytes=1k; interleave cycle_length=4 AUTOTUNE; interleave 2 block_length=3; flat_map; filter;"
    "filter early=2; shuffle 10; shuffle 10 seed=1 reshuffle_each_iteration=False; repeat; repeat 2; repeat -1;"
    "repeat 1; batch 2; batch 4 drop_remainder=True; batch 2 num_parallel_calls=2; padded_batch 3; unbatch; take 5;"
    "skip 2; skip 0; take -1; shard 2 index=1; prefetch 3; prefetch AUTOTUNE; cache; window 2; take_while; scan;"
    "group_by_window; ignore_errors; unique; snapshot; with_options; with_options deterministic=False; enumerate;"
    "opaque"
)
_CHAINS = st.builds(
    lambda source, stages: " | ".join([source, *stages]),
    _SOURCES,
    st.lists(st.one_of(_MAPS, _OTHERS), min_size=1, max_size=7),
)
_PIPELINES = st.one_of(
    _CHAINS,
    st.builds(
        lambda left, right, join, rest: f"a = {left}; b = {right}; {join} a b | {rest}",
        _CHAINS,
        _CHAINS,
        st.sampled_from(["zip", "concatenate", "choose"]),
        st.one_of(_MAPS, _OTHERS),
    ),
)


@settings(max_examples=40, deadline=None)
@given(words=_PIPELINES, fixed=st.booleans(), cores=st.integers(1, 8), limit=st.sampled_from([1e4, 1e9]))
def test_every_rewrite_applies_and_keeps_general_constraints(words: str, fixed: bool, cores: int, limit: float) -> None:
    ids = tuple(node.id for node in context(words).pipeline)
    diagnosis = Diagnosis(Verdict.INPUT_BOUND, "", bottleneck=ids[-1], sequential_segments=(ids,))
    described = context(words, randomness_fixed=fixed, cores=cores, memory_limit_bytes=limit, diagnosis=diagnosis)
    for rule in find_rules():
        proposals(rule, described)  # checks that each can be applied and leaves a well-formed pipeline
    rewrites, _ = propose_all(described)
    assert len({rewrite.key + rewrite.summary for rewrite in rewrites}) == len(rewrites)
    for rewrite in rewrites:
        assert find_conflict(described, [rewrite]) == "" and rewrite.predicted_bytes <= limit
        _check_constraints(rewrite, described.pipeline)


def _check_constraints(rewrite: Rewrite, pipeline: Pipeline) -> None:
    edited = apply_edits(pipeline, rewrite.edits)
    for edit in rewrite.edits:
        if isinstance(edit, SetArgument) and edit.name == "num_parallel_calls" and edit.value is not None:
            function = pipeline[edit.node].function
            assert function is None or not (function.reads_variables or function.mutable_tables)
            if function is not None and function.random:
                assert rewrite.safety >= Safety.STATISTICAL and not rewrite.reproducible
            if function is not None and function.python:
                assert rewrite.needs
        if isinstance(edit, Insert) and edit.op == "cache":
            above = {node.op for node in edited.upstream(edit.id) if (node.op, node.argument("count")) != ("repeat", 1)}
            assert "repeat" not in above or "cache" in above
    # The operators are those of before, with the inserted and without the removed ones.
    inserted = sum(isinstance(edit, Insert | ReplaceSource | SplitFunction) for edit in rewrite.edits)
    removed = sum(isinstance(edit, Remove) for edit in rewrite.edits)
    assert len(edited.nodes) == len(pipeline.nodes) + inserted - removed


@pytest.mark.parametrize("function", [one.strip() for one in _FUNCTIONS.split(";")])
def test_any_two_rewrites_either_stand_together_or_have_a_conflict(function: str) -> None:
    """On what most scripts have. Random pipelines find a pair that raises in few of many runs."""
    source = "from_tensor_slices elements=90 | map AUTOTUNE"
    described = context(f"{source} | map AUTOTUNE {function} | shuffle 10 | repeat | batch 4 | prefetch AUTOTUNE")
    rewrites, _ = propose_all(described)
    for pair in itertools.permutations(rewrites, 2):
        conflict = find_conflict(described, pair)
        assert conflict or apply_edits(described.pipeline, [edit for one in pair for edit in one.edits])


@pytest.mark.parametrize(
    "words", ["range 3 | mop", "range 3 | filter nonsense", "range 3 | map bytes=many", "range 3 | map cpu=3h"]
)
def test_unknown_word_is_an_error(words: str) -> None:
    with pytest.raises(ValueError, match=r"mop|nonsense|many|3h"):
        context(words)
