"""The pages that are written from the code are those of this code, and links in documents lead somewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.reference import FOLDER, PAGES, text

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"))
    if ".venv" not in path.parts
]


@pytest.mark.parametrize("name", PAGES)
def test_reference_is_up_to_date(name: str) -> None:
    if name == "commands.md" and sys.version_info >= (3, 13):
        pytest.skip("argparse of Python 3.13 prints options in another form")
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == text(PAGES[name]), "python -m tests.reference writes it again"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    shown = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", shown):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{target} does not exist"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), f"{target}: there is no such heading"


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_page_is_reached_from_the_readme_or_the_index() -> None:
    reached = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *ROOT.glob("docs/*.md")))
    missing = [path.name for path in ROOT.glob("docs/**/*.md") if path.name not in reached]
    assert not missing
