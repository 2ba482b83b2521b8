"""A split moved before a map that other datasets read too: the branch gets a map of its own, the others keep theirs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.core.edits import Edit, Insert, Move, Plan, Rewrite, Safety, SetArgument, apply_edits
from pipetune.core.functions import FunctionFacts
from pipetune.source.emit import Emission, emit, emit_more
from tests.source.recorder import plan, record, recorded, shape, spelled_out

HEAD = "import tensorflow as tf\nFIRST = 7\n"
EARLIER = (Move("n2", "n0"),)


def _emit(tmp_path: Path, text: str, *, dataset: str = "validate", edits: tuple[Edit, ...] = EARLIER) -> Emission:
    path, recorder = recorded(tmp_path, HEAD + text)
    pipelines = {name: recorder.pipeline(name) for name in recorder.consumed}
    mine = pipelines.pop(dataset)
    emission = emit(mine, plan(*edits), other_pipelines=tuple(pipelines.values()))
    if emission.files:
        ((_, (_, new)),) = emission.files.items()
        patched = record(path, new)
        assert shape(patched.pipeline(dataset)) == shape(apply_edits(mine, edits))
        for name, other in pipelines.items():
            assert shape(patched.pipeline(name)) == shape(other)
    return emission


def _change(emission: Emission) -> str:
    ((_, (_, new)),) = emission.files.items()
    return new.removeprefix(HEAD)


def script(made: str, validation: str = "every.skip(FIRST)") -> str:
    """A script that makes `every` in some statements, and reads it for training and for validation."""
    branches = f"training = every.take(FIRST).batch(4)\nvalidation = {validation}.batch(4)"
    return spelled_out(f"{made}\n{branches}\ntrain(training)\nvalidate(validation)\n")


def within(text: str) -> str:
    return "def main():\n" + "".join(f"    {line}" for line in text.splitlines(keepends=True)) + "main()\n"


OWN_MAP = "every_before_map.skip(FIRST).map(abs)"
ASSIGNED = script("every = range(30).map(abs)")
BEFORE_MAP = "every_before_map = range(30)\nevery = every_before_map.map(abs)"
MAPPED = "every = range(30)\n{}every = every.map(abs)"
DOUBLED = "numbers = range(30)\nevery = numbers.map(lambda x: x * 2)"
WRITTEN = {
    "assigned": (ASSIGNED, script(BEFORE_MAP, OWN_MAP)),
    "in parentheses": (
        script("every = (\n    range(30)\n    .map(abs)  # slow\n)", "(\n    every\n    .skip(FIRST)  # the rest\n)"),
        script("every_before_map = range(30)\nevery = (\n    every_before_map\n    .map(abs)  # slow\n)",
               "(\n    every_before_map\n    .skip(FIRST).map(abs)  # the rest\n)")),
    "a second variable":
        (script(MAPPED.format("raw = every\n")), script(MAPPED.format("raw = every\n"), "raw.skip(FIRST).map(abs)")),
    "a second variable that changes": (
        script(MAPPED.format("raw = every\n") + "\nraw = 5"),
        script(MAPPED.format("every_before_map = every\nraw = every\n") + "\nraw = 5", OWN_MAP)),
    "a name of its own": (script(DOUBLED), script(DOUBLED, "numbers.skip(FIRST).map(lambda x: x * 2)")),
    "a taken name": (
        script("every_before_map = 5\nevery = range(30).map(abs)"),
        script("every_before_map = 5\nevery_before_map_2 = range(30)\nevery = every_before_map_2.map(abs)",
               OWN_MAP.replace("map.", "map_2.", 1))),
    "in a function": (
        within(script("every = range(\n    30\n).map(abs)")),
        within(script("every_before_map = (range(\n    30\n))\nevery = every_before_map.map(abs)", OWN_MAP))),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_branch_gets_a_map_of_its_own(name: str, tmp_path: Path) -> None:
    text, expected = WRITTEN[name]
    emission = _emit(tmp_path, text)
    assert emission.not_covered == () and _change(emission) == expected


def test_several_maps_and_a_run_of_splits(tmp_path: Path) -> None:
    text = script("every = range(30).map(abs)\nevery = every.map(lambda x: x + 1)", "every.take(20).skip(FIRST)")
    emission = _emit(tmp_path, text, edits=(Move("n3", "n0"), Move("n4", "n3")))
    assert emission.not_covered == ()
    line = "validation = every_before_map.take(20).skip(FIRST).map(abs).map(lambda x: x + 1).batch(4)\n"
    assert line in _change(emission)


def test_dataset_that_is_read_after_training_keeps_its_map(tmp_path: Path) -> None:
    text = "every = range(30).map(abs)\npart = every.skip(FIRST).batch(4)\ntrain(part)\nfor _ in every.take(7): pass\n"
    emission = _emit(tmp_path, spelled_out(text), dataset="train")
    assert emission.not_covered == () and "part = every_before_map.skip(FIRST).map(abs).batch(4)\n" in _change(emission)


@pytest.mark.parametrize(
    ("lines", "indent", "why"),
    [
        ("every = range(30).shuffle(9)", "", "once more"),
        ("every = range(30).map(abs)\nif FIRST:", "    ", "in the block"),
        ("n = 2\nevery = range(30).map(lambda x: x * n)\nn = 3", "", "reassigned"),
        ("every = range(30).map(abs)\nhelp(abs)", "", "statements in between"),
        ("every, _ = range(30).map(abs), 2", "", "assigned once"),
        ("every = range(30).map(abs)\ntrain(every.batch(4))", "", "statements in between"),
    ],
)
def test_other_shared_calls_are_kept(lines: str, indent: str, why: str, tmp_path: Path) -> None:
    text = spelled_out(lines) + "".join(f"\n{indent}{line}" for line in script("").splitlines()[1:]) + "\n"
    emission = _emit(tmp_path, text)
    assert emission.files == {} and why in emission.not_covered[0].why


ADAPTED = """SIZE = OTHER = 9
def change():
    global OTHER
    OTHER = 3
