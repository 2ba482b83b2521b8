"""`--one-core`: every process of tests runs on one processor of its own."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-core", action="store_true", help="one processor for each process of tests (with -n)")


def pytest_configure(config: pytest.Config) -> None:
    """Before anything imports TensorFlow, which counts its processors then."""
    worker = getattr(config, "workerinput", {}).get("workerid")
    starts_workers = worker is None and config.getoption("numprocesses", None)  # these inherit what it may use
    if config.getoption("--one-core") and not starts_workers:
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[int((worker or "gw0").removeprefix("gw")) % len(processors)]})
