"""One call that creates several datasets: speed may change for all of them, data for none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.core.edits import Insert, Move, Plan, Remove, Safety, SetArgument, SetOption, apply_edits
from pipetune.core.functions import FunctionFacts
from pipetune.source.emit import emit
from tests.source.recorder import plan, record, recorded, shape, spelled_out

HELPER = """def make(n):
    ds = range(n).shuffle(9).map(abs)
    ds = ds.batch(2)
    return ds
train(make(3))
validate(make(5))
"""


@pytest.fixture
def pipelines(tmp_path):
    def make(text):
        _, recorder = recorded(tmp_path, spelled_out("import tensorflow as tf\n" + text))
        return recorder.pipeline("train"), recorder.pipeline("validate") if "validate" in recorder.consumed else None

    return make


def written(emission):
    """The only new text."""
    ((_, new),) = emission.files.values()
    return new


PREFETCH = Insert("n3", "prefetch", "p", {"buffer_size": -1})


@pytest.mark.parametrize(
    "edit", [PREFETCH, SetArgument("n2", "num_parallel_calls", 2), SetArgument("n2", "deterministic", True)]
)
def test_speed_may_change_for_all_datasets(pipelines, edit):
    train, _ = pipelines(HELPER)
    assert train["n2"].shared == 2
    emission = emit(train, plan(edit))
    assert emission.covered and "makes 2 datasets" in emission.notes[0]


@pytest.mark.parametrize(
    ("draws", "safety", "both"), [(False, 0, True), (True, 0, False), (True, 1, True), (False, Safety.REORDERS, False)]
)
def test_other_function_of_the_same_call_must_allow_parallel_calls_too(pipelines, draws, safety, both):
    train, validate = pipelines(HELPER)
    other = FunctionFacts("other", "drawing", random=draws)
    nodes = tuple(replace(node, function=other) if node.op == "map" else node for node in validate)
    edits = plan(SetArgument("n2", "num_parallel_calls", 2), safety=Safety(safety))
    emission = emit(train, edits, other_pipelines=[replace(validate, nodes=nodes)])
    assert ("rule=True" not in written(emission)) is both


DATA = [
    Remove("n1"),
    Move("n1", "n2"),
    SetArgument("n3", "batch_size", 64),
    SetArgument("n1", "buffer_size", 64),
    SetArgument("n2", "deterministic", False),
    SetOption("deterministic", True),
]


@pytest.mark.parametrize("edit", DATA, ids=lambda edit: type(edit).__name__ + getattr(edit, "name", ""))
def test_data_changes_for_one_dataset_only(pipelines, edit):
    """A parameter of the function that creates both leaves the other dataset unchanged."""
    train, validate = pipelines(HELPER)
    emission = emit(train, plan(edit))
    ((path, (_, new)),) = emission.files.items()
    assert "def make(n, rule=False):" in new and "train(make(3, rule=True))\nvalidate(make(5))\n" in new
    patched = record(Path(path), new)
    assert shape(patched.pipeline("validate")) == shape(validate)
    assert shape(patched.pipeline()) == shape(apply_edits(train, [edit]))
    allowed = emit(train, plan(edit), may_share=lambda rewrite: rewrite.rule == "rule")
    assert allowed.covered and "def make(n):" in written(allowed)


def test_private_method_gets_a_parameter_too(pipelines):
    text = HELPER.replace("def make(n)", "def __make(self, n)").partition("train(")[0].replace("\n", "\n    ")
    ways = [f"    def {name}(self):\n        return self.__make({n})\n" for name, n in (("one", 3), ("other", 5))]
    text = f"class Data:\n    {text.rstrip()}\n{''.join(ways)}train(Data().one())\nvalidate(Data().other())\n"
    train, _ = pipelines(text)
    new = written(emit(train, plan(DATA[0])))
    assert "def __make(self, n, rule=False):" in new and "self.__make(3, rule=True)" in new and "__make(5)\n" in new


@pytest.mark.parametrize("op", ["cache", "shuffle", "repeat"])
def test_operator_at_the_end_of_a_function_is_added_at_its_call(pipelines, op):
    train, _ = pipelines(HELPER)
    emission = emit(train, plan(Insert("n3", op, "x", {"buffer_size": 9} if op == "shuffle" else {})))
    new = written(emission)
    assert f"train(make(3).{op}(" in new and "validate(make(5))\n" in new and emission.notes == ()


def test_operator_after_an_inserted_one_is_shared_too(pipelines):
    train, _ = pipelines(HELPER)
    new = written(emit(train, plan(PREFETCH, Insert("p", "cache", "c"))))
    assert "    if rule:\n        ds = ds.prefetch(tf.data.AUTOTUNE).cache()\n    return ds\n" in new


@pytest.mark.parametrize(
    "text", ["range(n).shuffle(9).map(abs)", "range(n).shuffle(\n        9\n    ).map(\n        abs\n    )"]
)
def test_what_is_added_to_a_call_is_its_own_statement(pipelines, text):
    train, _ = pipelines(HELPER.replace("range(n).shuffle(9).map(abs)", text))
    new = written(emit(train, plan(Insert("n2", "cache", "c"))))
    assert spelled_out(f"    ds = {text}\n    if rule:\n        ds = ds.cache()\n    ds = ds.batch(2)\n") in new


@pytest.mark.parametrize(("given", "condition"), [("False", ""), ("9 * 0", "        if not training:\n    ")])
def test_cache_by_a_parameter_needs_no_condition_that_its_calls_decide(pipelines, given, condition):
    drawing = HELPER.replace("(n)", "(n, training)", 1).replace(
        "    ds = ds.b", "    if training: ds = ds.map(len)\n    ds = ds.b"
    )
    drawing = drawing.replace("return ds", "return ds.prefetch(2)").replace("(3)", "(3, True)")
    train, validate = pipelines(drawing.replace("(5)", f"(5, {given})"))
    new = written(emit(validate, plan(Insert("n3", "cache", "c")), other_pipelines=[train]))
    assert f"    if rule:\n{condition}        ds = ds.cache()\n    return ds.prefetch(2)\n" in new
    assert f"train(make(3, True))\nvalidate(make(5, {given}, rule=True))\n" in new


TWICE = """def make(n):
    ds = range(n).shuffle(9).map(abs)
    ds = ds.batch(2)
    return ds
