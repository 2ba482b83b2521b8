"""Rows of numbers as text, like those of the HIGGS collection: a label and 28 columns with 18 decimals each.

python examples/csv/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line

FEATURES = 28
FILES = 4
SEED = 20


def make(folder: Path, small: bool) -> None:
    rows = 2_400 if small else 60_000
    draw = np.random.default_rng(SEED)
    features = draw.normal(size=(rows, FEATURES))
    label = features[:, 0] * features[:, 1] + features[:, 2] > draw.normal(scale=0.5, size=rows)
    table = np.column_stack([label, features])
    for file in range(FILES):
        np.savetxt(folder / f"train-{file}.csv", table[file::FILES], fmt="%.18e", delimiter=",")


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
