"""Writes argv[1] in a loop of argv[2] elements, and ends: nothing trains, and what it did is its own."""

import sys
from pathlib import Path

import tensorflow as tf

numbers = tf.data.Dataset.range(int(sys.argv[2])).map(lambda x: x + 1)
for number in numbers:
    Path(sys.argv[1]).write_text(f"prepared {number}")
print("prepared")
