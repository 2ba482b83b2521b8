"""Invented speech: WAV files of one to ten seconds and what is said in them, laid out as LJSpeech is.

Every letter is 70 ms of a tone with overtones of its own and a little noise. `metadata.csv` holds a line a file:
its name, a bar, the text.

    python examples/speech/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import sys
import wave
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line

RATE = 22_050
LETTERS = " abcdefghijklmnopqrstuvwxyz"
LETTER_SAMPLES = RATE * 7 // 100
SEED = 20


def sounds(draw: np.random.Generator) -> np.ndarray:
    """A sound for each letter, shape [letters, samples]; silence for the blank."""
    time = np.arange(LETTER_SAMPLES) / RATE
    pitches = 110 * 2 ** (np.arange(len(LETTERS)) / 12)
    overtones = draw.uniform(0, 1, size=(len(LETTERS), 8)) / np.arange(1, 9)
    waves = np.sin(2 * np.pi * pitches[:, None, None] * np.arange(1, 9)[:, None] * time)
    spoken = np.einsum("lo,lot->lt", overtones, waves) * np.sin(np.pi * time / time[-1])
    return np.where(np.array(list(LETTERS))[:, None] == " ", 0, spoken)


def make(folder: Path, small: bool) -> None:
    draw = np.random.default_rng(SEED)
    alphabet = sounds(draw)
    lines = []
    for number in range(36 if small else 200):
        length = int(draw.integers(14, 30 if small else 140))
        letters = draw.choice(len(LETTERS), size=length, p=[0.18, *[0.82 / 26] * 26])
        signal = alphabet[letters].ravel() * 0.2
        signal += draw.normal(scale=0.01, size=len(signal))
        with wave.open(str(folder / f"clip-{number:04d}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes((np.clip(signal, -1, 1) * 32767).astype("<i2").tobytes())
        lines.append(f"clip-{number:04d}|" + "".join(LETTERS[letter] for letter in letters))
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
