"""Cases of scripts: captured, changed by the source emitter, run again; both datasets drained and compared."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import tempfile
import time
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import tensorflow as tf

from tests.soundness import adapter, reduction
from tests.soundness.cases import Case, Tried, chosen
from tests.soundness.drained import Run, drain
from tests.soundness.verdict import judge
from tests.soundness.writing import Script, compose

_EPOCHS = 2
_MOST = 300
_PLAIN = 5
_AGAIN = 6


class _Unbuilt(Exception):
    """The script does not run, or creates no dataset."""


def run(seed: str, index: int, *, folder: str, ask_all: bool = False) -> Case:
    """The case of this seed."""
    started = time.monotonic()
    why = ""
    for attempt in range(_AGAIN):
        try:
            case = tried(compose(f"{seed}/{attempt}"), folder=folder, seed=seed)
        except _Unbuilt as error:
            why = str(error)
            continue
        return replace(case, seconds=time.monotonic() - started)
    return Case("script", seed, unbuilt=why, seconds=time.monotonic() - started)


def datasets(path: str) -> dict[str, Any]:
    """The datasets a script leaves in variables; its own is `dataset`."""
    tf.random.set_seed(7)
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": path}
    try:
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec", dont_inherit=True), namespace)
    except Exception as error:  # of an invalid script
        raise _Unbuilt(f"{type(error).__name__}: {str(error)[:200]}") from error
    return {name: value for name, value in namespace.items() if isinstance(value, tf.data.Dataset)}


def written(text: str, folder: str) -> str:
    """The path of a file with this text, in a separate folder."""
    path = os.path.join(tempfile.mkdtemp(dir=folder), "train.py")
    with open(path, "wb") as file:
        file.write(text.encode())
    return path


def _drained(path: str) -> dict[str, Run]:
    return {
        name: drain(value, epochs=_EPOCHS, most=_MOST)
        for name, value in datasets(path).items()
        if name in ("dataset", "valid")
    }


def tried(script: Script, *, folder: str, seed: str = "") -> Case:
    """Every proposal for the script's dataset as a change of its text, and the elements of the changed script."""
    path = written(script.text(), folder)
    originals = _drained(path)
    if not originals["dataset"].elements or originals["dataset"].errors:
        raise _Unbuilt("it gives no element")
    case = Case("script", seed, operations=tuple(sorted(_pieces(script))))
    try:
        with adapter.recording():
            live = datasets(path)
        source = adapter.read(live["dataset"])
        others = [adapter.built(value) for name, value in live.items() if name == "valid"]
        proposals = source.proposals(adapter.Facts())
    except adapter.Crash as crash:
        return replace(case, crash=str(crash), material={"script": asdict(script)})
    case = replace(case, proposed=tuple((one.key, one.safety) for one in proposals))
    found, patches = [], 0
    for proposal in chosen(proposals, salt=seed, plain=_PLAIN):
        try:
            files, covered = source.emitted([proposal], others)
        except adapter.Refused:
            continue
        except adapter.Crash as crash:
            case = replace(case, crash=f"{proposal.key}: {crash}", material={"script": asdict(script)})
            continue
        if not covered or path not in files:
            continue
        patches += 1
        found.append(_judged(proposal, *files[path], originals, path, folder))
    material = {"script": asdict(script)} if any(not one.right for one in found) else case.material
    return replace(case, tried=tuple(found), patches=patches, material=material)


def _pieces(script: Script) -> set[str]:
    """The kinds of statements in it."""
    with contextlib.suppress(SyntaxError):
        tree = ast.parse(script.text().lstrip("\ufeff"))
        return {
            type(node).__name__
            for node in ast.walk(tree)
            if isinstance(node, ast.stmt | ast.Lambda | ast.NamedExpr | ast.IfExp)
        }
    return set()


def _judged(
    proposal: adapter.Proposal, before: str, after: str, originals: Mapping[str, Run], path: str, folder: str
) -> Tried:
    why = text_harm(before, after)
    kind = "TEXT" if why else ""
    if not why:
        try:
            changed = _drained(written(after, folder))
        except _Unbuilt as error:
            why, kind = f"the changed script fails: {error}", "ERROR"
        else:
            why, kind = _data_harm(proposal, originals, changed, path)
    return Tried(
        (proposal.rule,),
        (proposal.key,),
        proposal.safety,
        right=not why,
        accepted=True,
        kind=kind,
        detail=why,
        why=_diff(before, after) if why else "",
    )