every = tf.data.Dataset.range(30)
every = every.shuffle({size})
{between}
validate(every.batch(4))
training = every.map(abs).batch(4)
train(training)
"""
BEHIND = (Move("n1", "n2"), Insert("n2", "cache", "cache@n2"))


@pytest.mark.parametrize(
    ("size", "between", "why"),
    [
        ("SIZE", "help(abs)", ""),
        ("9, seed=3", "help(abs)", ""),
        ("SIZE", "SIZE = 3", "reassigned"),
        ("OTHER", "change()", "statements in between"),
        ("int(SIZE)", "help(abs)", "statements in between"),
        ("9, reshuffle_each_iteration=False", "", "another one would differ"),
    ],
)
def test_shuffle_that_other_datasets_read_is_written_once_more_behind_a_cache(
    size: str, between: str, why: str, tmp_path: Path
) -> None:
    text = ADAPTED.format(size=size, between=between)
    emission = _emit(tmp_path, text, dataset="train", edits=BEHIND)
    if why:
        assert emission.files == {} and why in emission.not_covered[0].why
    else:
        before = f"every_before_shuffle = every\nevery = every.shuffle({size})\n"
        after = f"training = every_before_shuffle.map(abs).cache().shuffle({size}).batch(4)\n"
        assert before in _change(emission) and after in _change(emission)


def test_shuffle_of_a_script_with_seeds_is_not_written_once_more(tmp_path: Path) -> None:
    """It would take a seed from the generator that makes those of what follows."""
    _, recorder = recorded(tmp_path, HEAD + ADAPTED.format(size=9, between=""))
    others = [recorder.pipeline("validate")]
    seeded = plan(*BEHIND, safety=Safety.STATISTICAL)
    assert not emit(recorder.pipeline("train"), seeded, other_pipelines=others).covered


@pytest.mark.parametrize("facts", [{"random": True}, {"random_python": True}, {"python": True}])
def test_function_that_may_differ_if_traced_again_is_not_unless_it_draws_anew(
    facts: dict[str, bool], tmp_path: Path
) -> None:
    _, recorder = recorded(tmp_path, HEAD + ASSIGNED)
    mine = recorder.pipeline("validate")
    nodes = (replace(node, function=FunctionFacts("f", "f", **facts)) if node.op == "map" else node for node in mine)
    emission = emit(replace(mine, nodes=tuple(nodes)), plan(*EARLIER), other_pipelines=[recorder.pipeline("train")])
    if "random" in facts:  # any move past it changes which element gets which draw
        assert OWN_MAP in _change(emission)
    else:
        assert emission.files == {} and "if it is traced again" in emission.not_covered[0].why


def test_plan_of_a_second_dataset_is_written_after_that_of_the_first(tmp_path: Path) -> None:
    path, recorder = recorded(tmp_path, HEAD + ASSIGNED)
    train, validate = recorder.pipeline("train"), recorder.pipeline("validate")
    parallel = SetArgument("n1", "num_parallel_calls", 2)
    first_edits = (parallel, Insert("n2", "cache", "cache@n2"))
    rewrites = (Rewrite(f"rule-{k}", "n1", Safety.EXACT, (edit,), "") for k, edit in enumerate(first_edits))
    training = Plan("t", tuple(rewrites))
    first = emit(train, training, other_pipelines=[validate])
    split = plan(*EARLIER)
    both = emit_more(first, apply_edits(validate, [parallel]), split, other_pipelines=[train])
    assert both.covered == tuple(one.key for one in split.rewrites) and both.not_covered == ()
    ((_, (old, new)),) = both.files.items()
    assert old == HEAD + ASSIGNED
    parallel_map = "map(abs, num_parallel_calls=2)"
    assert new == HEAD + script(
        BEFORE_MAP.replace("map(abs)", parallel_map), f"every_before_map.skip(FIRST).{parallel_map}"
    ).replace("take(FIRST)", "take(FIRST).cache()")
    patched = record(path, new)
    assert shape(patched.pipeline()) == shape(apply_edits(train, first_edits))
    assert shape(patched.pipeline("validate")) == shape(apply_edits(validate, [parallel, Move("n2", "n0")]))


def test_plan_of_a_second_dataset_leaves_what_the_first_has_moved(tmp_path: Path) -> None:
    text = HEAD + "every = tf.data.Dataset.range(30).map(abs)\ntrain(every.skip(FIRST).batch(4))\n"
    path, recorder = recorded(tmp_path, text)
    train = recorder.pipeline("train")
    split = plan(*EARLIER)
    first = emit(train, split)
    (site,) = [now for captured, now in first.moved.items() if now.end < 0]
    assert site.file == str(path)
    again = emit_more(first, train, split, other_pipelines=[train])
    assert again.covered == () and again.files == first.files


BOTH_CACHED = """import tensorflow as tf
def make(n, size):
    ds = tf.data.Dataset.range(n).map(abs)
    ds = ds.batch(size)
    return ds.prefetch(2)
