"""The distributed form of a tuned pipeline: written, proved, and only then saved.

`writing` is the way, `proving` runs what is written, `saying` puts what was found into sentences.
"""

from pipetune.distribution.writing import distribute

__all__ = ["distribute"]