def _data_harm(
    proposal: adapter.Proposal, originals: Mapping[str, Run], changed: Mapping[str, Run], path: str
) -> tuple[str, str]:
    """What is wrong with the data of the changed script although a replay of the same plan is right."""
    for name, original in originals.items():
        verdict = judge(original, changed[name], proposal.safety if name == "dataset" else adapter.EXACT, spare=24)
        if verdict.right or verdict.zeros:
            continue
        if name == "dataset" and not judge(original, _replayed(proposal, path), proposal.safety, spare=24).right:
            return "", ""  # the rewrite itself is wrong, which the other families cover
        return f"{name}: {verdict.detail}", verdict.kind
    return "", ""


def _replayed(proposal: adapter.Proposal, path: str) -> Run:
    return drain(adapter.built(datasets(path)["dataset"]).replayed([proposal]), epochs=_EPOCHS, most=_MOST)


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
    statements = [Counter(_statements(tree, text)) for tree, text in zip(trees, (one, other), strict=True)]
    missing = [text for text in statements[0] - statements[1] if not concerned & _names(text)]
    return f"a statement that is none of its affair: {missing[0][:80]!r}" if missing else ""


_CALLS_OF_DATASETS = frozenset(
    {
        "map",
        "batch",
        "shuffle",
        "prefetch",
        "cache",
        "repeat",
        "take",
        "skip",
        "filter",
        "range",
        "from_tensor_slices",
        "apply",
        "getattr",
        "reduce",
    }
)


def _helpers(tree: ast.AST) -> set[str]:
    """Names of the functions and classes of a file, whose calls may get an argument or a further method call."""
    named = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)]
    return named | {target.id for node in lambdas for target in node.targets if isinstance(target, ast.Name)}


def _lines_of_statements(tree: ast.AST, text: str, concerned: frozenset[str] | set[str]) -> set[int]:
    """The lines of the simple statements that name one of these."""
    found: set[int] = set()
    for node in ast.walk(tree):
        simple = isinstance(node, ast.stmt) and not hasattr(node, "body")
        if simple and concerned & _names(ast.get_source_segment(text, node) or ""):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _names(text: str) -> set[str]:
    with contextlib.suppress(SyntaxError):
        tree = ast.parse(_dedented(text))
        return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name)
        }
    return set(_CALLS_OF_DATASETS)


def _dedented(text: str) -> str:
    return text.strip()


def _statements(tree: ast.AST, text: str) -> Iterator[str]:
    """The source text of the simple statements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            yield ast.get_source_segment(text, node) or ""


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Each comment, with its line."""
    with contextlib.suppress(tokenize.TokenError, IndentationError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.strip()


def _diff(before: str, after: str) -> str:
    import difflib

    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    return "\n".join(list(lines)[2:])[:2000]


# -- the smallest script that fails in the same way


def unpacked(packed: Mapping[str, Any]) -> Script:
    """The script that was packed into the material of a case."""
    fields = dict(packed["script"])
    fields["head"], fields["functions"], fields["tail"] = (
        tuple(fields[name]) for name in ("head", "functions", "tail")
    )
    fields["pieces"] = tuple(tuple(piece) for piece in fields["pieces"])
    return Script(**fields)


def smaller(script: Script) -> Iterator[Script]:
    """Scripts with a piece fewer, or in a simpler style."""
    for place in range(1, len(script.pieces)):
        yield replace(script, pieces=script.pieces[:place] + script.pieces[place + 1 :])
    for place in range(len(script.functions)):
        yield replace(script, functions=script.functions[:place] + script.functions[place + 1 :])
    if script.tail:
        yield replace(script, tail=())
    for fields in ({"newline": "\n"}, {"mark": False}, {"tabs": False}, {"inside": False}, {"ends": True}):
        if replace(script, **fields) != script:  # type: ignore[arg-type]
            yield replace(script, **fields)  # type: ignore[arg-type]


def reduced(
    script: Script, rules: list[str], kind: str, *, folder: str, most: int = 40, seconds: float = 60.0
) -> dict[str, Any]:
    """The smallest script found in which a patch of this rule is wrong in the same way."""
    last: Tried | None = None

    def fails(candidate: Script) -> bool:
        nonlocal last
        found = wrong_one(candidate, rules[0], kind, folder=folder)
        last = found or last
        return found is not None

    smallest = reduction.reduced(script, smaller, fails, most=most, seconds=seconds)
    return {
        "rule": rules[0],
        "kind": kind,
        "safety": last.safety if last is not None else "",
        "detail": last.detail if last is not None else "",
        "operations": sorted(_pieces(smallest)),
        "text": smallest.text() + ("\n" + last.why if last is not None else ""),
        "program": {"script": asdict(smallest)},
    }


def wrong_one(script: Script, rule: str, kind: str, *, folder: str) -> Tried | None:
    """A patch of this rule that is wrong in this way."""
    with contextlib.suppress(_Unbuilt):
        for one in tried(script, folder=folder).tried:
            if one.wrong and one.rules == (rule,) and one.kind == kind:
                return one
    return None
