"""Lines of invented text, some 300 bytes each, with a label in front, and a vocabulary of word pieces.

The words are made of syllables and as unevenly used as those of a language; three authors, the labels, use them
differently often.

    python examples/tokens/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line

SYLLABLES = ["".join(parts) for parts in itertools.product("bcdfghklmnprstvw", "aeiou", ["", "n", "r", "s"])]
WORDS = 20_000
WHOLE_WORDS = 4_000
AUTHORS = 3
FILES = 4
SEED = 20


def make(folder: Path, small: bool) -> None:
    draw = np.random.default_rng(SEED)
    syllables = np.array(SYLLABLES)[draw.integers(len(SYLLABLES), size=(WORDS, 4))]
    counts = draw.integers(1, 5, size=WORDS)
    words = np.array(["".join(parts[:count]) for parts, count in zip(syllables, counts, strict=True)])
    frequencies = 1 / (np.arange(WORDS) + 2.7)
    pieces = {*"abcdefghijklmnopqrstuvwxyz,.", *SYLLABLES, *words[:WHOLE_WORDS]}
    (folder / "vocabulary.txt").write_text("\n".join(["[unknown]", *sorted(pieces)]) + "\n")
    habits = [np.cumsum(frequencies * draw.uniform(0.2, 1.8, size=WORDS)) for _ in range(AUTHORS)]
    lines = []
    for _ in range(600 if small else 16_000):
        author = int(draw.integers(AUTHORS))
        length = int(np.clip(draw.lognormal(3.7, 0.6), 4, 300))
        text = words[np.searchsorted(habits[author], draw.uniform(0, habits[author][-1], size=length))]
        ends = np.array(["", ",", "."])[np.searchsorted([0.85, 0.93], draw.random(length))]
        lines.append(f"{author}\t" + " ".join(f"{word}{end}" for word, end in zip(text, ends, strict=True)))
    for file in range(FILES):
        (folder / f"train-{file}.txt").write_text("\n".join(lines[file::FILES]) + "\n")


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