def wrapped(n):
    return make(n, 4)
train(wrapped(9))
validate(make(5, 2))
"""


@pytest.mark.parametrize("switched", [False, True])
def test_second_dataset_turns_on_what_the_first_has_by_a_parameter(switched: bool, tmp_path: Path) -> None:
    path, recorder = recorded(tmp_path, BOTH_CACHED)
    train, validate = recorder.pipeline("train"), recorder.pipeline("validate")
    cached = Rewrite("cache", "n2", Safety.EXACT, (Insert("n2", "cache", "cache@n2"),), "")
    first = emit(train, Plan("t", (cached,)), other_pipelines=[validate])
    assert first.covered == (cached.key,)
    shared = {cached.key: "cache"} if switched else {}
    both = emit_more(first, validate, Plan("v", (cached,)), other_pipelines=[train], switches=shared)
    if not switched:
        assert both.covered == () and "already uses the name cache" in both.not_covered[0].why
        return
    assert both.covered == (cached.key,), both.not_covered
    ((_, (_, new)),) = both.files.items()
    assert "return make(n, 4, cache=True)\ntrain(wrapped(9))\nvalidate(make(5, 2, cache=True))\n" in new
    patched = record(path, new)
    for name, before in (("train", train), ("validate", validate)):
        assert shape(patched.pipeline(name)) == shape(apply_edits(before, cached.edits))
