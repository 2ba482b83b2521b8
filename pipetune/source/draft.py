"""The source files while a plan is written into them: locating calls, splicing text, following calls that move."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline, SourceLocation, Value
from pipetune.source.source_files import BYTE_ORDER_MARK, line_starts, neighboring_files, read_source
from pipetune.source.syntax_tree import SyntaxTree, parse

_STATEMENTS: tuple[type[cst.CSTNode], ...] = (cst.BaseSmallStatement, cst.BaseCompoundStatement)


def locate(tree: SyntaxTree, location: SourceLocation) -> cst.Call:
    """Returns the call in `tree` that `location` refers to, found by its end and its method name.

    The end is used because in a multi-line chain CPython's span starts at the method name, while the end is always the
    call's closing parenthesis. If only the statement is known, the method name must occur there once.

    Raises:
        CannotExpress: no call, or more than one, matches the location.
    """
    if not location.exact:
        return _only_call_in_statement(tree, location)
    call = tree.calls.get(tree.offset(location.end_line, location.end_column))
    if call is None:
        raise CannotExpress(f"There is no call at the recorded position of {location.method} ({location}).")
    if called_name(call) != location.method:
        imported = tree.imported_names(call.func) if isinstance(call.func, cst.Name) else ()
        if all(name.rpartition(".")[2] != location.method for name in imported):
            raise CannotExpress(f"The call at {location} is not a call of {location.method}.")
    return call


def called_name(call: cst.Call) -> str | None:
    """Returns the last name of the called expression: `map` in `ds.map(f)`, None in `table["map"](f)`."""
    match call.func:
        case cst.Attribute(attr=cst.Name(value=name)) | cst.Name(value=name):
            return name
    return None


def _only_call_in_statement(tree: SyntaxTree, location: SourceLocation) -> cst.Call:
    """Returns the only call of that name in the innermost statements on the line; semicolons may separate several."""
    on_line = {
        statement
        for statement in tree.nodes(*_STATEMENTS)
        if tree.line(tree.start(statement)) <= location.line <= tree.line(tree.end(statement))
    }
    innermost = on_line.difference(*map(tree.ancestors, on_line))
    found = [
        call
        for call in tree.calls.values()
        if called_name(call) == location.method and tree.around(call, *_STATEMENTS) in innermost
    ]
    if len(found) != 1:
        raise CannotExpress(f"{location.method} occurs {len(found)} times in the statement at {location}.")
    return found[0]


@dataclass(frozen=True)
class Splice:
    """A change of one file: the bytes from `start` to `end` are replaced by `new`."""

    start: int
    end: int
    new: bytes


def replacing(tree: SyntaxTree, node: cst.CSTNode, text: str) -> Splice:
    """Returns the change that writes `text` in place of a node; parentheses around it stay."""
    return Splice(tree.start(node), tree.end(node), text.encode())


def spliced(code: bytes, splices: Iterable[Splice], *, start: int = 0, end: int | None = None) -> bytes:
    """Returns the text from `start` to `end` with the changes in it; those at one place stay in their order."""
    pieces, at = [], start
    for splice in sorted(splices, key=lambda splice: splice.start):
        pieces += [code[at : splice.start], splice.new]
        at = splice.end
    return b"".join((*pieces, code[at:end]))


@dataclass(frozen=True)
class CallSite:
    """The call of an operator: the file, and the byte offset at which the call ends."""

    file: str
    end: int


FunctionKey = tuple[str, tuple[str, ...]]
"""A function: its file, and the names of the functions and classes around it, followed by its own."""


@dataclass(frozen=True)
class Draft:
    """Texts (UTF-8, no byte order mark) and sites after some edits; every edit returns a new draft.

    Every edit reads the text that the previous edit produced, so edits compose without knowing each other.
    """

    codes: Mapping[str, bytes]  # of the files that build the pipeline, and of those that edits have changed
    sites: Mapping[str, CallSite]
    original_calls: Mapping[str, tuple[SyntaxTree, cst.Call]] = field(default_factory=dict)
    """Per operator where to look up names for its call: in the text before any edit, so that its scopes are computed
    only once. Edits do not rebind these names; for a call that an edit writes elsewhere, see `with_position_of`."""
    call_stacks: Mapping[str, tuple[CallSite, ...]] = field(default_factory=dict)
    """Per captured operator: the calls around its call as captured, innermost first."""
    problems: Mapping[str, str] = field(default_factory=dict)  # why an operator has no site
    set_arguments: Mapping[tuple[str, str], tuple[str, Value]] = field(default_factory=dict)  # by call and name
    inserted: Mapping[str, str] = field(default_factory=dict)  # node id -> text of the inserted call
    options: str = ""  # the variable with the `tf.data.Options` that edits have written
    conditional_functions: tuple[tuple[FunctionKey, str], ...] = ()  # to be changed only if a condition is met
    exclusive: frozenset[str] = frozenset()  # operators whose calls edits put where they affect this dataset only
    moved_beside: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Per call that edits wrote: the captured operator next to which it was written, and the level in that operator's
    call stack: 0 for its own call, 1 for the innermost call around it."""
    tracked: Mapping[CallSite, CallSite] = field(default_factory=dict)
    """Calls that built other pipelines, as captured, and where they are now: -1 if a change removed them."""
    notes: tuple[str, ...] = ()
    read: Callable[[str], str] = field(default=read_source, compare=False)  # the text of a file by its path
    near: Callable[[str], Iterable[str]] = field(default=neighboring_files, compare=False)
    """The other files that may use what a file defines, apart from those that import its module from elsewhere."""

    def code(self, file: str) -> bytes:
        """Returns the current text of a file, whether or not it builds the pipeline.

        Raises:
            CannotExpress: the file cannot be read.
        """
        if file in self.codes:
            return self.codes[file]
        try:
            return _bytes(self.read(file))
        except (OSError, SyntaxError, UnicodeError) as error:
            raise CannotExpress(f"{file} cannot be read: {error}") from error

    def tree(self, file: str) -> SyntaxTree:
        """Returns the syntax tree of the current text of a file.

        Raises:
            CannotExpress: the file cannot be read or parsed.
        """
        return parse(self.code(file))

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

    def built_by_same_call(self, node: str) -> tuple[str, ...]:
        """Returns the operators built by the same call as `node`, including itself."""
        site = self.sites.get(node)
        return tuple(other for other, place in self.sites.items() if place == site) if site else (node,)

    def splice(self, file: str, splices: Iterable[Splice]) -> Draft:
        """Returns the draft after replacing parts of one file; sites inside a replaced part are dropped."""
        changes = list(splices)
        return self.with_code(file, spliced(self.code(file), changes), lambda end: _shift(end, changes))

    def with_code(self, file: str, code: bytes, moved: Callable[[int], int | None]) -> Draft:
        """Returns the draft with another text of a file; the sites in it move.

        Args:
            moved: returns where a call ends that ended at an offset before. If it is None, the call of an operator has
                no site any more, and a call around one, or a tracked one, has the offset -1.
        """

        def site_now(site: CallSite) -> CallSite:
            if site.file != file or site.end < 0:
                return site
            end = moved(site.end)
            return replace(site, end=-1 if end is None else end)

        sites = {node: site_now(site) for node, site in self.sites.items()}
        return replace(
            self,
            codes={**self.codes, file: code},
            sites={node: site for node, site in sites.items() if site.end >= 0},
            call_stacks={node: tuple(map(site_now, stack)) for node, stack in self.call_stacks.items()},
            tracked={captured: site_now(now) for captured, now in self.tracked.items()},
        )

    def with_site(self, node: str, site: CallSite) -> Draft:
        """Returns the draft with `site` as the call of `node`."""
        return replace(self, sites={**self.sites, node: site})

    def without_site(self, node: str) -> Draft:
        """Returns the draft without a call of `node`."""
        return replace(self, sites={name: site for name, site in self.sites.items() if name != node})

    def written_apart(self, node: str, site: CallSite, place: tuple[SyntaxTree, cst.Call]) -> Draft:
        """Returns the draft in which the call of `node` was written at `site`, where it affects this dataset only.

        Args:
            place: where to look up names for it.
        """
        return replace(
            self.with_site(node, site),
            original_calls={**self.original_calls, node: place},
            exclusive=self.exclusive | {node},
        )

    def with_position_of(self, anchor: str, node: str, *, level: int = 0) -> Draft:
        """Returns the draft in which `node` is written next to `anchor`, or next to a call around it.

        Names for it are looked up at `anchor`.

        Args:
            level: 0 for the call of `anchor`, 1 for the innermost call around it.
        """
        captured, above = self.moved_beside.get(anchor, (anchor, 0))
        return replace(
            self,
            original_calls={**self.original_calls, node: self.original_calls[anchor]},
            moved_beside={**self.moved_beside, node: (captured, above + level)},
        )

    def calls_around(self, node: str) -> tuple[CallSite, ...]:
        """Returns the calls around that of `node`, innermost first, where it is now."""
        captured, level = self.moved_beside.get(node, (node, 0))
        return self.call_stacks.get(captured, ())[level:]

    def with_note(self, text: str) -> Draft:
        """Returns the draft with one more note for the reader of the patch, unless it has it already."""
        return self if text in self.notes else replace(self, notes=(*self.notes, text))


