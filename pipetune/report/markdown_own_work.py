"""TensorFlow's own work as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.report.markdown_text import code, escape, table
from pipetune.report.own_work import OwnWork


def own_work_lines(own: OwnWork) -> Iterator[str]:
    """The passes and AUTOTUNE's numbers of one dataset; nothing where neither was looked at."""
    if not own.shown:
        return
    yield from ("", "### What TensorFlow did by itself", "")
    for sentence in (own.sentence, own.note):
        if sentence:
            yield from (escape(sentence), "")
    if own.passes:
        yield from table(
            ("pass", "state", "what it changed, and what it left"),
            (
                (
                    code(row.name, cell=True) + (" (default)" if row.by_default else ""),
                    row.state,
                    escape("; ".join([*filter(None, [row.changes]), *(_reason(*reason) for reason in row.reasons)])),
                )
                for row in own.passes
            ),
        )
    if own.settled:
        yield from ("", "#### What AUTOTUNE chose", "")
        yield from (f"- {escape(sentence)}" for sentence in own.settled)
    if own.chosen:
        yield ""
        yield from table(
            ("operator", "source", "variant", "runs as", "number", "in force", "least to most", "last moved"),
            (
                (
                    escape(row.operator),
                    code(row.where, cell=True),
                    row.variant,
                    escape(row.kernel),
                    row.parameter,
                    row.value,
                    row.span,
                    row.moved or "-",
                )
                for row in own.chosen
            ),
        )


def _reason(operator: str, why: str) -> str:
    return f"{operator}: {why}" if operator else why
