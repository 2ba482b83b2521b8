"""Numbers and foreign text as shown."""

from __future__ import annotations

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.measurement import Interval
from pipetune.report import words
from pipetune.report.words import interval


@pytest.mark.parametrize(
    ("function", "texts"),
    [
        (words.significant, {0.0: "0", 0.01234: "0.0123", 9.999: "10.0", 1_234.0: "1,230", -45.67: "-45.7"}),
        (words.significant, {math.inf: "unbounded", math.nan: "not a number"}),
        (words.ratio, {9.994: "9.99x", 9.996: "10.0x"}),
        (words.percent, {0.0001: "<0.1 %", 0.0: "0.0 %"}),
        (words.seconds, {3.3e-5: "33.0 us", 150.0: "2 min 30 s", 0.0: "0 us"}),
        (words.byte_size, {0.26: "0.260 B", 1536.0: "1.50 KiB", 2.5 * 1024**4: "2.50 TiB"}),
        (words.mebibytes, {8192.0: "8.00 GiB"}),
        (words.plain, {0.42: "0.42", 10.0: "10"}),
        (lambda number: words.count(number, "element"), {1: "1 element", 1_200: "1,200 elements"}),
        (lambda number: words.count(number, "batch"), {2: "2 batches"}),
        (lambda number: words.count(number, "retry"), {3: "3 retries"}),
        (lambda number: words.count(number, "day"), {3: "3 days"}),
    ],
)
def test_number_words(function, texts):
    assert {value: function(value) for value in texts} == texts


def test_sentence_leaves_code_alone():
    assert words.sentence("the input waits") == "The input waits."
    assert words.sentence("map(decode) takes long") == "map(decode) takes long."
    assert words.sentence("num_parallel_calls is fixed!") == "num_parallel_calls is fixed!"
    assert words.sentence("  ") == ""


def test_joined():
    assert words.joined(["2"]) == "2"
    assert words.joined(["2", "3", "4"]) == "2, 3 and 4"


def test_clean_spells_out_what_a_terminal_would_obey():
    assert words.clean("\x1b[31mred\x07") == "\\u001b[31mred\\u0007"
    assert words.clean("a\u202egnp.exe") == "a\\u202egnp.exe"
    assert words.clean("a\nb\tc") == "a b c"
    assert words.clean("a\n\tb", lines=True) == "a\n\tb"
    assert words.clean("a\r\nb\rc\r\n", lines=True) == "a\nb\\u000dc\n"  # a diff of a file from Windows
    assert words.clean("\ud800") == "\\ud800"  # a file name that is not UTF-8 arrives so
    assert words.clean("naïve 图像") == "naïve 图像"


@given(st.text(alphabet=st.characters(codec=None)))
def test_clean_never_lets_a_control_character_through(text):
    shown = words.clean(text)
    assert not [letter for letter in shown if unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"}]
    shown.encode("utf-8")


def test_interval_words():
    shown = interval(Interval(1.36, 1.34, 1.384, 16), words.ratio)
    assert shown.text == "1.36x (1.34 to 1.38)"
    assert (shown.short, shown.span) == ("1.36x", "1.34 to 1.38")
    assert shown.basis == "16 pairs, t on log ratios, 95 %"
    assert interval(Interval(0.284, 0.262, 0.307, 1), words.percent).text == "28 % (26 to 31 %)"