def _shift(end: int, splices: Iterable[Splice]) -> int | None:
    moved = end
    for splice in splices:
        if splice.start < end <= splice.end:
            return None
        if end > splice.start:
            moved += len(splice.new) - (splice.end - splice.start)
    return moved


def open_draft(
    pipeline: Pipeline, read: Callable[[str], str], near: Callable[[str], Iterable[str]] = neighboring_files
) -> Draft:
    """Returns the draft, before any edit, of the files that build a pipeline; `read` returns a file by its path."""
    codes: dict[str, bytes] = {}
    draft = Draft(codes, {}, read=read, near=near)
    sites: dict[str, CallSite] = {}
    captured: dict[str, tuple[SyntaxTree, cst.Call]] = {}
    problems: dict[str, str] = {}

    def opened(file: str) -> SyntaxTree:
        codes[file] = draft.code(file)
        return draft.tree(file)

    def site_of(call: SourceLocation) -> CallSite:
        """Returns where a call ends; -1 if the file cannot be read or parsed."""
        try:
            return CallSite(call.file, opened(call.file).offset(call.end_line, call.end_column))
        except CannotExpress:
            return CallSite(call.file, -1)

    stacks = {node.id: tuple(map(site_of, node.calls)) for node in pipeline}
    for node in pipeline:
        location = node.location
        if location is None:
            problems[node.id] = f"pipetune has no source line for {node.title} ({node.id})."
            continue
        try:
            tree = opened(location.file)
            call = locate(tree, location)
            sites[node.id], captured[node.id] = CallSite(location.file, tree.end(call)), (tree, call)
        except CannotExpress as error:
            problems[node.id] = error.message
    return replace(draft, sites=sites, original_calls=captured, call_stacks=stacks, problems=problems)


