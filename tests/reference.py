"""Writes docs/reference from the code: commands, rules, the Python interface, session.json.

`python -m tests.reference` writes the pages; `tests/test_reference.py` fails if one is out of date.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pipetune
from pipetune import api
from pipetune.cli.main import build_parser
from pipetune.rewrites import find_rules

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
SCHEMA = Path(pipetune.__file__).parent / "schemas" / "session.schema.json"
NOTICE = "<!-- Written by `python -m tests.reference`: change the code, not this page. -->"


def commands() -> Iterator[str]:
    """Usage and options of every command, as `--help` prints them."""
    parser = build_parser()
    yield from ("# Commands", "", NOTICE, "")
    yield "What each command prints as JSON is in [scripting](../scripting.md)."
    (subparsers,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    for name, subparser in subparsers.choices.items():
        yield from ("", f"## pipetune {name}", "", "```text", _help(subparser), "```")


def _help(parser: argparse.ArgumentParser) -> str:
    with mock.patch.dict(os.environ, COLUMNS="100"):  # argparse wraps to it
        return parser.format_help().rstrip()


def rules() -> Iterator[str]:
    """Every rewrite: what it does, when it is legal, its safety."""
    yield from ("# Rewrites", "", NOTICE, "")
    yield "`pipetune rules NAME` prints the same. The classes of safety are explained in the README."
    for rule in find_rules():
        yield from ("", f"## {rule.name}", "", _plain(rule.summary), "")
        yield from (f"- Legal: {_plain(rule.legality)}", f"- Safety: {_plain(rule.safety)}")


def python() -> Iterator[str]:
    """The functions of the package and the session they return."""
    yield from ("# Python interface", "", NOTICE, "")
    yield "`import pipetune` imports no TensorFlow; the functions do when they are called."
    names = [name for name in pipetune.__all__ if name != "keras"]  # a module that imports TensorFlow
    for name in names:
        value = getattr(pipetune, name)
        if inspect.isfunction(value):
            yield from ("", f"## pipetune.{name}", "", *_function(f"pipetune.{name}", value))
    yield from ("", "## pipetune.keras.InputMonitor", "", *_input_monitor())
    yield from ("", "## The session", "", _docstring(api.TunedSession))
    for name, member in vars(api.TunedSession).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield from ("", f"### session.{name}", "", _docstring(member))
        elif inspect.isfunction(member):
            yield from ("", f"### session.{name}()", "", *_function(f"session.{name}", member))
    yield from ("", "## Errors", "")
    for name in names:
        value = getattr(pipetune, name)
        if inspect.isclass(value) and issubclass(value, Exception):
            yield f"- `pipetune.{name}`: {_plain(_docstring(value).splitlines()[0])}"


def session() -> Iterator[str]:
    """The keys of session.json that other programs may rely on."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    yield from ("# session.json", "", NOTICE, "", _plain(schema["description"]), "")
    yield "The schema is in the package: `pipetune/schemas/session.schema.json`. Any figure may be null."
    yield from ("", "## Top level", "", *_keys(schema))
    for name, definition in schema["$defs"].items():
        yield from ("", f"## {name}", "", *_keys(definition))


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "commands.md": commands,
    "rules.md": rules,
    "python.md": python,
    "session.md": session,
}


def text(page: Callable[[], Iterator[str]]) -> str:
    """A page as it is written."""
    return "\n".join(page()) + "\n"


def _function(name: str, function: Callable[..., Any]) -> Iterator[str]:
    annotated = str(inspect.signature(function, eval_str=False))
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", annotated).replace("(self, ", "(")
    yield from ("```python", f"{name}{signature.replace('(self)', '()')}", "```", "", _docstring(function))


def _input_monitor() -> Iterator[str]:
    """The callback, from its source: to import it would import TensorFlow."""
    tree = ast.parse((Path(pipetune.__file__).parent / "keras.py").read_text(encoding="utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "InputMonitor")
    methods = {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}
    arguments = ast.unparse(methods["__init__"].args).removeprefix("self, ")
    yield from ("```python", f"pipetune.keras.InputMonitor({arguments})", "```", "")
    yield _markdown(ast.get_docstring(found) or "")
    yield from ("", _markdown(ast.get_docstring(methods["__init__"]) or ""))
    for name, node in methods.items():
        if any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list):
            yield from ("", f"- `.{name}`: {_markdown(ast.get_docstring(node) or '')}")


def _docstring(value: object) -> str:
    return _markdown(inspect.getdoc(value) or "")


def _markdown(docstring: str) -> str:
    """A docstring as Markdown: sections become lists."""
    lines: list[str] = []
    for line in docstring.splitlines():
        if re.fullmatch(r"(Args|Returns|Raises|Warns|Yields):", line):
            lines += [f"**{line.rstrip(':')}**", ""]
        elif found := re.fullmatch(r"    (\w+): (.*)", line):
            lines.append(f"- `{found[1]}`: {found[2]}")
        elif line.startswith("        "):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line.strip())
    return "\n".join(lines)


def _keys(schema: dict[str, Any]) -> Iterator[str]:
    properties = schema.get("properties", {})
    if not properties:
        yield _plain(schema.get("description", "See the schema."))
        return
    if "description" in schema:
        yield from (_plain(schema["description"]), "")
    yield from ("| key | type | |", "| --- | --- | --- |")
    for name, value in properties.items():
        yield f"| `{name}` | {_type(value)} | {_plain(value.get('description', ''))} |"


def _type(value: dict[str, Any]) -> str:
    """A type as a reader says it: "number or null", "list of objects", a link to a definition."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return ", ".join(f"`{one}`" if one is not None else "null" for one in value["enum"])
    for key in ("anyOf", "oneOf"):
        if key in value:
            return " or ".join(_type(one) for one in value[key])
    kind = value.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_type(value.get('items', {}))}"
    return str(kind)


def _plain(sentence: str) -> str:
    return sentence.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(text(page), encoding="utf-8")


if __name__ == "__main__":
    main()