train(make(3).concatenate(make(5)))
"""  # n0 to n3, and n4 to n7
MOVED_BATCH = (Move("n3", "n0"), Insert("n2", "cache", "a")), (Move("n7", "n4"), Insert("n6", "cache", "b"))
DIFFERENT = (Move("n3", "n0"), Insert("n2", "cache", "a")), (Move("n7", "n5"), Insert("n6", "cache", "b"))
_EACH = "__import__('functools').reduce(lambda a, b: a.concatenate(b), [make(n) for n in (3, 5)])"


def _each(*edits, rule="rule"):
    return Plan("plan", tuple(replace(plan(*some).rewrites[0], rule=rule, node=some[0].node) for some in edits))


@pytest.mark.parametrize("text", [TWICE, TWICE.replace("make(3).concatenate(make(5))", _EACH)], ids=["two", "loop"])
def test_same_rewrite_of_all_operators_of_a_call_is_written_once(pipelines, text):
    train, _ = pipelines(text)
    emission = emit(train, _each(*MOVED_BATCH))
    ((path, (_, new)),) = emission.files.items()
    assert new.count("cache()") == 1 and "range(n).batch(2).shuffle(9).map(abs).cache()" in new
    assert len(emission.covered) == 2 and not emission.notes
    wanted = apply_edits(train, [edit for some in MOVED_BATCH for edit in some])
    assert shape(record(Path(path), new).pipeline()) == shape(wanted)


@pytest.mark.parametrize(
    ("text", "edits", "why"),
    [
        (TWICE, MOVED_BATCH[:1], "makes 2 operators of this pipeline"),
        (TWICE, DIFFERENT, "makes 2 operators of this pipeline"),
        (TWICE.replace("make(5)", "make(4)).concatenate(make(5)"), MOVED_BATCH, "makes 3 operators of this pipeline"),
        (TWICE + "validate(make(7))\n", MOVED_BATCH, "shared by 3 datasets"),
    ],
    ids=["one of two", "other places", "two of three", "another dataset"],
)
def test_other_rewrites_of_operators_of_a_call_are_not_written_together(pipelines, text, edits, why):
    train, _ = pipelines(text)
    emission = emit(train, _each(*edits))
    assert not emission.files and all(why in one.why for one in emission.not_covered)
    assert len(emission.not_covered) == len(edits)


def test_a_cache_of_what_a_join_reads_second_is_not_written_behind_the_first(pipelines):
    train, _ = pipelines(TWICE)
    edit = Insert("n7", "cache", "a")
    for path, (_, new) in emit(train, plan(edit)).files.items():
        assert shape(record(Path(path), new).pipeline()) == shape(apply_edits(train, [edit])), new


def test_what_cannot_be_written_together_has_one_reason(pipelines):
    train, _ = pipelines(TWICE)
    edits = (Insert("n2", "group_by", "a"),), (Insert("n6", "group_by", "b"),)
    emission = emit(train, Plan("plan", tuple(replace(plan(*one).rewrites[0], node=one[0].after) for one in edits)))
    assert [one.why for one in emission.not_covered] == ["pipetune cannot write the call group_by()."] * 2


BRANCH = """ds = range(9).map(abs)
train(ds.skip(3).batch(2))
validate(ds.take(3).batch(2))
"""


def test_branch_is_shared_upstream_but_not_downstream(pipelines):
    train, validate = pipelines(BRANCH)
    above, below = Insert("n1", "cache", "c"), Insert("n2", "cache", "c")
    assert emit(train, plan(above)).covered  # no other pipeline is known to read it
    emission = emit(train, plan(Remove("n1")), other_pipelines=[validate])
    assert "shared by 2 datasets (validate too)" in emission.not_covered[0].why
    assert emit(train, plan(below), other_pipelines=[validate]).covered


LOOP = """ds = range(9)
for k in (1, 2):
    ds = ds.map(lambda x: x)
