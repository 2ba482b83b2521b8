"""Numbers, edits and foreign text as a reader sees them: three significant digits, units, nothing that can harm.

A number that was not measured is a `Figure` without a value, which says why.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pipetune.core import edits, measurement
from pipetune.core.measurement import Interval
from pipetune.core.measurement import joined as joined
from pipetune.core.pipeline import AUTOTUNE, INFINITE, Pipeline, Value

# Characters that reorder the text around them: a name could pretend to be another one.
_DIRECTION_CONTROLS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: object, *, lines: bool = False) -> str:
    """`text` with control and direction characters spelled out, so that no terminal or page obeys them.

    Args:
        text: anything; names, messages and sources of the user among them.
        lines: keep line feeds and tabs (diffs, tracebacks), and end lines with line feeds alone; otherwise they become
            spaces.
    """
    shown = []
    for character in str(text).replace("\r\n", "\n") if lines else str(text):
        if character in "\n\t":
            shown.append(character if lines else " ")
        elif unicodedata.category(character) in {"Cc", "Cs"} or character in _DIRECTION_CONTROLS:
            shown.append(f"\\u{ord(character):04x}")
        elif unicodedata.category(character) in {"Zl", "Zp"}:
            shown.append(" ")
        else:
            shown.append(character)
    return "".join(shown)


def significant(number: float) -> str:
    """Three significant digits, thousands set apart, no exponent: 0.0123, 1.23, 12.3, 1,230."""
    if not math.isfinite(number):
        return "unbounded" if number > 0 else "not a number"
    if number == 0:
        return "0"
    rounded = round(number, 2 - math.floor(math.log10(abs(number))))
    # Counted after rounding: 9.999 becomes 10.0 and not 10.00.
    digits = 2 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, min(9, digits))}f}"


def plain(number: float) -> str:
    """At most two decimals, none where they say nothing: 2, 1.5, 0.42."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def ratio(number: float) -> str:
    """A speedup: two decimals below ten, "1.24x"."""
    return f"{number:.2f}x" if 0 <= number < 9.995 else f"{significant(number)}x"


def percent(share: float) -> str:
    """A share of one: "37 %", with a decimal below ten."""
    if 0 < share < 0.0005:
        return "<0.1 %"
    return measurement.percent(share, digits=1 if abs(share) < 0.0995 else 0)


def seconds(value: float) -> str:
    """A duration in the unit that keeps it readable."""
    if abs(value) >= 120:
        return f"{int(value // 60)} min {int(value % 60):02d} s"
    if abs(value) >= 1:
        return f"{significant(value)} s"
    if abs(value) >= 1e-3:
        return f"{significant(value * 1e3)} ms"
    return f"{significant(value * 1e6)} us"


