"""Who reads what, in Markdown: the numbers without the picture."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.report.markdown_text import escape, table
from pipetune.report.shards import Division, Shards


def division_lines(found: Division, title: str = "") -> Iterator[str]:
    """What the workers of a job get of the script as it is."""
    sentence = f"{title}{escape(found.sentence)}"
    if found.shards is None:
        yield from ("", sentence, "")
    else:
        yield from shard_lines(found.shards, sentence)
        yield ""


def shard_lines(found: Shards, sentence: str) -> Iterator[str]:
    """One number of workers, each with what it gets."""
    yield from ("", sentence, "")
    yield from table(("", "gets"), ((escape(row.label), escape(row.sentence)) for row in found.rows))
    yield from ("", escape("; ".join(f"{fact.label.lower()}: {fact.text}" for fact in found.facts)))
