"""Rules are found by scanning the folder; together they propose each change once, and none above the memory limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import pipetune.rewrites
from pipetune.core.edits import Insert, Rewrite, Safety, SetArgument, apply_edits
from pipetune.core.errors import PipetuneError
from pipetune.rewrites import Rule, find_rule, find_rules, propose_all
from pipetune.rewrites.conflicts import find_conflict
from tests.core.tfds_pipelines import DECODED, made_by_tfds
from tests.rewrites.tables import first, with_profile
from tests.rules import context

_NEW_RULE = """
from pipetune.core.edits import NoProposal
from pipetune.rewrites.rule import Rule

def propose(context):
    yield NoProposal("say-nothing", context.pipeline.output.id, "It has nothing to say.")

RULE = Rule("say-nothing", "Says nothing.", "Always.", "EXACT.", propose)
"""


def test_new_file_adds_a_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(find_rules())
    (tmp_path / "say_nothing.py").write_text(_NEW_RULE)
    (tmp_path / "shared_by_rules.py").write_text("RULES = ()\n")
    monkeypatch.setattr(pipetune.rewrites, "__path__", [*pipetune.rewrites.__path__, str(tmp_path)])
    assert find_rule("say-nothing").summary == "Says nothing."
    assert len(find_rules()) == before + 1
    _, silences = propose_all(context("range 9 | map | batch 2"))
    assert "It has nothing to say." in [silence.why for silence in silences]


def test_unknown_rule_is_an_error_that_lists_known_rules() -> None:
    with pytest.raises(PipetuneError, match="no rule called 'vectorise'") as caught:
        find_rule("vectorise")
    assert "parallel-map" in caught.value.hint


@pytest.mark.parametrize("rule", find_rules(), ids=lambda rule: rule.name)
def test_every_rule_documents_itself(rule: Rule) -> None:
    for prose in (rule.summary, rule.legality, rule.safety):
        assert prose.endswith(".") and "  " not in prose
    assert any(word in rule.safety for word in ("EXACT", "STATISTICAL", "REORDERS"))
    assert any(word in rule.legality.lower() for word in ("never", "unless", "only", "nothing"))


def test_equal_changes_are_proposed_once() -> None:
    words = "TFRecordDataset elements=9 bytes=1k | map bytes=9k | shuffle 9 | batch 2"
    rewrites, _ = propose_all(context(words))
    moves = [rewrite for rewrite in rewrites if rewrite.group == "place@n2"]
    assert len(moves) == 1
    assert len({repr(rewrite.edits) for rewrite in rewrites}) == len(rewrites)
    assert len({rewrite.key for rewrite in rewrites}) == len(rewrites)


@pytest.mark.parametrize(("words", "node", "operators"), [
    ("TFRecordDataset elements=9 bytes=1k | map bytes=1k | batch 2", "n2", ["batch", "cache", "prefetch"]),
    ("range 9 | shuffle 9 | batch 2 | repeat", "n3", ["repeat", "batch", "prefetch"]),
    ("range 9 | map | skip 3", "n2", ["skip", "map", "prefetch"]),
    ("range 9 | map | filter early=1", "n2", ["filter", "map", "prefetch"]),
])  # fmt: skip
def test_plan_in_proposal_order_keeps_the_prefetch_last(words: str, node: str, operators: list[str]) -> None:
    described = context(words)
    rewrites, _ = propose_all(described)
    here = [one for one in rewrites if one.node == node]
    other = next(one for one in here if one.rule != "prefetch" and any(type(e) is not SetArgument for e in one.edits))
    plan = sorted([other, first(here, "prefetch")], key=rewrites.index)
    edited = apply_edits(described.pipeline, [edit for rewrite in plan for edit in rewrite.edits])
    assert [one.op for one in edited][-3:] == operators


def test_rewrite_above_the_memory_limit_is_not_proposed() -> None:
    words = "range 9 | map bytes=100M | batch 2 | prefetch AUTOTUNE"
    rewrites, silences = propose_all(context(words, memory_limit_bytes=300e6))
    sizes = [rewrite.predicted_bytes for rewrite in rewrites if rewrite.rule == "prefetch"]
    assert sizes == [200e6]
    refused = [silence for silence in silences if silence.rule == "prefetch"]
    assert len(refused) == 2 and all("above the limit of 286 MiB" in silence.why for silence in refused)


@pytest.mark.parametrize(("words", "safety"), [
    ("range 9 | shuffle 10 seed=4 | map | repeat 2 | batch 2", Safety.REORDERS),
    ("range 9 | shuffle 10 seed=4 | map | repeat | batch 2", Safety.EXACT),
    ("range 9 | shuffle 10 | map | repeat 2 | batch 2", Safety.EXACT),
])  # fmt: skip
def test_moving_a_shuffle_next_to_its_repeat_changes_a_seeded_order(words: str, safety: Safety) -> None:
    """TensorFlow fuses the two operators."""
    rewrites, _ = propose_all(context(words.replace("map", "map rows=exact")))
    (found,) = (rewrite for rewrite in rewrites if rewrite.rule == "vectorize-map")
    assert found.safety is safety


@pytest.mark.parametrize("below", ["take 5", "window 3", "enumerate", "shard 2 0"])
def test_no_shuffle_is_moved_next_to_its_repeat_before_positional_operators(below: str) -> None:
    """The fused operator would output other elements, and comparing would not show it: it fuses both pipelines."""
    apart, together = "range 9 | shuffle 10 seed=4 | map rows=exact | repeat 2 | batch 2", "range 9 | shuffle 10 seed=4"
    rewrites, silences = propose_all(context(f"{apart} | {below}"))
    assert "vectorize-map" not in {rewrite.rule for rewrite in rewrites}
    assert any(one.rule == "vectorize-map" and "would output other elements" in one.why for one in silences)
    for words in (f"{together} | repeat 2 | {below}", f"a = {together} | repeat 2; b = range 99; zip a b"):
        described = context(words)
        plan = [Rewrite("prefetch", "n1", Safety.REORDERS, (Insert("n1", "prefetch", "p"),), "")]
        assert "would output other elements" in find_conflict(described, plan)


WORDS = DECODED.replace("elements=8", "elements=64") + " cpu=1ms | map cpu=1ms | batch 4"


def notes(*, by_tfds: int) -> dict[str, str]:
    """The note about a `ReadConfig` by the key of each rewrite."""
    found = context(WORDS)
    rewrites, _ = propose_all(replace(found, pipeline=made_by_tfds(found.pipeline, by_tfds)))
    return {one.key: note for one in rewrites for note in one.notes if "ReadConfig" in note}


def test_read_config_note_names_the_changed_fields() -> None:
    assert not notes(by_tfds=0), "the reading is that of the script"
    found = notes(by_tfds=5)
    assert found, "the rules have something to say of it"
    assert all(key.split("@")[1][:2] in ("n1", "n4") for key in found), "of the interleave and the decoding alone"
    (longer,) = (note for key, note in found.items() if "interleave_cycle_length=32" in note)
    assert longer == "For tfds.load, this is read_config=tfds.ReadConfig(interleave_cycle_length=32)."


def test_what_a_full_cache_makes_idle_is_not_changed() -> None:
    words = "list_files elements=9 | flat_map elements=90 | map! | cache elements=90 | map! random | batch 2"
    full = with_profile(context(words), cache_seconds=2.0)
    before, after = ({(one.rule, one.node) for one in propose_all(given)[0]} for given in (context(words), full))
    assert before - after == {("read-shards", "n2"), ("parallel-map", "n3")} and ("parallel-map", "n5") in after
    why = "Nothing upstream of cache (train.py:5) runs after the first epoch."
    assert {(one.rule, one.node) for one in propose_all(full)[1] if one.why == why} == before - after


@pytest.mark.parametrize(("words", "idle"), [
    ("range 9 | map | cache | map", "n0 n1"),
    ("a = range 9 | map; b = a | cache; c = a | batch 2 | unbatch; zip b c", ""),
    ("a = range 9 | map; b = a | cache; c = a | batch 2 | cache; zip b c", "n0 n1 n3"),
])  # fmt: skip
def test_only_what_every_way_to_the_output_reads_from_a_full_cache_is_idle(words: str, idle: str) -> None:
    assert " ".join(sorted(context(words).pipeline.idle_operators)) == idle
