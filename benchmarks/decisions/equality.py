"""Whether an expert's script trains on the same data, by pipetune's own comparison under its default consent:
`python -m benchmarks.decisions.equality CASE...`.

Both scripts are run until they train, and the two datasets are compared. They share no operator, so that files are read
in place of a recording, and the comparison may end before three whole epochs; it says how far it got.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from benchmarks.decisions.cases import Case, choose_cases
from pipetune.core.edits import Safety
from pipetune.equality.compare import compare_datasets

_BESIDE = ("train", "pipeline")  # modules in the folder of a script, of the same name in each


class _Trains(Exception):
    """Ends a script where it begins to train."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", metavar="CASE", nargs="*", help="of examples/decisions/cases.toml (default: all)")
    parser.add_argument("--time-limit", type=float, default=20.0, metavar="SECONDS", help="for each pass over the data")
    arguments = parser.parse_args()
    for name, case in choose_cases(arguments.names).items():
        if case.expert is not None:
            original, expert = (training_dataset(path, case) for path in (case.path, case.expert))
            found = compare_datasets(original, expert, Safety.STATISTICAL, time_limit_seconds=arguments.time_limit)
            print(f"{name}: {found.elements} source elements, {found.epochs} epochs")
            for check in found.checks:
                state = {True: "equal", False: "DIFFERENT", None: "not compared"}[check.equal]
                print(f"    {check.name}: {state} {check.detail}")
    return 0


def training_dataset(path: Path, case: Case) -> Any:
    """Returns the dataset that a script gives to `fit`, or loops over where it trains in a loop of its own."""
    found: list[Any] = []

    def train(dataset: Any) -> None:
        found.append(dataset)
        raise _Trains

    with _replaced(case, train), _run_from(path.parent):
        sys.argv = [str(path), *case.arguments]
        try:
            runpy.run_path(str(path), run_name="__main__")
        except _Trains:
            return found[0]
    raise SystemExit(f"{path} did not train")


@contextmanager
def _replaced(case: Case, train: Any) -> Iterator[None]:
    fit, iterate = keras.Model.fit, tf.data.Dataset.__iter__
    if case.loop:
        tf.data.Dataset.__iter__ = lambda dataset: train(dataset)
    else:
        keras.Model.fit = lambda model, dataset, *args, **kwargs: train(dataset)
    try:
        yield
    finally:
        keras.Model.fit, tf.data.Dataset.__iter__ = fit, iterate


@contextmanager
def _run_from(folder: Path) -> Iterator[None]:
    arguments = sys.argv
    sys.path.insert(0, str(folder))
    for module in _BESIDE:
        sys.modules.pop(module, None)
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.argv = arguments


if __name__ == "__main__":
    sys.exit(main())
