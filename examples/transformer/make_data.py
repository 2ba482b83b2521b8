"""Packed pairs of sentences as the Transformer of MLPerf reads them: six lists of numbers a record, 8 TFRecord files.

A record holds as many pairs as fit into 256 tokens on either side; positions and segments say which is which. One in a
hundred is a single sentence that is too long.

    python examples/transformer/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line, serialised, write_shards

VOCABULARY = 33_708
MAX_LENGTH = 256
MEAN_SENTENCE = 24
FILES = 8
SEED = 20


def pairs(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The lengths of the source and target sentences of a record."""
    if draw.random() < 0.01:
        return draw.integers(MAX_LENGTH + 1, MAX_LENGTH + 40, size=(2, 1))
    source = np.minimum(3 + draw.geometric(1 / MEAN_SENTENCE, size=MAX_LENGTH // 4), MAX_LENGTH)
    target = np.clip(np.rint(source * draw.uniform(0.8, 1.25, size=len(source))), 3, MAX_LENGTH).astype(int)
    fitting = int(np.sum(np.maximum(np.cumsum(source), np.cumsum(target)) <= MAX_LENGTH))
    return source[: max(1, fitting)], target[: max(1, fitting)]


def side(name: str, lengths: np.ndarray, draw: np.random.Generator) -> dict[str, list[int]]:
    """The three lists of one side: token, position in its sentence, number of the sentence."""
    starts = np.cumsum(lengths) - lengths
    return {
        name: draw.integers(2, VOCABULARY, size=lengths.sum()).tolist(),
        f"{name}_position": (np.arange(lengths.sum()) - np.repeat(starts, lengths)).tolist(),
        f"{name}_segmentation": np.repeat(np.arange(1, len(lengths) + 1), lengths).tolist(),
    }


def make(folder: Path, small: bool) -> None:
    draw = np.random.default_rng(SEED)
    records = []
    for _ in range(400 if small else 16_000):
        source, target = pairs(draw)
        records.append(serialised({**side("inputs", source, draw), **side("targets", target, draw)}))
    write_shards(folder, records, FILES)


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
