"""On random pipelines, every rewrite of every rule can be applied and leaves a well-formed pipeline."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pipetune.core.edits import Insert, Remove, ReplaceSource, Safety, SetArgument, SplitFunction
from pipetune.core.profile import Diagnosis, Verdict
from pipetune.rewrites import find_rules, propose_all
from pipetune.rewrites.conflicts import find_conflict
from pipetune.testing.rules import check_rewrite, context, proposals

_SOURCES = st.sampled_from(
    [
        "range 9 elements=9",
        "from_tensor_slices gathers elements=9 bytes=1k",
        "list_files elements=4",
        "list_files shuffle=False elements=4",
        "TFRecordDataset elements=50 bytes=1k",
        "from_generator",
        "from_generator python",
        "TextLineDataset filenames=a,b",
        "opaque",
    ]
)
_FUNCTIONS = st.sampled_from(
    [
        "",
        "random",
        "seeded",
        "python",
        "variable=w",
        "table",
        "print",
        "raises",
        "unknown",
        "rows=exact",
        "bytes=5k",
        "bytes=9k",
        "passes=0",
        "fused=n1",
        "fused=n2",
        "random draws=2k head=90% cpu=1ms",
    ]
)
_MAPS = st.builds(
    lambda op, calls, function: " ".join([op, calls, function]).replace("  ", " ").strip(),
    st.just("map"),
    st.sampled_from(["", "2", "AUTOTUNE", "deterministic=False", "4 deterministic=True"]),
    _FUNCTIONS,
)
_OTHERS = st.sampled_from(
    [
        "interleave bytes=1k",
        "interleave cycle_length=4 AUTOTUNE",
        "interleave 2 block_length=3",
        "flat_map",
        "filter",
        "filter early=2",
        "shuffle 10",
        "shuffle 10 seed=1 reshuffle_each_iteration=False",
        "repeat",
        "repeat 2",
        "repeat -1",
        "repeat 1",
        "batch 2",
        "batch 4 drop_remainder=True",
        "batch 2 num_parallel_calls=2",
        "padded_batch 3",
        "unbatch",
        "take 5",
        "skip 2",
        "skip 0",
        "take -1",
        "shard 2 index=1",
        "prefetch 3",
        "prefetch AUTOTUNE",
        "cache",
        "window 2",
        "take_while",
        "scan",
        "group_by_window",
        "ignore_errors",
        "unique",
        "snapshot",
        "with_options",
        "with_options deterministic=False",
        "enumerate",
        "opaque",
    ]
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


@settings(max_examples=30, deadline=None)
@given(words=_PIPELINES, fixed=st.booleans(), cores=st.integers(1, 8), limit=st.sampled_from([1e4, 1e9]))
def test_every_rewrite_applies(words: str, fixed: bool, cores: int, limit: float) -> None:
    described = context(words, randomness_fixed=fixed, cores=cores, memory_limit_bytes=limit)
    ids = tuple(node.id for node in described.pipeline)
    diagnosis = Diagnosis(Verdict.INPUT_BOUND, "", bottleneck=ids[-1], sequential_segments=(ids,))
    described = context(words, randomness_fixed=fixed, cores=cores, memory_limit_bytes=limit, diagnosis=diagnosis)
    for rule in find_rules():
        for rewrite in proposals(rule, described)[0]:
            check_rewrite(rewrite, described.pipeline, rule=rule.name)
    rewrites, _ = propose_all(described)
    assert all(find_conflict(described, [rewrite]) == "" for rewrite in rewrites), words
    assert len({rewrite.key + rewrite.summary for rewrite in rewrites}) == len(rewrites)
    assert all(rewrite.predicted_bytes <= limit for rewrite in rewrites)


@settings(max_examples=30, deadline=None)
@given(words=_PIPELINES)
def test_no_rule_breaks_general_constraints(words: str) -> None:
    described = context(words)
    rewrites, _ = propose_all(described)
    for rewrite in rewrites:
        edited = check_rewrite(rewrite, described.pipeline, rule=rewrite.rule)
        for edit in rewrite.edits:
            if isinstance(edit, SetArgument) and edit.name == "num_parallel_calls" and edit.value is not None:
                node = described.pipeline[edit.node]
                function = node.function
                assert function is None or not (function.reads_variables or function.mutable_tables)
                if function is not None and function.random:
                    assert rewrite.safety >= Safety.STATISTICAL and not rewrite.reproducible
                if function is not None and function.python:
                    assert rewrite.needs
            if isinstance(edit, Insert) and edit.op == "cache":
                above = edited.upstream(edit.id)
                repeats = [node for node in above if node.op == "repeat"]
                assert not repeats or any(node.op == "cache" for node in above)
        # The operators are those of before, with the inserted and without the removed ones.
        more = Insert | ReplaceSource | SplitFunction
        inserted = sum(isinstance(edit, more) for edit in rewrite.edits)
        removed = sum(isinstance(edit, Remove) for edit in rewrite.edits)
        assert len(edited.nodes) == len(described.pipeline.nodes) + inserted - removed
