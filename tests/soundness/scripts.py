"""Cases of scripts: captured, changed by the source emitter, run again; both datasets drained and compared."""

from __future__ import annotations

import ast
import contextlib
import difflib
import io
import os
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tests.soundness import adapter, cases
from tests.soundness.cases import Case, Tried, chosen
from tests.soundness.drained import Run, Unbuilt, drain
from tests.soundness.verdict import EXACT, judge
from tests.soundness.writing import Script, compose

_EPOCHS = 2
_MOST = 300
_PLAIN = 5
_AGAIN = 6


def run(seed: str, index: int, *, folder: str, ask_all: bool = False) -> Case:
    return cases.first_built("script", seed, _AGAIN, lambda one: tried(compose(one), folder=folder, seed=seed))


def datasets(path: str) -> dict[str, Any]:
    """The datasets a script leaves in variables; its own is `dataset`."""
    tf.random.set_seed(7)
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": path}
    with cases.building(), open(path, "rb") as file:
        exec(compile(file.read(), path, "exec", dont_inherit=True), namespace)
    return {name: value for name, value in namespace.items() if isinstance(value, tf.data.Dataset)}


def written(text: str, folder: str) -> str:
    """The path of a file with this text, in a separate folder."""
    path = os.path.join(tempfile.mkdtemp(dir=folder), "train.py")
    with open(path, "wb") as file:
        file.write(text.encode())
    return path


def _drained(path: str) -> dict[str, Run]:
    live = datasets(path)
    return {name: drain(live[name], epochs=_EPOCHS, most=_MOST) for name in ("valid", "dataset") if name in live}


def tried(script: Script, *, folder: str, seed: str = "") -> Case:
    """Every proposal for the script's dataset as a change of its text, and the elements of the changed script."""
    path = written(script.text(), folder)
    originals = _drained(path)
    if not originals["dataset"].elements or originals["dataset"].errors:
        raise Unbuilt("it gives no element")
    case = Case("script", seed, operations=script.operations)
    try:
        with adapter.recording():
            live = datasets(path)
        source = adapter.read(live["dataset"])
        others = [adapter.built(live["valid"])] if "valid" in live else []
        proposals = source.proposals(adapter.Facts())
    except adapter.Crash as crash:
        return replace(case, crash=str(crash), material=script.packed())
    case = replace(case, proposed=cases.names_of(proposals))
    found, patches = [], 0
    for proposal in chosen(proposals, salt=seed, plain=_PLAIN):
        try:
            files, covered = source.emitted([proposal], others)
        except adapter.Refused:
            continue
        except adapter.Crash as crash:
            case = replace(case, crash=f"{proposal.key}: {crash}", material=script.packed())
            continue
        if not covered or path not in files:
            continue
        patches += 1
        found.append(_judged(proposal, *files[path], originals, path, folder))
    material = script.packed() if any(not one.right for one in found) else case.material
    return replace(case, tried=tuple(found), patches=patches, material=material)


def _judged(
    proposal: adapter.Proposal, before: str, after: str, originals: Mapping[str, Run], path: str, folder: str
) -> Tried:
    why = text_harm(before, after)
    kind = "TEXT" if why else ""
    if not why:
        try:
            changed = _drained(written(after, folder))
        except Unbuilt as error:
            why, kind = f"the changed script fails: {error}", "ERROR"
        else:
            why, kind = _data_harm(proposal, originals, changed, path)
    diff = _diff(before, after) if why else ""
    return Tried((proposal.rule,), (proposal.key,), proposal.safety, not why, True, kind, why, diff)


def _data_harm(
    proposal: adapter.Proposal, originals: Mapping[str, Run], changed: Mapping[str, Run], path: str
) -> tuple[str, str]:
    """What is wrong with the data of the changed script although a replay of the same plan is right."""
    for name, original in originals.items():
        verdict = judge(original, changed[name], proposal.safety if name == "dataset" else EXACT, spare=24)
        if verdict.right or verdict.zeros:
            continue
        if name == "dataset":
            dataset = adapter.built(datasets(path)["dataset"]).replayed([proposal])
            if not judge(original, drain(dataset, epochs=_EPOCHS, most=_MOST), proposal.safety, spare=24).right:
                return "", ""  # the rewrite itself is wrong, which the other families cover
        return f"{name}: {verdict.detail}", verdict.kind
    return "", ""