train(ds)
"""


@pytest.mark.parametrize("second", [2, 4])
def test_loop_gets_one_number(pipelines, second):
    train, _ = pipelines(LOOP)
    edits = (SetArgument("n1", "num_parallel_calls", 2), SetArgument("n2", "num_parallel_calls", second))
    emission = emit(train, plan(*edits))
    if second == 2:
        assert written(emission).count("num_parallel_calls=2") == 1
    else:
        assert emission.files == {} and "needs another num_parallel_calls" in emission.not_covered[0].why


def test_loop_gets_one_prefetch(pipelines):
    train, _ = pipelines(LOOP)
    there = [Insert(after, "prefetch", name, {"buffer_size": -1}) for after, name in (("n1", "a"), ("n2", "b"))]
    edits = plan(*there, SetArgument("a", "buffer_size", 2), SetArgument("b", "buffer_size", 2))
    assert "ds = ds.map(lambda x: x).prefetch(2)\n" in written(emit(train, edits))


CALLED = """def load(n):
    return range(n).map(abs)
def training(n):
    ds = load(n)
    ds = ds.map(abs)
    ds = ds.shuffle(9)
    return ds.batch(2)
train(training(9))
validate(load(5).map(abs).batch(2))
"""

READ_TWICE = """def load(n):
    return range(n).map(abs)
def both(n):
    ds = load(n)
    train(ds.map(abs).shuffle(9))
    validate(ds.batch(2))
both(9)
load(2)
"""

BROKEN = """def load(n):
    return range(n).map(abs)
train(
    load(9)
    # larger from here on
    .map(abs)
    .batch(2)
)
validate(load(5).batch(2))
"""

PASSED = """def prepare(ds, size):
    ds = ds.shuffle(9)
    return ds.batch(size)
data = range(9).map(abs)
train(prepare(data, 2))
validate(data)
prepare(range(5), 2)
"""

CACHE = Insert("n1", "cache", "c")


BESIDE = {
    "a move": (CALLED, Move("n3", "n1"),
               "    ds = load(n)\n    ds = ds.shuffle(9)\n    ds = ds.map(abs)\n    return ds.batch(2)\n"),
    "a name with other readers":
        (READ_TWICE, CACHE, "    train(ds.cache().map(abs).shuffle(9))\n    validate(ds.batch(2))\n"),
    "a branch": (BRANCH, CACHE, "train(ds.cache().skip(3).batch(2))\nvalidate(ds.take(3).batch(2))\n"),
    "what a helper gets": (PASSED, CACHE,
               "data = range(9).map(abs)\ntrain(prepare(data.cache(), 2))\nvalidate(data)\n"),
    "a comment stays with its call":
        (BROKEN, CACHE, "    load(9)\n    .cache()\n    # larger from here on\n    .map(abs)\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", BESIDE)
def test_edit_at_a_shared_call_is_written_beside_it(pipelines, case):
    text, edit, lines = BESIDE[case]
    train, validate = pipelines(text)
    emission = emit(train, plan(edit, safety=Safety.STATISTICAL), other_pipelines=[validate])
    assert emission.covered
    new = written(emission)
    assert spelled_out(lines) in new and new.count("shuffle" if isinstance(edit, Move) else "cache") == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    ds = ds.shuffle(9)", "    ds = ds.take(8).shuffle(9)\n    print(ds)"),  # does more than append
        ("prepare(data, 2))", "prepare({'ds': data}['ds'], 2))"),  # no variable
    ],
)
def test_what_a_helper_gets_is_not_changed_where_it_is_not_certain(pipelines, old, new):
    train, validate = pipelines(PASSED.replace(old, new))
    found = emit(train, plan(CACHE, safety=Safety.STATISTICAL), other_pipelines=[validate])
    assert found.files == {} and "shared by 2 datasets" in found.not_covered[0].why


def test_move_before_a_name_with_other_readers_is_refused(pipelines):
    train, validate = pipelines(READ_TWICE)
    moved = emit(train, plan(Move("n3", "n1"), safety=Safety.STATISTICAL), other_pipelines=[validate])
    assert moved.files == {} and "shared by 2 datasets" in moved.not_covered[0].why