def byte_size(value: float) -> str:
    """Bytes in binary units."""
    size = float(value)
    if abs(size) < 1024:
        return f"{size:.0f} B" if size == int(size) or size >= 10 else f"{significant(size)} B"
    size /= 1024
    for unit in ("KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{significant(size)} {unit}"
        size /= 1024
    return f"{significant(size)} TiB"


def mebibytes(value: float) -> str:
    return byte_size(value * 1024**2)


def rate(value: float) -> str:
    """Examples per second."""
    return f"{significant(value)}/s"


def count(number: int, noun: str) -> str:
    """ "1 pair", "16 pairs", "2 batches", "3 retries"."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("tch", "sh", "s", "x")):
        return f"{number:,} {noun}es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}s"


def cores(number: float) -> str:
    """ "1 core", "2.5 cores"."""
    text = plain(number)
    return f"{text} core{'' if text == '1' else 's'}"


def sentence(text: str) -> str:
    """Capital first letter, full stop last; a first word that is code ("map(decode)", "map (a.py:3)") stays.

    What ends with a full stop is a sentence already: if it begins with a small letter, that is a name in the script.
    """
    text = text.strip()
    if not text or text[-1] in ".!?":
        return text
    first, _, rest = text.partition(" ")
    if first.rstrip(",").isalpha() and not rest.startswith("("):
        text = text[0].upper() + text[1:]
    return f"{text}."


VARIANTS = {"off": "optimizations off", "defaults": "current", "autotune": "AUTOTUNE everywhere", "tuned": "tuned"}
"""What a report calls the variants of a pipeline that a session names so."""

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Figure:
    """One number as shown. `value` is None where it was not measured, and `why` says the reason."""

    short: str = NOT_MEASURED  # the number without its interval
    span: str = ""  # the interval alone: "1.34 to 1.38"
    value: float | None = None
    low: float | None = None
    high: float | None = None
    basis: str = ""  # what an interval rests on: "16 pairs, t on log ratios, 95 %"
    why: str = ""

    @property
    def known(self) -> bool:
        return self.value is not None

    @property
    def text(self) -> str:
        return f"{self.short} ({self.span})" if self.span else self.short


@dataclass(frozen=True)
class Fact:
    label: str
    text: str
    note: str = ""


def interval(value: Interval | None, form: Callable[[float], str], *, why: str = "") -> Figure:
    """A median with its interval in words, or its absence with the reason."""
    if value is None:
        return Figure(why=why)
    low, high = form(value.low), form(value.high)
    unit = low[-1] if low.endswith(("x", "%")) and high.endswith(low[-1]) else ""
    low = low.removesuffix(unit).rstrip() if unit else low
    if unit == "x":
        high = high.removesuffix(unit)
    return Figure(
        form(value.median),
        f"{low} to {high}",
        value=value.median,
        low=value.low,
        high=value.high,
        basis=f"{count(value.pairs, 'pair')}, {clean(value.method)}",
    )


# Backslash escapes work before any ASCII punctuation (CommonMark 0.31, section 2.4).
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~!&@$])")


def escape(text: str) -> str:
    """`text` as Markdown that shows it literally, on one line."""
    return _SPECIAL.sub(r"\\\1", re.sub(r"\s+", " ", text)).replace("://", ":\\//")


def code(text: str, *, cell: bool = False) -> str:
    """An inline code span, its fence longer than any run of backticks inside; `cell`: inside a table."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence, room = "`" * (longest + 1), " " if "`" in text else ""
    inner = re.sub(r"\s+", " ", text)
    if cell:  # a bar ends the cell even in a code span (GitHub Flavored Markdown, 4.10)
        inner = inner.replace("|", "\\|")
    return f"{fence}{room}{inner}{room}{fence}" if text.strip() else ""


def block(text: str, language: str = "") -> list[str]:
    """The lines of a fenced block, its fence longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *text.rstrip("\n").split("\n"), fence]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    names = list(head)
    lines = [f"| {' | '.join(names)} |", f"|{'|'.join(' --- ' for _ in names)}|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


_TUNABLE = frozenset({"num_parallel_calls", "buffer_size", "cycle_length", "num_parallel_reads"})
_SHOWN_ARGUMENTS = ("num_parallel_calls", "num_parallel_reads", "cycle_length", "block_length", "buffer_size",
                    "batch_size", "count", "drop_remainder", "deterministic", "reshuffle_each_iteration", "shuffle",
                    "size", "shift")  # fmt: skip
# Left out where they say nothing; `shuffle=True` of list_files is a default few know of and is shown.
_DEFAULTS: Mapping[str, bool] = {"drop_remainder": False, "reshuffle_each_iteration": True}


def argument_words(name: str, value: Value) -> str:
    """`num_parallel_calls=AUTOTUNE`, `batch_size=32`."""
    if value == AUTOTUNE and not isinstance(value, bool) and name in _TUNABLE:
        return f"{name}=AUTOTUNE"
    if value == INFINITE and not isinstance(value, bool) and name == "count":
        return "count=infinite"
    return clean(f"{name}={value}")


def argument_list(arguments: Mapping[str, Value]) -> str:
    return ", ".join(
        argument_words(name, arguments[name])
        for name in _SHOWN_ARGUMENTS
        if arguments.get(name) is not None and arguments[name] is not _DEFAULTS.get(name)
    )


def operator_name(node_id: str, *pipelines: Pipeline | None) -> str:
    """The operator's title; for one that an edit inserts, the name in its id."""
    kind, _, of = node_id.partition("@")
    if kind == edits.HEAD_PREFIX:
        return f"the first part of {operator_name(of, *pipelines)}"
    for pipeline in pipelines:
        if pipeline is not None and node_id in pipeline:
            return clean(pipeline[node_id].title)
    return clean(kind)


def edit_words(edit: edits.Edit, *pipelines: Pipeline | None) -> str:
    """One edit as a colleague would say it."""
    match edit:
        case edits.SetArgument(node=node, name=name, value=value):
            return f"{operator_name(node, *pipelines)}: {argument_words(name, value)}"
        case edits.Insert(after=after, op=op, arguments=arguments):
            call = f"{clean(op)}({argument_list(arguments)})"
            return f"insert {call} after {operator_name(after, *pipelines)}"
        case edits.Remove(node=node):
            return f"remove {operator_name(node, *pipelines)}"
        case edits.Move(node=node, after=after):
            return f"move {operator_name(node, *pipelines)} behind {operator_name(after, *pipelines)}"
        case edits.ReplaceFunction(node=node, form=form):
            return f"{operator_name(node, *pipelines)}: call its function {clean(form)}"
        case edits.ReplaceSource(node=node, after=after):
            source, place = operator_name(node, *pipelines), operator_name(after, *pipelines)
            return f"{source}: put out row numbers, and gather the rows behind {place}"
        case edits.SplitFunction(node=node, cut=cut):
            return f"{operator_name(node, *pipelines)}: cut its function in two {clean(cut.kind)}"
        case edits.ReplaceOperator(node=node, op=op, arguments=arguments):
            call = f"{clean(op)}({argument_list(arguments)})"
            return f"{operator_name(node, *pipelines)}: call {call} in its place"
        case edits.SetOption(name=name, value=value):
            return f"options: {argument_words(name, value)}"


def plan_text(plan: edits.Plan, *pipelines: Pipeline | None) -> tuple[str, str]:
    """The rules of a plan, and the first edits of a single one."""
    rewrites = plan.rewrites
    if not rewrites:
        return clean(plan.name) or "nothing changed", ""
    if len(rewrites) > 1:
        return clean(" + ".join(rewrite.rule for rewrite in rewrites)), ""
    texts = [edit_words(edit, *pipelines) for edit in rewrites[0].edits]
    more = f" and {count(len(texts) - 2, 'edit')} more" if len(texts) > 2 else ""
    return clean(rewrites[0].rule), "; ".join(texts[:2]) + more
