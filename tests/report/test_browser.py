"""The report in a real browser: nothing foreign runs, nothing is fetched, nothing overflows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipetune.report.render import render
from tests.report import sessions as samples

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
ARGUMENTS = "no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-component-update"
OPEN_DETAILS = "document.querySelectorAll('details').forEach(part => { part.open = true; });"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH: make test installs it"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with sync_api.sync_playwright() as playwright:
        arguments = [f"--{one}" for one in (*ARGUMENTS.split(), "disable-sync")]
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield running
        running.close()


class Visit:
    """One page, and everything it tried to do."""

    def __init__(self, browser, folder: Path, name: str, width: int, scheme: str = "light") -> None:
        path = render(samples.ALL[name](), "html", folder / f"{name}.html")
        self.said: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.on("dialog", self._dialog)
        self.page.on("console", lambda message: self.said.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self._request(request.url, path.as_uri()))
        self.page.goto(path.as_uri())

    def _dialog(self, dialog) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, url: str, own: str) -> None:
        if url != own and not url.startswith("data:"):
            self.said.append(f"request: {url}")


@pytest.fixture
def visit(browser, tmp_path):
    opened: list[Visit] = []

    def go(name: str, width: int = 1280, scheme: str = "light") -> Visit:
        opened.append(Visit(browser, tmp_path, name, width, scheme))
        return opened[-1]

    yield go
    for one in opened:
        one.page.close()


@pytest.mark.sample(4)
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", ["distributed", "hostile", "busy", "failed", "input_only", "bare"])
def test_no_page_overflows_complains_or_fetches(visit, name, width):
    visited = visit(name, width)
    visited.page.evaluate(OPEN_DETAILS)
    assert visited.page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert visited.said == []


def test_tables_show_all_their_columns_on_a_usual_screen(visit):
    hidden = "Array.from(document.querySelectorAll('.scroll')).map(one => one.scrollWidth - one.clientWidth)"
    for name in ("distributed", "likely"):
        found = visit(name, 1024).page.evaluate(hidden)
        assert found and max(found) <= 0, name  # a single pixel is a scroll bar


def test_phone_shows_each_operator_with_its_time_and_each_change_whole(visit):
    page = visit("photos", 390).page
    hidden = "id => { const one = document.querySelector(id + ' .scroll'); return one.scrollWidth - one.clientWidth; }"
    assert page.evaluate(hidden, "#why") <= 0 and page.evaluate(hidden, "#tried") <= 0
    assert page.locator("#why tbody tr:visible").count() == 7
    number = page.locator("#why tbody tr").first.locator("td.number").first
    assert number.is_visible() and page.locator("#tried tbody tr:visible td:last-child").first.is_visible()
    rights = "Array.from(document.querySelectorAll('.table figcaption')).map(one => one.getBoundingClientRect().right)"
    assert max(page.evaluate(rights)) <= 390


@pytest.mark.parametrize("width", [390, 1024])
@pytest.mark.parametrize("name", ["nothing", "interrupted"])  # the longest words
def test_no_word_of_the_headline_is_broken(visit, name, width):
    broken = """() => {
        const node = document.querySelector("h1 .big").firstChild, text = node.textContent;
        return text.split(/\\s+/).filter(word => {
            const range = document.createRange(), start = text.indexOf(word);
            range.setStart(node, start);
            range.setEnd(node, start + word.length);
            return range.getClientRects().length > 1;
        });
    }"""
    assert visit(name, width).page.evaluate(broken) == []


@pytest.mark.parametrize("name", ["photos", "likely"])
def test_the_answer_is_on_the_first_screen(visit, name):
    """The number, the change with its gains, the command and whether it is safe: nothing to scroll for."""
    page = visit(name, 1440).page
    assert page.evaluate("document.querySelector('#answer').getBoundingClientRect().bottom") <= 900


def test_hostile_names_run_nothing_even_when_everything_is_used(visit):
    visited = visit("hostile")
    page = visited.page
    page.evaluate(OPEN_DETAILS)
    for button in page.query_selector_all("button"):
        if button.get_attribute("id") != "save-data":
            button.click()
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert visited.said == []


def test_an_injected_handler_would_be_stopped_by_the_policy(visit):
    """The second wall: even markup that got through could not run."""
    visited = visit("photos")
    visited.page.evaluate(
        """() => { document.body.insertAdjacentHTML("beforeend",
            "<img src='data:x' onerror='alert(1)'><svg onload='alert(2)'></svg>"); }"""
    )
    visited.page.wait_for_timeout(200)
    assert not [said for said in visited.said if said.startswith("dialog")]


def test_the_scheme_follows_the_system_and_the_button(visit):
    colour = "getComputedStyle(document.body).backgroundColor"
    light, dark = visit("photos"), visit("photos", scheme="dark")
    assert light.page.evaluate(colour) != dark.page.evaluate(colour)
    before = light.page.evaluate(colour)
    light.page.click("#scheme")
    assert light.page.evaluate(colour) == dark.page.evaluate(colour) != before


def test_text_can_be_read_in_both_schemes(visit):
    """WCAG 2.1, 1.4.3: a contrast of 4.5 for every text in sight."""
    script = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
    for scheme in ("light", "dark"):
        assert visit("distributed", scheme=scheme).page.evaluate(script) == []


def test_changes_can_be_filtered_by_state_and_text(visit):
    page = visit("photos").page

    def shown(state):
        return page.locator(f"#tried tr[data-state='{state}']:visible").count()

    assert (shown("in the patch"), shown("not faster")) == (2, 0)
    page.check("[data-state-filter='not faster']")
    assert shown("not faster") == 2
    page.fill("[data-text-filter]", "prefetch")
    assert page.locator("#tried tbody tr:visible").count() == 1
    page.fill("[data-text-filter]", "")
    page.uncheck("[data-state-filter='in the patch']")
    assert shown("in the patch") == 0


def test_changes_can_be_sorted(visit):
    page = visit("photos").page
    cells = "document.querySelectorAll('#tried tbody tr:not([hidden]) td:nth-child(4)')"
    gains = f"Array.from({cells}).map(one => one.dataset.sort)"
    for order, sorted_gains in (("ascending", ["1.05", "1.08", "1.26"]), ("descending", ["1.26", "1.08", "1.05"])):
        page.click("#tried .sort:text('Gain')")
        assert page.evaluate(gains) == sorted_gains
        assert page.locator(f"#tried th[aria-sort={order}]").count() == 1


def test_an_operator_opens_from_the_keyboard(visit):
    page = visit("photos").page
    assert page.locator("#why tr.details:visible").count() == 0
    page.focus("#why .more >> nth=3")
    page.keyboard.press("Enter")
    assert "731" in page.inner_text("#why tr.details:visible")
    assert page.locator("#why .more[aria-expanded=true]").count() == 1


def test_the_patch_can_be_copied(visit):
    page = visit("photos").page
    page.click("[data-copy=patch-text]")
    assert page.inner_text("[data-copy=patch-text]") in ("Copied", "Press Ctrl-C")
    assert page.text_content("#patch-text") == samples.DIFF


def test_four_printed_pages_at_most_hold_their_tables(visit, tmp_path):
    page = visit("distributed", 794).page  # A4 at 96 dots per inch
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").read_bytes().count(b"/Type /Page\n") <= 4
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 794
    rights = "Array.from(document.querySelectorAll('table')).map(one => one.getBoundingClientRect().right)"
    assert max(page.evaluate(rights)) <= 794


def test_the_page_reads_without_script(browser, tmp_path):
    path = render(samples.photos(), "html", tmp_path / "plain.html")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert "1.36" in page.inner_text("h1")
    assert page.locator("#scheme:visible").count() == 0
    context.close()


def test_saved_data_are_the_data_of_the_page(visit, tmp_path):
    page = visit("photos").page
    with page.expect_download() as caught:
        page.click("#save-data")
    caught.value.save_as(tmp_path / "saved.json")
    text = (tmp_path / "saved.json").read_text(encoding="utf-8")
    assert text.startswith("{") and '"median": 1.36' in text
