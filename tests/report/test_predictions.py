"""Predicted beside measured, and what would limit training under other conditions."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.results import PredictedRate, Scenario
from pipetune.core.session import Session
from pipetune.report.blocks import Table
from tests.report import sessions as samples
from tests.report.reading import blocks, ids, sentences, table, texts, with_main

PREDICTIONS = (
    PredictedRate("off", "optimizations off", 800.0, 1000.0),
    PredictedRate("defaults", "current", 1100.0, 1000.0),
    PredictedRate("cache@n3", "cache <b>", 5000.0, None),
    PredictedRate("opaque", "opaque", None, 700.0, "map runs Python code"),
)
WHAT_IF = (
    Scenario("as it is", 40.0, 40.0, "input", "n3", "cores"),
    Scenario("2 times the cores", 80.0, 50.0, "model", "n3", "cores"),
    Scenario("8 replicas on this host", 40.0, 5.0, "input", None, "consumer"),
)


def session(**changes: object) -> Session:
    return with_main(samples.photos(), **{"plan": None, "predictions": PREDICTIONS, "what_if": WHAT_IF, **changes})


def rows(title: str, **changes: object) -> dict[str, list[str]]:
    found = [table for table in blocks(session(**changes), Table, "predictions") if table.caption.startswith(title)]
    return {texts(row)[0]: texts(row)[1:] for table in found for row in table.rows}


def test_each_plan_has_its_error_where_both_are_known() -> None:
    found = rows("The input alone", rates={})
    assert found["optimizations off"] == ["800/s", "1,000/s", "-20 %"]
    assert found["current"] == ["1,100/s", "1,000/s", "+10 %"]
    assert found["cache <b>"] == ["5,000/s", "", ""] and found["opaque"] == ["", "700/s", ""]
    assert sentences(session(rates={}), "predictions") == [
        "The cost model was off by 15 % on average over 2 plans, the input alone.",
        "Not predicted: map runs Python code.",
    ]


def test_a_rate_that_the_table_of_throughput_has_is_the_same_here() -> None:
    assert rows("The input alone")["current"] == ["1,100/s", "1,130/s", "-2.4 %"]


def test_the_plan_stands_with_its_confirmed_rate() -> None:
    plan = samples.photos().datasets[0].plan
    assert plan is not None
    chosen = PredictedRate(plan.key, "both", 1.0, 1.0)
    found = rows("The input alone", plan=plan, predictions=(*PREDICTIONS, chosen))
    assert found["tuned"][:2] == ["2,270/s", "2,290/s"] and "both" not in found


def test_what_limits_is_named_with_its_place() -> None:
    found = rows("If there were")
    assert found["as it is"] == ["1,280/s", "25.0 ms", "every core is busy, most of all with map (photo_input.py:24)"]
    assert found["2 times the cores"][1:] == ["20.0 ms", "the model"]
    assert found["8 replicas on this host"][2] == "taking elements one by one"
    assert rows("If there were ..., by") == found
    assert rows("If there were ..., with the plan, by", plan=samples.photos().datasets[0].plan).keys() == found.keys()


def test_conditions_that_change_nothing_are_left_out() -> None:
    same = replace(WHAT_IF[0], name="twice the memory")
    assert set(rows("If there were", what_if=(*WHAT_IF[:2], same))) == {"as it is", "2 times the cores"}
    assert not rows("If there were", what_if=(WHAT_IF[0], same))


def test_a_buffer_holds_no_more_than_it_may() -> None:
    seen = tuple(replace(one, buffered_bytes=1e9) for one in samples.photo_profile().operators if one.node == "n4")
    row = table(with_main(samples.photos(), "profile", operators=seen), "memory").rows[0]
    assert texts(row)[3:] == ["954 MiB", "954 MiB"]


def test_nothing_is_shown_where_nothing_was_predicted() -> None:
    assert "predictions" not in ids(session(predictions=(), what_if=()))
    assert "predictions" not in ids(session(predictions=(), what_if=(Scenario("as it is", why="Python code"),)))
