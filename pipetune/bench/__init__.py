"""How right pipetune is, measured: the figures of `pipetune bench --accuracy`, one file a figure.

A figure is a module of this folder called as in accuracy.json (`core.accuracy.FIGURES`). It holds

    def measure(*, quick: bool, seed: int, say: Say) -> <a frozen dataclass>

`quick` asks for the short form (fewer cases, about half a minute) that CI can run; `seed` is the only source of
chance; `say("a few words")` tells what is being done now and is a sign of life (at least every ten minutes). The
dataclass has the keys of accuracy.json as its fields (fractions, `Interval`, further dataclasses), and more
where that is useful.

    def claims(found: <that dataclass>, *, quick: bool) -> Sequence[Claim]

puts its numbers in words, each beside what is wanted of it: `Claim("mean error", "4.1 %", "at most 10 %",
met=True)`. It is what the terminal and accuracy.md show, a table row each. A field `notes: tuple[str, ...]` of the
dataclass, where there is one, goes below.

A figure that takes long and can go on where it was interrupted says `RESUMES = True`; `measure` then also takes
`kept: Kept` (`bench.keeping`).

Each runs in a process of its own that has imported TensorFlow and nothing of the user's. Files without
`measure` hold what figures share. How fast its plans are beside those of others is in `rivals/`.
"""

from __future__ import annotations

from typing import Protocol


class Say(Protocol):
    """Tells whoever watches what is being done now."""

    def __call__(self, doing: str, /) -> None: ...
