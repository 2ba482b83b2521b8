"""Answers questions about an `element_spec` from its text, because sessions and plans contain only the text.

The text is that of `repr(dataset.element_spec)`: `TensorSpec(shape=(None, 8), dtype=tf.float32, name=None)`, tuples
and dictionaries of that, `RaggedTensorSpec(...)`. No other module looks into it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SPEC = re.compile(r"(\w*Spec)\(")
_TENSOR = re.compile(r"shape=(?:\(.*?\)|<unknown>), dtype=[\w.]+")
_SIZES = re.compile(r"(?:shape=\(|TensorShape\(\[?)([^)\]]*)")
_FIRST_SIZE = re.compile(r"TensorSpec\(shape=\((\d+)[,)]")
_FIRST_TENSOR = re.compile(r"(?P<single>TensorSpec)|(?P<tuple>\(TensorSpec)|\{(?P<key>'[^'\\]*'): TensorSpec")
_COMPOSITE = frozenset({"RaggedTensorSpec", "SparseTensorSpec", "DatasetSpec", "OptionalSpec"})


@dataclass(frozen=True)
class ElementSpec:
    """The `element_spec` of a dataset, as text; "" if it is not known."""

    text: str

    @property
    def is_tuple(self) -> bool:
        """Whether elements are tuples, whose components a function gets as separate arguments."""
        return self.text.startswith("(")

    @property
    def is_dense(self) -> bool:
        """Whether all components are plain tensors: not ragged, sparse, optional, or datasets."""
        return not _COMPOSITE & set(_SPEC.findall(self.text))

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether every size of every component is known."""
        return bool(self.text) and not self.has_unknown_sizes and "unknown" not in self.text

    @property
    def has_unknown_sizes(self) -> bool:
        """Whether some size of a component is None."""
        return any("None" in sizes for sizes in _SIZES.findall(self.text))

    @property
    def has_unknown_batch_size(self) -> bool:
        """Whether the first size of a component is None, or nothing is known."""
        return not self.text or "shape=(None" in self.text

    @property
    def first_sizes(self) -> tuple[int, ...] | None:
        """The first size of each component; None unless all components are tensors with a known first size."""
        sizes = tuple(map(int, _FIRST_SIZE.findall(self.text)))
        return sizes if sizes and len(sizes) == len(_SPEC.findall(self.text)) else None

    @property
    def tensors(self) -> tuple[str, ...]:
        """Shapes and dtypes of the components as text, sorted: regardless of names and structure."""
        return tuple(sorted(_TENSOR.findall(self.text)))

    @property
    def first_tensor(self) -> str | None:
        """How code gets the first tensor of an element: "", "[0]", "['image']"; None if it is nested deeper."""
        found = _FIRST_TENSOR.match(self.text)
        if found is None:
            return None
        return "" if found["single"] else "[0]" if found["tuple"] else f"[{found['key']}]"

    def has_dtype(self, name: str) -> bool:
        """Whether a component has this dtype: "tf.string"."""
        return re.search(rf"\b{re.escape(name)}\b", self.text) is not None

    def has_component(self, name: str) -> bool:
        """Whether a dictionary of the elements has this key."""
        return f"'{name}'" in self.text