def tracking(draft: Draft, pipelines: Iterable[Pipeline]) -> Draft:
    """Returns the draft, before any edit, that keeps track of the calls of these pipelines in its files."""
    starts = {file: line_starts(code) for file, code in draft.codes.items()}
    sites = (
        CallSite(place.file, starts[place.file][place.end_line - 1] + place.end_column)
        for pipeline in pipelines
        for place in locations(pipeline)
        if place.file in starts and 0 < place.end_line <= len(starts[place.file])
    )
    return replace(draft, tracked={site: site for site in sites})


def relocated(pipeline: Pipeline, files: Mapping[str, tuple[str, str]], moved: Mapping[CallSite, CallSite]) -> Pipeline:
    """Returns a captured pipeline with the locations that its calls have after the files were changed.

    An operator whose call was removed, moved or written anew by the change has no location.

    Args:
        pipeline: as it was captured.
        files: path -> captured text, changed text.
        moved: where the calls are now, by where they were captured: `Emission.moved`.
    """
    starts = {path: tuple(line_starts(_bytes(text)) for text in texts) for path, texts in files.items()}

    def now(place: SourceLocation) -> SourceLocation | None:
        if place.file not in starts:
            return place
        before, after = starts[place.file]
        if not place.exact or not 0 < place.end_line <= len(before):
            return None
        site = moved.get(CallSite(place.file, before[place.end_line - 1] + place.end_column))
        if site is None or site.end < 0:
            return None
        line = max(number for number, start in enumerate(after, 1) if start <= site.end)
        column = site.end - after[line - 1]
        return replace(place, line=place.line + line - place.end_line, end_line=line, end_column=column)

    def stack(calls: tuple[SourceLocation, ...]) -> tuple[SourceLocation, ...]:
        return tuple(now(one) or replace(one, end_line=-1, end_column=-1) for one in calls)  # -1: no longer there

    nodes = tuple(
        replace(
            node,
            location=now(node.location) if node.location is not None else None,
            calls=stack(node.calls),
            other_calls=tuple(map(stack, node.other_calls)),
        )
        for node in pipeline
    )
    return replace(pipeline, nodes=nodes)


def locations(pipeline: Pipeline) -> Iterator[SourceLocation]:
    """Yields the calls that built a pipeline and those around them, with repetitions."""
    for node in pipeline:
        if node.location is not None:
            yield node.location
        yield from node.calls
        for stack in node.other_calls:
            yield from stack


def _bytes(text: str) -> bytes:
    return text.removeprefix(BYTE_ORDER_MARK).encode()
