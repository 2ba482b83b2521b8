"""60,000 images of 28 x 28 pixels in one file, of the form of MNIST: the digits of `digits`, enlarged and moved about.

python examples/images/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line, digits

SEED = 20


def make(folder: Path, small: bool) -> None:
    drawn, labels = digits()
    draw = np.random.default_rng(SEED)
    chosen = draw.integers(len(drawn), size=1_000 if small else 60_000)
    large = np.kron((drawn * 255 / 16).astype(np.uint8), np.ones((3, 3), np.uint8))[chosen]
    images = np.zeros((len(chosen), 28, 28), np.uint8)
    down, right = draw.integers(5, size=(2, len(chosen)))
    for top in range(5):
        for left in range(5):
            here = (down == top) & (right == left)
            images[here, top : top + 24, left : left + 24] = large[here]
    np.savez(folder / "images.npz", images=images, labels=labels[chosen].astype(np.uint8))


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
