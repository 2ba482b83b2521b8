"""Workloads: found and described by their workload.toml, listed in errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.core import benchmarks
from pipetune.core.benchmarks import choose_workloads, find_workloads
from pipetune.core.errors import PipetuneError

ABOUT = """
title = "Images"
source = "Plumber, section 5"
published_bytes = 148_000_000_000
published_examples = 1_281_167
note = "small"
arguments = ["--steps", "20"]
"""


def folder(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text("")
        (tmp_path / name / "workload.toml").write_text("")
    for other in ("data", "jax"):  # no workloads: a folder of files, and an example that no rival is measured on
        (tmp_path / other).mkdir()
    (tmp_path / "jax" / "train.py").write_text("")
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


def test_chosen_workloads(tmp_path: Path) -> None:
    place = folder(tmp_path, "table", "digits", "series")
    assert list(choose_workloads((), folder=place)) == ["digits", "series", "table"]
    assert list(choose_workloads((), quick=True, folder=place)) == ["table", "series"]
    assert list(choose_workloads(("series", "digits", "series"), quick=True, folder=place)) == ["series", "digits"]


def test_unknown_workload_and_missing_clone_are_usage_errors(tmp_path: Path) -> None:
    place = folder(tmp_path, "digits", "table")
    with pytest.raises(PipetuneError, match="no workload called 'speed'") as unknown:
        choose_workloads(("digits", "speed"), folder=place)
    assert unknown.value.hint == "Workloads: digits, table" and unknown.value.exit_code == 2
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
    assert set(benchmarks.QUICK) <= set(find_workloads())
