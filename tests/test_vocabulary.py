"""Identifiers and messages use the words of the field (`docs/glossary.md`), not those of an earlier dialect."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "pipetune"


DIALECT = {
    "told": "reported, described, known",
    "tell": "report, describe",
    "telling": "reporting",
    "said": "sentence, reason",
    "saying": "messages",
    "wanted": "expected, requested, required",
    "anew": "again",
    "gone": "removed, ended",
    "hear": "receive",
    "heard": "received",
    "oftener": "more than twice",
    "foreseen": "predicted",
    "outdone": "dominated",
    "restless": "not converged",
    "believed": "detected",
    "asked": "requested",
}
"""Words to avoid, and the terms of the field."""

PUBLISHED = {"told_by", "oftener", "believed", "foreign", "gone", "wanted"}
"""Keys of session.json and of the output of commands, which programs read."""


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def identifiers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                yield from ((alias.asname, node.lineno) for alias in names if alias.asname)


def texts(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yields strings of several words that are not docstrings."""
    standing_alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in standing_alone else None
        if isinstance(text, str) and " " in text:
            yield text, node.lineno


def words(identifier: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", identifier)}


def test_identifiers_use_terms_of_the_field() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{line} {name}": DIALECT[word]
        for path, tree in sources()
        for name, line in [*identifiers(tree), (path.stem, 1)]
        if name not in PUBLISHED
        for word in words(name) & set(DIALECT)
    }
    assert not found


NOT_IN_MESSAGES = re.compile(
    r"\b(anew|oftener|beside|told|theirs|thereof|likewise|hitherto|as written|rates ladder|overlap lost|taking turns"
    r"|neighbours?|epoch borders?|knee|if you consent)\b",
    re.IGNORECASE,
)


def test_messages_are_in_plain_english() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line} {text}"
        for path, tree in sources()
        for text, line in texts(tree)
        if NOT_IN_MESSAGES.search(text) and "\n" not in text  # not the code of a helper that a patch adds
    ]
    assert not found


def test_glossary_has_expected_number_of_terms() -> None:
    glossary = (PACKAGE.parent / "docs" / "glossary.md").read_text()
    terms = [term.strip() for line in glossary.splitlines() if line.startswith("| ") for term in [line.split("|")[1]]]
    assert 60 <= len(set(terms)) <= 90
