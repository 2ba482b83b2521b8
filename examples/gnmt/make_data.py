"""Pairs of sentences as GNMT reads them: records of 153 whole numbers, 612 bytes each, in 4 files.

A record is the source, the target as the decoder gets it, the target as it has to be (50 numbers each, zeros behind the
last word), the lengths of source and target, and the number of the pair.

    python examples/gnmt/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line

VOCABULARY = 36_548
MAX_LENGTH = 50
START, END = 1, 2
FILES = 4
SEED = 20


def sentences(lengths: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Random words and zeros behind them, a row for each length."""
    words = draw.integers(3, VOCABULARY, size=(len(lengths), MAX_LENGTH), dtype=np.int32)
    return np.where(np.arange(MAX_LENGTH) < lengths[:, None], words, 0).astype(np.int32)


def make(folder: Path, small: bool) -> None:
    count = 2_000 if small else 80_000
    draw = np.random.default_rng(SEED)
    source_lengths = draw.integers(4, MAX_LENGTH, size=count)
    target_lengths = np.clip(source_lengths + draw.integers(-3, 4, size=count), 3, MAX_LENGTH - 1)
    source, target = sentences(source_lengths, draw), sentences(target_lengths, draw)
    fed = np.concatenate([np.full((count, 1), START, np.int32), target[:, :-1]], axis=1)
    target[np.arange(count), target_lengths] = END
    numbers = np.stack([source_lengths, target_lengths + 1, np.arange(count)], axis=1).astype(np.int32)
    records = np.concatenate([source, fed, target, numbers], axis=1)
    for file in range(FILES):
        (folder / f"train-{file}.bin").write_bytes(records[file::FILES].tobytes())


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
