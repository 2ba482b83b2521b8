"""The HTML report as a document: one file, nothing foreign runs, headings in order."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from pipetune.report.html import TEMPLATES, environment, html, json_text, typeset
from tests.report import sessions as samples


class Page(HTMLParser):
    """What a browser would build, as far as these tests ask."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[int] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = tag
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text.append(data)


@pytest.fixture(scope="module", params=("distributed", "hostile", "likely", "busy", "failed", "bare"))
def page(request):
    """A session's name, its page, and that parsed."""
    text = html(samples.ALL[request.param]())
    return request.param, text, Page(text)


def test_headings_are_in_order(page):
    levels = page[2].headings
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_nothing_is_fetched(page):
    for tag, attributes in page[2].tags:
        assert tag not in {"iframe", "object", "embed", "base"}
        for name in ("src", "href", "action", "xlink:href", "srcset", "data"):
            value = attributes.get(name)
            if name == "href" and tag == "a" and attributes.get("class") == "where":
                assert value.startswith("vscode://file/")  # opens the reader's editor, and nothing by itself
                continue
            assert value is None or value.startswith(("#", "data:image/svg+xml,")), (tag, name, value)
    assert "@import" not in page[1]
    assert "url(" not in page[1]


def test_no_foreign_element_or_handler_appears(page):
    tags = page[2].tags
    assert "img" not in {tag for tag, _ in tags}
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]
    assert [tag for tag, _ in tags].count("script") == 2


def test_the_policy_allows_this_script_alone(page):
    document = page[2]
    policy = next(a["content"] for tag, a in document.tags if a.get("http-equiv") == "Content-Security-Policy")
    own = document.scripts[1]
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_the_data_travel_with_the_page(page):
    name, _, document = page
    data = json.loads(document.scripts[0])
    assert data == json.loads(json_text(samples.ALL[name]()))


def test_every_table_has_a_caption_and_every_chart_a_name(page):
    tags = page[2].tags
    for tag, attributes in tags:
        if tag == "svg":
            assert attributes.get("aria-hidden") == "true" or attributes.get("aria-label"), attributes
        if tag == "th":
            assert attributes.get("scope") in {"col", "row"}
        if tag == "table":
            assert attributes.get("aria-labelledby")
        if attributes.get("role") == "region":
            assert attributes.get("tabindex") == "0"
            assert attributes.get("aria-label") or attributes.get("aria-labelledby")


def test_ids_are_unique_and_links_lead_somewhere(page):
    tags = page[2].tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in tags:
        if (attributes.get("href") or "").startswith("#"):
            assert attributes["href"][1:] in ids
        for name in ("aria-labelledby", "data-copy", "data-for", "data-details"):
            if name in attributes:
                assert attributes[name] in ids


def test_a_page_has_few_words_outside_its_details(page):
    """900 at most; a reader who wants more opens the details."""
    name, text, _ = page
    if name == "hostile":
        return
    outside = re.sub(r'<details class="folded".*?</details>', "", text, flags=re.S)
    states = "|".join(("in the patch", "in the plan", "likely", "undecided", "needs approval"))
    not_shown = rf'<tr class="details".*?</tr>|<pre id="patch-text".*?</pre>|<tr data-state="(?!{states}).*?</tr>'
    hidden = re.sub(not_shown, "", outside, flags=re.S)
    assert len(" ".join(Page(hidden).text).split()) <= 900


def test_the_first_screen_has_the_number_the_change_and_the_command():
    text = html(samples.photos())
    answer = " ".join("".join(Page(text[: text.index('id="why"')]).text).split())
    for wanted in (
        *("1.36\u00d7 faster training", "1.34 to 1.38", "98.1 ms", "72.3 ms", "AUTOTUNE everywhere"),
        "decode_and_augment, num_parallel_calls=2)",
        "parallel-map 1.26\u00d7 (1.22 to 1.31)",
        "pipetune apply reports/train",
        "Training waits for data 2.8 % of each step, before 28 %.",
        "order or draws now differ from run to run",
    ):
        assert wanted in answer, wanted


@pytest.mark.parametrize(
    ("editor", "link"),
    [
        ("vscode", "vscode://file/home/ada/photos/photo_input.py:24"),
        ("idea", "idea://open?file=/home/ada/photos/photo_input.py&amp;line=24"),
        ("file", "file:///home/ada/photos/photo_input.py"),
    ],
)
def test_places_are_links_to_the_editor(editor, link):
    assert f'<a class="where" href="{link}">photo_input.py:24</a>' in html(samples.photos(), editor=editor)
    assert "<a class" not in html(samples.photos(), editor="none").replace('<a class="skip"', "")


def test_hostile_names_are_shown_as_they_are_written():
    text = "".join(Page(html(samples.hostile())).text)
    for name in ("<script>alert(1)</script>", "\"'><img src=x onerror=alert(2)>", "{{ 7 * 7 }}{% raw %}"):
        assert name in text
    assert "49" not in re.findall(r"\b49\b", text)


def test_autoescape_is_on_and_no_template_goes_around_it():
    made = environment("none")
    assert made.autoescape is True
    assert made.from_string("{{ x }}").render(x="<b>") == "&lt;b&gt;"
    for template in TEMPLATES.glob("*.j2"):
        unsafe = re.findall(r"[^{}]*\|\s*safe|\{%-?\s*autoescape", template.read_text(encoding="utf-8"))
        assert all(re.match(r"\s*['\"]", one) for one in unsafe), "only literals of the template itself"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1.36x", "1.36\u00d7"),
        ("33.0 us", "33.0\u00a0\u00b5s"),
        ("28 % of 4 ms", "28\u00a0% of 4\u00a0ms"),
        ("0x1f", "0x1f"),
        ("8.00 GiB", "8.00\u00a0GiB"),
        ("2 msgs", "2 msgs"),
        ("1,230x (1.22x to 9.99x): 10.0x.", "1,230\u00d7 (1.22\u00d7 to 9.99\u00d7): 10.0\u00d7."),
        ("load_4x of train_2x.py", "load_4x of train_2x.py"),
        ("2x.py, 2x-a.py, a-2x, a/2x/b, v1.2x", "2x.py, 2x-a.py, a-2x, a/2x/b, v1.2x"),
        ("data_2 ms, b8 s", "data_2 ms, b8 s"),
    ],
)
def test_typeset(text, shown):
    assert typeset(text) == shown
