"""The wheel has every file of the package, and works where there is neither a checkout nor another package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipetune.core.version import VERSION

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "pipetune")
OUTSIDE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # which may name a checkout
pytestmark = [pytest.mark.slow, pytest.mark.registry]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves a folder in the sources, from which later wheels would get removed files."""
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        tree = (ROOT / name).is_dir()
        (shutil.copytree if tree else shutil.copy)(ROOT / name, copy / name)
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(copy / "dist"), str(copy))
    (built,) = (copy / "dist").glob("*.whl")
    return built


def pip(python: str | Path, *words: str) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words], check=True, env=OUTSIDE)


def test_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    files = {path for path in (ROOT / "pipetune").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == {str(path.relative_to(ROOT)) for path in files}


def test_installed_wheel_works_alone(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "fresh"], check=True)
    pip(tmp_path / "fresh" / "bin" / "python", "install", "--no-deps", str(wheel))

    def pipetune(*words: str) -> subprocess.CompletedProcess[str]:
        installed = tmp_path / "fresh" / "bin" / "pipetune"
        return subprocess.run(
            [installed, *words], capture_output=True, text=True, cwd=tmp_path, env=OUTSIDE, check=False
        )

    for words, says in (["--version"], f"pipetune {VERSION}"), (["rules"], "parallel-map"), (["--help"], "first steps"):
        done = pipetune(*words)
        assert (done.returncode, done.stderr) == (0, "") and says in done.stdout
    done = pipetune("analyze", "train.py")
    assert done.returncode == 2 and done.stderr.startswith("pipetune: There is no TensorFlow in the environment")
