"""What can be reached in a graph of any kind of nodes: ops, datasets, terms of functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

Node = TypeVar("Node")


def reachable(
    start: Iterable[Node], following: Callable[[Node], Iterable[Node]], *, key: Callable[[Node], Hashable] = id
) -> Iterator[Node]:
    """Yields nodes and all that follow from them, directly or through others, each once; the last found comes first.

    Args:
        start: the first nodes.
        following: returns the nodes that follow directly from one.
        key: returns what is equal for the same node.
    """
    seen: dict[Hashable, Node] = {}  # holds the nodes, so that no other one gets the id of one of them
    waiting = list(start)
    while waiting:
        node = waiting.pop()
        identity = key(node)
        if identity not in seen:
            seen[identity] = node
            waiting += following(node)
            yield node
