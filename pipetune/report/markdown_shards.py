"""Who reads what, in Markdown: the numbers without the picture."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.report.markdown_text import escape, table
from pipetune.report.shards import Division, Shards, ShardTable


def division_lines(found: Division, title: str = "") -> Iterator[str]:
    """What the workers of a job get of the script as it is."""
    sentence = f"{title}{escape(found.sentence)}"
    if found.shards is None:
        yield from ("", sentence, "")
    else:
        yield from shard_lines(found.shards, sentence)
        if found.table is not None and not title:
            yield from table_lines(found.table)
        yield ""


def shard_lines(found: Shards, sentence: str) -> Iterator[str]:
    """One number of workers, each with what it gets."""
    yield from ("", sentence, "")
    yield from table(("", "gets"), ((escape(row.label), escape(row.sentence)) for row in found.rows))


def table_lines(found: ShardTable) -> Iterator[str]:
    """The numbers of all of them."""
    yield ""
    yield from table(
        ("", *map(escape, found.columns)), ((escape(title), *map(escape, cells)) for title, cells in found.rows)
    )