# -- conditions that every changed text must meet


def text_harm(before: str, after: str) -> str:
    """What is wrong with a changed text, or ''.

    It must parse; newlines, a byte order mark and the end of the file must not change; no comment may be lost or
    changed except inside statements that create datasets; and all statements that create none, neither directly nor
    through a function of the file, must be kept exactly.
    """
    if before.startswith("\ufeff") != after.startswith("\ufeff"):
        return "the byte order mark"
    windows = [text.count("\r\n") for text in (before, after)]
    if bool(windows[0]) != bool(windows[1]) or (windows[0] and windows[1] != after.count("\n")):
        return "newlines of another kind"
    if before.endswith("\n") != after.endswith("\n"):
        return "the newline at the end"
    one, other = (text.lstrip("\ufeff") for text in (before, after))
    try:
        trees = ast.parse(one), ast.parse(other)
    except (SyntaxError, ValueError) as error:
        return f"it does not parse: {error}"
    concerned = _CALLS_OF_DATASETS | _helpers(trees[0])
    kept = Counter(comment for _, comment in _comments(one)) - Counter(comment for _, comment in _comments(other))
    inside = _lines_of_statements(trees[0], one, concerned)
    lost = [comment for line, comment in _comments(one) if comment in kept and line not in inside]
    if lost:
        return f"lost comments: {lost[:3]}"
    parts, kept_parts = (
        Counter(part for _, part in _statements(*pair)) for pair in zip(trees, (one, other), strict=True)
    )
    missing = [text for text in parts - kept_parts if not concerned & _names(text)]
    return f"a statement that is none of its affair: {missing[0][:80]!r}" if missing else ""


_CALLS_OF_DATASETS = frozenset(
    ("apply", "batch", "cache", "filter", "from_tensor_slices", "getattr", "map", "prefetch", "range", "reduce",
     "repeat", "shuffle", "skip", "take")
)  # fmt: skip


def _helpers(tree: ast.AST) -> set[str]:
    """Names of the functions and classes of a file, whose calls may get an argument or a further method call."""
    named = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)]
    return named | {target.id for node in lambdas for target in node.targets if isinstance(target, ast.Name)}


def _lines_of_statements(tree: ast.AST, text: str, concerned: frozenset[str] | set[str]) -> set[int]:
    """The lines of the simple statements that name one of these."""
    concerning = (node for node, source in _statements(tree, text) if concerned & _names(source))
    return {line for node in concerning for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _names(text: str) -> set[str]:
    with contextlib.suppress(SyntaxError):
        nodes = list(ast.walk(ast.parse(text.strip())))
        attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        return attributes | {node.id for node in nodes if isinstance(node, ast.Name)}
    return set(_CALLS_OF_DATASETS)


def _statements(tree: ast.AST, text: str) -> Iterator[tuple[ast.stmt, str]]:
    """The simple statements, each with its source text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            yield node, ast.get_source_segment(text, node) or ""


def _comments(text: str) -> Iterator[tuple[int, str]]:
    with contextlib.suppress(tokenize.TokenError, IndentationError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.strip()


def _diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    return "\n".join(list(lines)[2:])[:2000]


# -- the smallest script that fails in the same way


def smaller(script: Script) -> Iterator[Script]:
    """Scripts with a piece fewer, or in a simpler style."""
    for pieces in cases.without_one(script.pieces, 1):
        yield replace(script, pieces=pieces)
    for functions in cases.without_one(script.functions):
        yield replace(script, functions=functions)
    plain: dict[str, Any] = {"tail": (), "newline": "\n", "mark": False, "tabs": False, "inside": False, "ends": True}
    for name, value in plain.items():
        if (simpler := replace(script, **{name: value})) != script:
            yield simpler


def of_rules(script: Script, rules: Sequence[str], *, folder: str) -> Sequence[Tried]:
    """The proposals for the script, of these rules and of others, and the truth about them."""
    return tried(script, folder=folder).tried
