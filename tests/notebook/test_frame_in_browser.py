"""The output of a session in a page as a notebook makes it: neither changes how the other looks, nothing is fetched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipetune.api import TunedSession
from tests.report import sessions as samples

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH: make test installs it"),
]

NOTEBOOK = """<!DOCTYPE html><html><head><meta charset="utf-8"><style>
h1, p, section, td {{ font-size: 3px !important; color: rgb(1, 2, 3) !important; }}
</style></head><body><h1 id="own">notebook</h1><div>{output}</div></body></html>"""


def test_report_and_notebook_keep_their_own_styles(tmp_path: Path) -> None:
    page = tmp_path / "notebook.html"
    page.write_text(NOTEBOOK.format(output=TunedSession(samples.hostile())._repr_html_()), encoding="utf-8")
    happened: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        visit = browser.new_page(viewport={"width": 900, "height": 900})
        visit.on("dialog", lambda dialog: (happened.append(dialog.message), dialog.dismiss()))
        visit.on("request", lambda request: happened.append(request.url))
        visit.on("pageerror", lambda error: happened.append(str(error)))
        visit.goto(page.as_uri())
        frame = visit.frames[1]
        heading = frame.locator("#headline")
        heading.wait_for()
        size = heading.evaluate("element => parseFloat(getComputedStyle(element).fontSize)")
        own = visit.locator("#own").evaluate("element => getComputedStyle(element).color")
        box = visit.locator("iframe").bounding_box()
        browser.close()
    assert size > 12, "the notebook's rule is not that of the report"
    assert own == "rgb(1, 2, 3)", "nor the report's that of the notebook"
    assert box is not None and box["width"] > 850 and box["height"] == 560
    assert [one for one in happened if one != page.as_uri()] == []
