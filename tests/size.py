"""The size of the package and its tests, as `make lines` prints it: `python -m tests.size`."""

from __future__ import annotations

import io
import sys
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
NO_TOKENS = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True)
class Size:
    """The size of a folder."""

    modules: int  # Python files, without empty ones
    lines: int  # of Python files: code, comments, docstrings and blank lines
    logical: int  # statements, by Python's tokenizer: a statement over several lines counts once
    other: int  # lines of files that are not Python: schemas, templates, recorded data


def size_of(folder: Path) -> Size:
    """Counts the files of a folder and its subfolders, without byte code."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    sources = {path: path.read_text() for path in files if path.suffix == ".py"}
    other = [path.read_bytes().count(b"\n") for path in files if path.suffix not in {".py", ".gz", ".jpg", ".png"}]
    return Size(
        modules=sum(1 for text in sources.values() if text.strip()),
        lines=sum(text.count("\n") for text in sources.values()),
        logical=sum(map(_logical_lines, sources.values())),
        other=sum(other),
    )


def _logical_lines(text: str) -> int:
    """Counts statements, except those that are only a string, such as docstrings."""
    count, statement = 0, set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            count += statement != {tokenize.STRING}
            statement = set()
        elif token.type not in NO_TOKENS:
            statement.add(token.type)
    return count


def longest_chain() -> list[str]:
    """Returns the longest chain of imports within the package, from the module that nothing imports last.

    Imports for type checkers are not counted.
    """
    graph = grimp.build_graph("pipetune", exclude_type_checking_imports=True)

    @cache
    def below(module: str) -> tuple[str, ...]:
        imported = (below(name) for name in sorted(graph.find_modules_directly_imported_by(module)))
        return (module, *max(imported, key=len, default=()))

    sys.setrecursionlimit(10_000)
    return list(max((below(module) for module in sorted(graph.modules)), key=len))


def table(folders: Iterable[Path]) -> str:
    """Formats the sizes of folders, one line each, and their sum."""
    rows = [(path.name, size_of(path)) for path in folders]
    total = Size(*(sum(getattr(size, name) for _, size in rows) for name in Size.__dataclass_fields__))
    heading = f"{'':22}{'modules':>8}{'lines':>8}{'logical':>9}{'not Python':>12}"
    lines = [
        f"{name:22}{size.modules:8,}{size.lines:8,}{size.logical:9,}{size.other:12,}"
        for name, size in [*rows, ("all", total)]
    ]
    return "\n".join([heading, *lines])


def main() -> None:
    """Prints the sizes of the package by its folders, those of the tests and examples, and the longest import chain."""
    package = ROOT / "pipetune"
    parts = [path for path in sorted(package.iterdir()) if path.is_dir() and path.name != "__pycache__"]
    print("The package, without the modules beside its folders:")
    print(table(parts))
    print("\nAll that is written here:")
    print(table([package, ROOT / "benchmarks", ROOT / "tests", ROOT / "examples"]))
    chain = longest_chain()
    print(f"\nThe longest chain of imports has {len(chain)} modules: {' > '.join(chain)}")


if __name__ == "__main__":
    main()
