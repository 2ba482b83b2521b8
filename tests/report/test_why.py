"""The chain of operators: what each takes of a step, and what is known of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.profile import Diagnosis, Verdict
from pipetune.core.session import DatasetResult, Session
from pipetune.core.session_file import redact
from pipetune.core.settings import Command
from pipetune.report.blocks import Facts, Listing
from pipetune.report.words import argument_list
from tests.report import sessions as samples
from tests.report.reading import sentences, table, texts, with_main


def test_times_per_step_add_up_to_the_input():
    rows = table(samples.photos(), "why").rows
    times = [row.cells[3].sort for row in rows]
    cpu = 32 * (31 + 22 + 731 + 1.6) * 1e-3 + 0.26 * 4e-3 + 2.9 + 0.9e-3
    waiting = 32 * (17 + 29) * 1e-3
    assert sum(times) == pytest.approx(cpu + waiting)
    assert max(times) == times[3], "the bottleneck has the longest bar"
    longest = rows[3].cells[2].bar
    assert [part.kind for part in longest] == ["cpu", "waiting"]
    assert sum(part.share for part in longest) == pytest.approx(1.0)


def test_details_have_intervals_arguments_and_remarks():
    _, interleave, parse, decode, shuffle, *_ = table(samples.photos(), "why").rows
    facts = {fact.label: f"{fact.text}|{fact.note}" for block in decode.details if isinstance(block, Facts)
             for fact in block.facts}  # fmt: skip
    assert facts["CPU time per element"] == "731 us|722 us to 741 us, 8 rounds"
    assert facts["this call created"] == "2 datasets|"
    inside = {fact.label: fact.text for fact in interleave.details[0].facts}
    assert inside["inside"] == "TFRecordDataset" and inside["of its time"] == "TFRecord 86 %, itself 14 %"
    assert inside["Arguments"] == "cycle_length=2, block_length=1"
    modelled = {fact.label: fact.note for fact in parse.details[0].facts}
    assert modelled["CPU time per element"] == "from the runtime model"
    assert {fact.label: fact.text for fact in shuffle.details[0].facts}["buffered"] == "147 MiB"


def listings(session):
    rows = enumerate(table(session, "why").rows)
    return {number: block.text for number, row in rows for block in row.details if isinstance(block, Listing)}


def test_the_source_lines_are_shown_where_the_session_has_them():
    session = samples.photos()
    known = with_main(replace(session, patch=None), calls={"n3": "ds = ds.map(decode_and_augment)"})
    assert listings(known) == {3: "ds = ds.map(decode_and_augment)"}
    assert not listings(redact(known))


def test_an_operator_the_runtime_does_not_show_has_no_invented_cost():
    rows = table(with_main(samples.photos(), "profile", operators=samples.photo_profile().operators[:2]), "why").rows
    assert len(rows) == 7
    assert rows[3].cells[3].text == "" and rows[3].cells[3].why == "the runtime shows no such operator"
    assert "random" in rows[3].cells[0].note  # known from the function itself


def test_a_dataset_without_a_profile_lists_its_operators():
    result = DatasetResult(samples.photo_pipeline(), "training", diagnosis=Diagnosis(Verdict.UNDETERMINED, "x"))
    session = Session("0", Command(), datasets=(result,))
    assert texts(table(session, "why").rows[0])[0] == "list_files"
    assert "This dataset was not profiled." in sentences(session, "why")


def test_arguments_that_say_something_are_shown():
    said = {"buffer_size": 8, "reshuffle_each_iteration": False, "deterministic": False, "drop_remainder": True}
    shown = "buffer_size=8, drop_remainder=True, deterministic=False, reshuffle_each_iteration=False"
    assert argument_list(said) == shown
    assert argument_list({"reshuffle_each_iteration": True, "drop_remainder": False, "seed": 3}) == ""
