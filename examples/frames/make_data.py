"""Clips as folders of frames, the form in which videos are kept once their frames were taken out: 320 x 240 JPEG files.

A clip pans over one of the two photographs of `photos`. Its label, the folder above, says in which of four directions.

    python examples/frames/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line, jpeg, photographs

WIDTH, HEIGHT = 320, 240
FRAMES = 30
DIRECTIONS = {"down": (0, 1), "left": (-1, 0), "right": (1, 0), "up": (0, -1)}
STEP_PIXELS = 4
QUALITY = 75
SEED = 20


def make(folder: Path, small: bool) -> None:
    draw = random.Random(SEED)
    sources = photographs()
    for clip in range(12 if small else 60):
        name = draw.choice(sorted(DIRECTIONS))
        across, down = (STEP_PIXELS * part for part in DIRECTIONS[name])
        photograph = draw.choice(sources)
        left = draw.randint(max(0, -across * FRAMES), photograph.width - WIDTH - max(0, across * FRAMES))
        top = draw.randint(max(0, -down * FRAMES), photograph.height - HEIGHT - max(0, down * FRAMES))
        frames = folder / name / f"clip-{clip:03d}"
        frames.mkdir(parents=True)
        for frame in range(FRAMES):
            x, y = left + across * frame, top + down * frame
            window = photograph.crop((x, y, x + WIDTH, y + HEIGHT))
            (frames / f"{frame:04d}.jpg").write_bytes(jpeg(window, QUALITY))


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
