"""The source files while a plan is written into them, and where the call of every operator ends in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.core.location import SourceLocation
from pipetune.core.pipeline import Pipeline, Value
from pipetune.source.locate import locate
from pipetune.source.text import BYTE_ORDER_MARK, read_source
from pipetune.source.tree import SyntaxTree, parse


@dataclass(frozen=True)
class Splice:
    """A change of one file: the bytes from `start` to `end` are replaced by `new`."""

    start: int
    end: int
    new: bytes


@dataclass(frozen=True)
class Site:
    """The call of an operator: the file, and the byte offset at which the call ends."""

    file: str
    end: int


Function = tuple[str, tuple[str, ...]]
"""A function: its file, and the names of the functions and classes around it, followed by its own."""


@dataclass(frozen=True)
class OptionsBlock:
    """The statements that set `tf.data.Options`, as far as edits have written them."""

    variable: str
    last: str  # name of the site at which the last assignment ends


@dataclass(frozen=True)
class Draft:
    """Texts (UTF-8, no byte order mark) and sites after some edits; every edit returns a new draft.

    Every edit reads the text that the previous edit produced, so edits compose without knowing each other.
    """

    codes: Mapping[str, bytes]
    sites: Mapping[str, Site]
    captured: Mapping[str, tuple[SyntaxTree, cst.Call]] = field(default_factory=dict)  # before any edit
    ways: Mapping[str, tuple[Site, ...]] = field(default_factory=dict)  # as captured: calls around it, inner first
    problems: Mapping[str, str] = field(default_factory=dict)  # why an operator has no site
    values: Mapping[tuple[str, str], tuple[str, Value]] = field(default_factory=dict)  # set so far, by call and name
    inserted: Mapping[str, str] = field(default_factory=dict)  # node id -> text of the inserted call
    options: OptionsBlock | None = None
    under: tuple[tuple[Function, str], ...] = ()  # functions to be changed only if a condition is met
    own: frozenset[str] = frozenset()  # operators whose calls edits put where they affect this dataset only
    beside: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # where edits wrote a call: beside that of a
    # captured operator, or beside the first, second, ... call around it
    notes: tuple[str, ...] = ()
    read: Callable[[str], str] = field(default=read_source, compare=False)  # the text of a file by its path

    def tree(self, file: str) -> SyntaxTree:
        return parse(self.codes[file])

    def opened(self, file: str) -> Draft:
        """Returns the draft with one more file.

        Raises:
            CannotExpress: the file cannot be read.
        """
        if file in self.codes:
            return self
        try:
            code = self.read(file).removeprefix(BYTE_ORDER_MARK).encode()
        except (OSError, SyntaxError, UnicodeError) as error:
            raise CannotExpress(f"{file} cannot be read: {error}") from error
        return replace(self, codes={**self.codes, file: code})

    def find(self, node: str) -> tuple[SyntaxTree, cst.Call]:
        """Returns the tree of the file that builds operator `node`, and the call that does.

        Raises:
            CannotExpress: the operator has no call in the source.
        """
        site = self.sites.get(node)
        if site is None:
            raise CannotExpress(self.problems.get(node, f"Operator {node} has no call in the source."))
        tree = self.tree(site.file)
        return tree, tree.calls[site.end]

    def place_of_names(self, node: str) -> tuple[SyntaxTree, cst.Call]:
        """Returns where to look up names for `node`: in the original text, so that its scopes are computed only once.

        This is valid because edits do not rebind the names that are looked up. If an edit writes a call elsewhere,
        names are looked up at its new place (`at_place_of`).
        """
        return self.captured[node]

    def together(self, node: str) -> tuple[str, ...]:
        """Returns the operators built by the same call as `node`, including itself."""
        site = self.sites.get(node)
        return tuple(other for other, its in self.sites.items() if its == site) if site else (node,)

    def splice(self, file: str, splices: Iterable[Splice]) -> Draft:
        """Returns the draft after replacing parts of one file; sites inside a replaced part are dropped."""
        ordered = sorted(splices, key=lambda splice: splice.start)
        code = self.codes[file]
        pieces, at = [], 0
        for splice in ordered:
            pieces += [code[at : splice.start], splice.new]
            at = splice.end
        new_code = b"".join((*pieces, code[at:]))
        sites = {}
        for name, site in self.sites.items():
            end = _shift(site.end, ordered) if site.file == file else site.end
            if end is not None:
                sites[name] = replace(site, end=end)
        ways = {name: tuple(_moved(one, file, ordered) for one in way) for name, way in self.ways.items()}
        return replace(self, codes={**self.codes, file: new_code}, sites=sites, ways=ways)

    def place(self, node: str, site: Site) -> Draft:
        return replace(self, sites={**self.sites, node: site})

    def at_place_of(self, anchor: str, node: str, *, level: int = 0) -> Draft:
        """Returns the draft in which `node` is written beside `anchor`, or beside a call around it.

        Names for it are looked up at `anchor`.

        Args:
            level: 0 for the call of `anchor`, 1 for the innermost call around it.
        """
        captured, above = self.beside.get(anchor, (anchor, 0))
        return replace(
            self,
            captured={**self.captured, node: self.captured[anchor]},
            beside={**self.beside, node: (captured, above + level)},
        )

    def around(self, node: str) -> tuple[Site, ...]:
        """Returns the calls around that of `node`, inner first, where it is now."""
        captured, level = self.beside.get(node, (node, 0))
        return self.ways.get(captured, ())[level:]

    def note(self, text: str) -> Draft:
        return self if text in self.notes else replace(self, notes=(*self.notes, text))


def _moved(site: Site, file: str, splices: Iterable[Splice]) -> Site:
    """Returns where a call around an operator ends after a change; -1 if the change removed it."""
    if site.file != file or site.end < 0:
        return site
    end = _shift(site.end, splices)
    return replace(site, end=-1 if end is None else end)


def _shift(end: int, splices: Iterable[Splice]) -> int | None:
    moved = end
    for splice in splices:
        if splice.start < end <= splice.end:
            return None
        if end > splice.start:
            moved += len(splice.new) - (splice.end - splice.start)
    return moved


def open_draft(pipeline: Pipeline, read: Callable[[str], str]) -> Draft:
    """Returns the draft, before any edit, of the files that build a pipeline; `read` returns a file by its path."""
    codes: dict[str, bytes] = {}
    sites: dict[str, Site] = {}
    captured: dict[str, tuple[SyntaxTree, cst.Call]] = {}
    problems: dict[str, str] = {}
    ways: dict[str, tuple[Site, ...]] = {}
    for node in pipeline:
        ways[node.id] = tuple(_site(codes, read, one) for one in node.calls)
        location = node.location
        if location is None:
            problems[node.id] = f"pipetune has no source line for {node.title} ({node.id})."
            continue
        try:
            tree = _tree(codes, read, location.file)
            call = locate(tree, location)
            sites[node.id], captured[node.id] = Site(location.file, tree.end(call)), (tree, call)
        except CannotExpress as error:
            problems[node.id] = error.message
        except (OSError, SyntaxError, UnicodeError) as error:
            problems[node.id] = f"{location.file} cannot be read: {error}"
    return Draft(codes, sites, captured, ways, problems, read=read)


def _tree(codes: dict[str, bytes], read: Callable[[str], str], file: str) -> SyntaxTree:
    if file not in codes:
        codes[file] = read(file).removeprefix(BYTE_ORDER_MARK).encode()
    return parse(codes[file])


def _site(codes: dict[str, bytes], read: Callable[[str], str], call: SourceLocation) -> Site:
    """Returns where a call on the stack of an operator ends; -1 if its file cannot be read or parsed."""
    try:
        tree = _tree(codes, read, call.file)
    except (CannotExpress, OSError, SyntaxError, UnicodeError):
        return Site(call.file, -1)
    return Site(call.file, tree.offset(call.end_line, call.end_column))
