"""Pipelines from the grammar: sentences are parsed and built as described."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from benchmarks.accuracy import grammar
from pipetune.pipelines import live

SENTENCES = grammar.sentences(40, 0)


def test_sentences_are_reproducible_by_seed_and_cover_the_whole_grammar() -> None:
    assert grammar.sentences(12, 0) == SENTENCES[:12]
    assert set(grammar.sentences(12, 1)).isdisjoint(SENTENCES)
    stages = [stage for text in SENTENCES for stage in grammar.parse(text)]
    words = "range slices records files interleave map filter flat_map cache shuffle repeat batch prefetch"
    assert {stage.op for stage in stages} >= set(words.split())
    maps = [stage for stage in stages if stage.op == "map"]
    assert {None, 2, tf.data.AUTOTUNE} <= {stage.number for stage in maps}
    assert any("wait" in stage.words for stage in maps) and any("random" in stage.words for stage in maps)
    for text in SENTENCES:
        assert " | ".join(stage.text for stage in grammar.parse(text)) == text


@pytest.mark.parametrize("text", SENTENCES[:3])
def test_built_pipeline_has_the_operators_of_its_sentence(text: str, tmp_path: Path) -> None:
    dataset = grammar.build(text, tmp_path)
    pipeline = live.read(dataset).pipeline
    said = [stage for stage in grammar.parse(text) if stage.op not in ("files", "slices", "records")]
    assert [node.op for node in pipeline][-len(said) :] == [stage.op for stage in said]
    for node, stage in zip(pipeline.nodes[-len(said) :], said, strict=True):
        if stage.op == "map":
            assert node.argument("num_parallel_calls") == stage.number
            assert node.function is not None and node.function.random == ("random" in stage.words)
            assert not node.function.python
    assert len(list(dataset.take(2))) == 2


def test_built_pipeline_has_the_sizes_of_its_sentence() -> None:
    dataset = grammar.build("slices 10 bytes=40 | map out=400 | filter keep=5 | flat_map copies=3 | batch 6", Path())
    (batch,) = list(dataset)
    assert batch.shape == (6, 100)
    assert sorted({int(row[0]) for row in batch}) == [0, 5]


@pytest.mark.parametrize("text", ["range 4 | twist", "range 4 | map work=2parsecs"])
def test_unknown_word_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        grammar.build(text, Path())


def test_wait_takes_wall_time_and_no_cpu_time() -> None:
    dataset = grammar.build("range 20 | map wait=5ms", Path())
    iterator = iter(dataset)
    next(iterator)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(10):
        next(iterator)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert wall > 10 * 0.004 / 4  # defaults may run several at once
    assert cpu < 0.7 * wall
