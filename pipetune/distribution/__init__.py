"""The distributed module of a tuned pipeline: generated, checked, and only then saved.

`writing` is the entry point, `proving` runs the generated module, `saying` describes the results in sentences.
"""

from pipetune.distribution.writing import distribute

__all__ = ["distribute"]
