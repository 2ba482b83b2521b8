"""A dataset class of a library that pipetune does not know."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class _Unknown(tf.data.Dataset):  # type: ignore[misc,name-defined]
    """Passes its input on."""

    def __init__(self, above: Any) -> None:
        self._above = above
        super().__init__(above._variant_tensor)

    def _inputs(self) -> list[Any]:
        return [self._above]

    @property
    def element_spec(self) -> Any:
        return self._above.element_spec
