"""The share of padding in padded batches, in the order of the data and with elements bucketed by length."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence

Shapes = Sequence[tuple[int, ...]]
"""The shapes of those components of one element whose size varies."""

MOST_BUCKETS = 8
BATCHES_EACH = 10
"""Fewest batches of a bucket in an epoch: its last batch is not full, and few batches vary little in their order."""

_WORTH_MORE = 0.02  # share of padding; below this difference, fewer buckets are as good


def padded_share(elements: Sequence[Shapes], item_bytes: Sequence[int], batches: Iterable[Sequence[int]]) -> float:
    """The share of padding in the bytes of these batches; each element of a batch is padded to the largest.

    Args:
        elements: the shapes of each element.
        item_bytes: bytes of one value of each component.
        batches: the positions of the elements of each batch.
    """
    filled = padded = 0
    for batch in batches:
        for component, size in enumerate(item_bytes):
            shapes = [elements[position][component] for position in batch]
            widest = [max(dimension) for dimension in zip(*shapes, strict=True)]
            filled += size * sum(math.prod(shape) for shape in shapes)
            padded += size * len(batch) * math.prod(widest)
    return 1 - filled / padded if padded else 0.0


def in_order(count: int, batch_size: int) -> list[range]:
    """The full batches of `count` elements in their order."""
    return [range(start, start + batch_size) for start in range(0, count - batch_size + 1, batch_size)]


def in_buckets(lengths: Sequence[int], boundaries: Sequence[int], batch_size: int) -> list[list[int]]:
    """The full batches that `bucket_by_sequence_length` makes of elements with these lengths.

    Bucket 0 is below the first boundary; an element as long as a boundary is in the bucket that begins there.
    """
    waiting: list[list[int]] = [[] for _ in range(len(boundaries) + 1)]
    batches = []
    for position, length in enumerate(lengths):
        bucket = bisect.bisect_right(boundaries, length)
        waiting[bucket].append(position)
        if len(waiting[bucket]) == batch_size:
            batches.append(waiting[bucket])
            waiting[bucket] = []
    return batches


def quantiles(lengths: Sequence[int], buckets: int) -> tuple[int, ...]:
    """Boundaries of `buckets` buckets of about equally many elements; fewer if many have the same length."""
    ordered = sorted(lengths)
    cuts = {ordered[len(ordered) * number // buckets] for number in range(1, buckets)}
    return tuple(sorted(cut for cut in cuts if cut > ordered[0]))


def best_buckets(
    elements: Sequence[Shapes], lengths: Sequence[int], item_bytes: Sequence[int], *, batch_size: int, most: int
) -> tuple[tuple[int, ...], float]:
    """The boundaries of the fewest buckets that are about as good as any up to `most`, and their share of padding.

    There are no boundaries if no bucket of the sample fills a batch, or all lengths are equal.

    Args:
        elements: the shapes of each element of the sample.
        lengths: the length of each element.
        item_bytes: bytes of one value of each component.
        batch_size: elements in a batch.
        most: highest number of buckets.
    """
    found: list[tuple[tuple[int, ...], float]] = []
    for buckets in range(2, most + 1):
        boundaries = quantiles(lengths, buckets)
        batches = in_buckets(lengths, boundaries, batch_size)
        if boundaries and batches:
            found.append((boundaries, padded_share(elements, item_bytes, batches)))
    if not found:
        return (), 0.0
    least = min(share for _, share in found)
    return next(one for one in found if one[1] <= least + _WORTH_MORE)


def most_buckets(elements_per_epoch: int, batch_size: int) -> int:
    """The most buckets that get enough batches in an epoch; a negative epoch size means infinite or unknown."""
    if elements_per_epoch < 0:
        return MOST_BUCKETS
    return min(MOST_BUCKETS, elements_per_epoch // (batch_size * BATCHES_EACH))
