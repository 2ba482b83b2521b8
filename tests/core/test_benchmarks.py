"""benchmarks.json: the documented keys, geometric means, targets; what is written is read again and validates."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from pipetune.core import benchmarks
from pipetune.core.accuracy import Claim
from pipetune.core.benchmark_targets import claims, reasons
from pipetune.core.errors import PipetuneError
from tests.core import invented_benchmarks as invented
from tests.core.sessions import MACHINE


def schema() -> dict[str, object]:
    text = resources.files("pipetune.schemas").joinpath("benchmarks.schema.json").read_text()
    found: dict[str, object] = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.mark.parametrize(
    "workloads", [(), (invented.result("digits", 4.0), invented.result("busy", 1.0, end_to_end=None, why="no plan"))]
)
def test_what_is_written_is_read_again_and_validates(
    workloads: tuple[benchmarks.WorkloadResult, ...], tmp_path: Path
) -> None:
    known = invented.benchmarks(*workloads)
    benchmarks.save(known, tmp_path / "benchmarks.json")
    data = json.loads((tmp_path / "benchmarks.json").read_text())
    jsonschema.validate(data, schema())
    assert list(data)[2:7] == ["machine", "date", "seconds", "workloads", "geometric_mean_over"]
    assert benchmarks.load(tmp_path / "benchmarks.json") == known
    assert data["seconds"] == 120.0 * len(workloads)


def test_the_schema_misses_a_key_that_is_not_there() -> None:
    data = benchmarks.benchmarks_data(invented.benchmarks(invented.result("digits", 4.0)))
    assert isinstance(data["workloads"], list)
    del data["workloads"][0]["plan_seconds"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema())


def test_geometric_means() -> None:
    found = benchmarks.geometric_mean_over((invented.result("a", 8.0, bare=2.0), invented.result("b", 2.0)))
    assert found["all"]["defaults"] == pytest.approx(4.0)
    assert found["all"]["autotune"] == pytest.approx(2.0)
    assert found["without_cache"]["defaults"] == pytest.approx(2.0)
    assert found["end_to_end"] == {"defaults": pytest.approx(1.5), "autotune": pytest.approx(1.2)}
    assert benchmarks.geometric_mean_over(())["all"] == {"defaults": None, "autotune": None}
    alone = benchmarks.geometric_mean_over((invented.result("a", 8.0, end_to_end=None),))
    assert alone["end_to_end"]["defaults"] is None
    busy = invented.result("busy", 1.0, end_to_end=None, why="no plan")
    both = benchmarks.geometric_mean_over((invented.result("a", 8.0, end_to_end=4.0), busy))
    assert both["end_to_end"]["defaults"] == pytest.approx(2.0)  # what stays as it is is as fast as it was


def test_a_workload_takes_the_place_of_an_earlier_one() -> None:
    known = invented.benchmarks(invented.result("b", 2.0), invented.result("a", 3.0))
    later = known.with_workload(replace(invented.result("b", 9.0), date="2026-01-02 00:00"))
    assert later.names == ("a", "b") and later.date == "2026-01-02 00:00"
    assert later.workloads[1].ratio_over["defaults"].median == 9.0
    assert later.workloads[0].best_rival == "plumber"


def told(*workloads: benchmarks.WorkloadResult, **changes: object) -> dict[str, Claim]:
    known = replace(invented.benchmarks(*workloads), **changes)  # type: ignore[arg-type]
    return {claim.what: claim for claim in claims(known)}


def test_targets_are_met_or_missed() -> None:
    good, bad = invented.result("good", 16.0, bare=4.0), invented.result("bad", 1.1, best=0.8)
    met = told(good)
    assert met["geometric mean over defaults, no caches"].met is True
    assert met["geometric mean over autotune, with caches"].met is True
    assert met["workloads where a rival is surely ahead (below 0.97)"].measured == "0 of 1"
    assert met["seconds to the plan, on average"].met is True
    both = told(good, bad)
    assert both["geometric mean over defaults, no caches"].met is True  # the root of 4 and 1.1 is 2.1
    assert both["geometric mean over autotune, no caches"].met is False
    behind = both["workloads where a rival is surely ahead (below 0.97)"]
    assert behind.met is False and behind.measured == "1 of 2 (bad)"
    assert not any(claim.met is False and "training" in claim.what for claim in both.values())
    assert told(replace(good, plan_seconds=61.0))["seconds to the plan, on average"].met is False


def test_an_interval_that_reaches_the_line_is_not_behind() -> None:
    assert told(invented.result("close", 2.0, best=0.95))[
        "workloads where a rival is surely ahead (below 0.97)"
    ].measured == "0 of 1"


@pytest.mark.parametrize(
    "changes", [{"quick": True}, {"machine": replace(MACHINE, cores_granted=8.0)}, {"machine": None}]
)
def test_elsewhere_nothing_is_promised(changes: dict[str, object]) -> None:
    assert all(claim.met is None for claim in told(invented.result("bad", 1.1, best=0.5), **changes).values())


def test_part_of_the_suite_is_held_against_no_target() -> None:
    part = told(invented.result("good", 16.0, bare=4.0), suite=("good", "other"))
    assert part["workloads measured"].measured == "1 of 2 (not yet other)"
    assert all(claim.met is None for claim in part.values())
    assert "workloads measured" not in told(invented.result("good", 16.0), suite=("good",))


def test_a_miss_has_its_reason() -> None:
    known = invented.benchmarks(
        invented.result("bad", 1.1, best=0.8), invented.result("busy", 1.0, why="no plan: the model takes the time")
    )
    assert reasons(known) == (
        "bad: plumber is ahead, 0.80x (0.76x to 0.84x); it sets map num_parallel_calls=2",
        "busy: no plan: the model takes the time",
    )


def test_no_file_is_nothing_measured_and_a_damaged_one_is_said(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    assert benchmarks.load(path) is None
    path.write_text('{"schema": 1, "pipetune": "0.1.0", "workloads": 3}')
    with pytest.raises(PipetuneError, match="is damaged"):
        benchmarks.load(path)


def test_the_rival_that_is_named_is_one_that_is_surely_ahead() -> None:
    noisy = replace(
        invented.result("noisy", 2.0, best=0.8),
        ratio_over={"cores": invented.interval(0.5, 1.0), "plumber": invented.interval(0.8)},
    )
    assert reasons(invented.benchmarks(noisy))[0].startswith("noisy: plumber is ahead, 0.80x")
