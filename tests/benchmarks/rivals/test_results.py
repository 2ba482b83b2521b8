"""benchmarks.json and its workloads: keys, geometric means, targets, the round trip, the schema; how it is printed."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from benchmarks.claims import Claim
from benchmarks.figures import load, save
from benchmarks.rivals import workloads as workloads_module
from benchmarks.rivals.plot import write_figure
from benchmarks.rivals.report import markdown_text, print_benchmarks, print_workload
from benchmarks.rivals.results import Benchmarks, WorkloadResult, claims, geometric_mean_over, shortfall_reasons
from benchmarks.rivals.workloads import choose_workloads, find_workloads
from pipetune.core.errors import PipetuneError
from tests.benchmarks.rivals import invented
from tests.benchmarks.rivals.invented import benchmarks, interval, result
from tests.core.schemas import schema
from tests.core.sessions import MACHINE


@pytest.mark.parametrize(
    "workloads", [(), (invented.result("digits", 4.0), invented.result("busy", 1.0, end_to_end=None, why="no plan"))]
)
def test_saved_benchmarks_validate_and_round_trip(workloads: tuple[WorkloadResult, ...], tmp_path: Path) -> None:
    known = invented.benchmarks(*workloads)
    save(known, tmp_path / "benchmarks.json")
    data = json.loads((tmp_path / "benchmarks.json").read_text())
    jsonschema.validate(data, schema("benchmarks"))
    assert list(data)[2:7] == ["machine", "date", "seconds", "workloads", "geometric_mean_over"]
    assert load(Benchmarks, tmp_path / "benchmarks.json") == known
    assert data["seconds"] == 120.0 * len(workloads)


def test_schema_rejects_missing_key() -> None:
    data: Any = invented.benchmarks(invented.result("digits", 4.0)).data()
    del data["workloads"][0]["plan_seconds"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema("benchmarks"))


def test_geometric_means() -> None:
    found = geometric_mean_over((invented.result("a", 8.0, bare=2.0), invented.result("b", 2.0)))
    assert found["all"]["defaults"] == pytest.approx(4.0)
    assert found["all"]["autotune"] == pytest.approx(2.0)
    assert found["without_cache"]["defaults"] == pytest.approx(2.0)
    assert found["end_to_end"] == {"defaults": pytest.approx(1.5), "autotune": pytest.approx(1.2)}
    assert geometric_mean_over(())["all"] == {"defaults": None, "autotune": None, "expert": None}
    alone = geometric_mean_over((invented.result("a", 8.0, end_to_end=None),))
    assert alone["end_to_end"]["defaults"] is None
    busy = invented.result("busy", 1.0, end_to_end=None, why="no plan")
    both = geometric_mean_over((invented.result("a", 8.0, end_to_end=4.0), busy))
    assert both["end_to_end"]["defaults"] == pytest.approx(2.0)  # an unchanged script counts as 1.0


def test_new_workload_result_replaces_earlier_one() -> None:
    known = invented.benchmarks(invented.result("b", 2.0), invented.result("a", 3.0))
    later = known.with_figure("b", replace(invented.result("b", 9.0), date="2026-01-02 00:00"), MACHINE)
    assert list(later.measured) == ["a", "b"] and later.date == "2026-01-02 00:00"
    assert later.workloads[1].ratio_over["defaults"].median == 9.0
    assert later.workloads[0].best_rival == "plumber"


def told(*workloads: WorkloadResult, **changes: object) -> dict[str, Claim]:
    known = replace(invented.benchmarks(*workloads), **changes)  # type: ignore[arg-type]
    return {claim.what: claim for claim in claims(known)}


def test_targets_are_met_or_missed() -> None:
    good, bad = invented.result("good", 16.0, bare=4.0), invented.result("bad", 1.1, best=0.8)
    defaults, time = "geometric mean over defaults, no caches", "mean time to a plan"
    faster = "workloads with a certainly faster rival (ratio below 0.97)"
    met, both = told(good), told(good, bad)
    assert met[defaults].met is met["geometric mean over autotune, with caches"].met is met[time].met is True
    assert met[faster].measured == "0 of 1"
    assert both[defaults].met is True  # the root of 4 and 1.1 is 2.1
    assert both["geometric mean over autotune, no caches"].met is False
    behind = both[faster]
    assert behind.met is False and behind.measured == "1 of 2 (bad)"
    assert not any(claim.met is False and "training" in claim.what for claim in both.values())
    assert told(replace(good, plan_seconds=61.0))[time].met is False


def test_expert_must_be_nearly_reached_on_every_workload() -> None:
    what = "workloads at 0.95 of the expert's script or better"
    close, behind, alone = (invented.result(name, 2.0) for name in ("close", "behind", "alone"))
    close = replace(close, ratio_over={**close.ratio_over, "expert": invented.interval(0.95)})
    behind = replace(behind, ratio_over={**behind.ratio_over, "expert": invented.interval(0.94)})
    alone = replace(alone, ratio_over={name: one for name, one in alone.ratio_over.items() if name != "expert"})
    assert told(close, alone)[what].met is True and told(close, alone)[what].measured == "1 of 1"
    assert told(close, behind)[what].met is False and told(close, behind)[what].measured == "1 of 2 (not: behind)"
    assert told(alone)[what].met is None


@pytest.mark.parametrize(
    "changes", [{"quick": True}, {"machine": replace(MACHINE, cores_granted=8.0)}, {"machine": None}]
)
def test_no_targets_for_quick_runs_and_other_machines(changes: dict[str, object]) -> None:
    assert all(claim.met is None for claim in told(invented.result("bad", 1.1, best=0.5), **changes).values())


def test_no_targets_for_incomplete_suite() -> None:
    part = told(invented.result("good", 16.0, bare=4.0), suite=("good", "other"))
    assert part["workloads measured"].measured == "1 of 2 (missing: other)"
    assert all(claim.met is None for claim in part.values())
    assert "workloads measured" not in told(invented.result("good", 16.0), suite=("good",))


def test_shortfall_reason_for_each_missed_target() -> None:
    ratios = {"cores": invented.interval(0.5, 1.0), "plumber": invented.interval(0.8)}
    bad = replace(invented.result("bad", 2.0), ratio_over=ratios)
    busy = invented.result("busy", 1.0, why="no plan: the model takes the time")
    assert shortfall_reasons(invented.benchmarks(bad, busy)) == (
        "bad: plumber is faster, pipetune's ratio over it is 0.80x (0.76x to 0.84x); it sets map num_parallel_calls=2",
        "busy: no plan: the model takes the time",
    )


ABOUT = """
title = "Images"
source = "Plumber, section 5"
published_bytes = 148_000_000_000
published_examples = 1_281_167
note = "small"
arguments = ["--steps", "20"]
"""


def folder(tmp_path: Path, *names: str) -> Path:
    for name in (*names, "data", "jax"):  # besides, a folder of files, and an example that no rival is measured on
        (tmp_path / name).mkdir()
        for file in ("train.py", "workload.toml")[: 0 if name == "data" else 1 if name == "jax" else 2]:
            (tmp_path / name / file).write_text("")
    return tmp_path


def test_example_with_a_description_is_a_workload(tmp_path: Path) -> None:
    place = folder(tmp_path, "images", "digits")
    (place / "images" / "workload.toml").write_text(ABOUT)
    (place / "images" / "make_data.py").write_text("")
    found = find_workloads(place)
    assert list(found) == ["digits", "images"]
    images = found["images"]
    assert (images.title, images.published_bytes, images.arguments) == ("Images", 148_000_000_000, ("--steps", "20"))
    assert images.data_script == place / "images" / "make_data.py" and found["digits"].data_script is None
    assert (found["digits"].title, found["digits"].published_bytes) == ("digits", None)


def test_named_workloads_are_chosen_and_a_missing_clone_is_a_usage_error(tmp_path: Path) -> None:
    place = folder(tmp_path, "table", "digits", "series")
    assert list(choose_workloads(("series", "digits", "series"), quick=True, folder=place)) == ["series", "digits"]
    with pytest.raises(PipetuneError, match="There are no workloads") as nowhere:
        choose_workloads((), folder=tmp_path / "nowhere")
    assert "clone" in nowhere.value.hint and nowhere.value.exit_code == 2


@pytest.mark.parametrize(
    "about", ["title = ", 'published_bytes = "many"', "published_bytes = 0", "published_bytes = true"]
)
def test_invalid_description_is_rejected(about: str, tmp_path: Path) -> None:
    place = folder(tmp_path, "digits")
    (place / "digits" / "workload.toml").write_text(about)
    with pytest.raises(PipetuneError, match=r"workload\.toml cannot be read"):
        find_workloads(place)


def test_quick_workloads_are_among_examples() -> None:
    assert set(workloads_module.QUICK) <= set(find_workloads())


CACHED = result("digits", 12.0, bare=3.0)
BEHIND = replace(result("mask_rcnn", 1234.5, best=0.8), failed={"cores": "no such \x1b[31m op"})
BUSY = replace(
    result("busy", 1.0, end_to_end=None, why="no plan: the model takes all of the time of a step, and so on"),
    ratio_over={"defaults": interval(1.0)},
)
ALL = benchmarks(CACHED, BEHIND, BUSY)


def printed(quick: bool = False) -> str:
    stream = io.StringIO()
    for one in ALL.workloads:
        print_workload(one, stream=stream)
    print_benchmarks(replace(ALL, quick=quick), stream=stream)
    return stream.getvalue()


def test_table_fits_80_columns_without_control_characters() -> None:
    text = printed()
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_all_numbers_are_printed() -> None:
    text = " ".join(printed().split())
    for wanted in ("1,000", "12.5 us", "250 ms", "100 MiB", "12.0x (11.4x to 12.6x)", "plumber", "cache, prefetch",
                   "data equal", "50 s", "0.80x (0.76x to 0.84x)", "the model takes all", "could not be run",
                   "geometric mean over defaults", "missed"):  # fmt: skip
        assert wanted in text, wanted
    assert "Without it 3.00x" in text
    assert "quick run" not in text and "quick run" in printed(quick=True)


def test_markdown_has_the_same_contents() -> None:
    text = markdown_text(ALL)
    for wanted in ("| digits |", "12.0x", "## digits", "An Invented Processor", "0.80x (0.76x to 0.84x)", "6 min 00 s"):
        assert wanted in text, wanted
    assert "\x1b" not in text
    assert "quick run" in markdown_text(replace(ALL, quick=True))


def test_plot_is_reproducible(tmp_path: Path) -> None:
    write_figure(ALL, tmp_path / "one.svg")
    write_figure(ALL, tmp_path / "two.svg")
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()
    for wanted in ("digits", "mask_rcnn", "busy", "pipetune with a cache", "stage_based"):
        assert wanted in text, wanted
