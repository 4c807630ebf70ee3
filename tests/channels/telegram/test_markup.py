"""Test the agent's text as Telegram shows it: formatted, in parts that fit, with no word lost."""

from __future__ import annotations

import re
import time
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from rapport.channels.telegram.writing.markup import Part, render_parts
from tests.support.cases import every_case

UNSPLIT = 10**9

# What a reader takes for one character: none of them may be cut.
CLUSTERS = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🇨🇿", "🇯🇵", "👍🏽", "👩🏾‍🚀", "e\u0301", "q\u0323\u0307", "1️⃣", "ก็", "각", "😀"]
WORDS = ["alpha", "beta", "gamma", "delta", "omega", "漢字", "naïve", "x" * 90]
SYNTAX = [
    *("*", "**", "_", "__", "~~", "`", "``", "```", "```python\n", "\n```\n", "    code\n", "\\", "[", "]", "](", "!["),
    *(
        "(http://e.com/?a=1&b=2)",
        "](https://example.com/long/path)",
        "](javascript:x)",
        "<https://e.com>",
        "<b>",
        "</b>",
    ),
    *(
        "&",
        "<",
        ">",
        "&amp;",
        "&lt;",
        '"',
        "> ",
        "> > ",
        "- ",
        "  - ",
        "1. ",
        "7) ",
        "# ",
        "### ",
        "---",
        "| ",
        "|-|-|\n",
    ),
    *("\n", "\n\n", "  \n", " ", "\t", ". ", "! ", "。", "[x]: http://e.com\n", "[source: note-1]", "\u200b", "\u00a0"),
]
texts = st.lists(st.sampled_from([*SYNTAX, *SYNTAX, *WORDS, *CLUSTERS]) | st.text(max_size=8), max_size=60).map("".join)
BLOCKS = [
    *("alpha", "beta", "gamma", "delta", " ", "\n", "\n\n") * 3,
    *("*", "**", "_", " ~~", "> ", "- ", "  - ", "1. ", "# ", "---\n", "    ", "&", "<b>"),
    *("|", " | ", "|-|-|\n", "\n|", "\n> |a|b|\n> |-|-|\n> |", "- |a|b|\n  |-|-|\n  |"),
]
limits = st.integers(64, 300) | st.integers(64, 4096)


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


# A strict reader of the HTML that Telegram takes.

TOKEN = re.compile(
    r"""(?P<open><(?:(?P<plain>b|i|u|s|code|pre|blockquote|tg-spoiler)|a\ href="(?P<href>[^"<>]+)"|code\ class="language-[^"<>&]+")>)"""
    r"""|(?P<close></(?P<closed>b|i|u|s|a|code|pre|blockquote|tg-spoiler)>)|(?P<entity>&(?:amp|lt|gt);)|(?P<text>[^<>&]+)""",
    re.VERBOSE,
)
MEANT = {"&amp;": "&", "&lt;": "<", "&gt;": ">"}


def read(html: str) -> str:
    """The words of it; fails on whatever Telegram could refuse."""
    opened: list[str] = []
    words: list[str] = []
    at = 0
    while at < len(html):
        found = TOKEN.match(html, at)
        assert found, f"neither tag nor text: {html[at : at + 40]!r}"
        at = found.end()
        if found["open"]:
            name = found["plain"] or ("a" if found["href"] else "code")
            assert name not in opened, f"<{name}> in itself"
            assert "code" not in opened, "a tag within code"
            assert "pre" not in opened or "class=" in found[0], "a tag within preformatted text"
            assert name != "pre" or set(opened) <= {"blockquote"}, f"<pre> within {opened}"
            assert re.fullmatch(r"([^&]|&(amp|quot|lt|gt);)+", found["href"] or "-")
            opened.append(name)
        elif found["close"]:
            assert opened, "nothing to close"
            assert opened.pop() == found["closed"], "wrongly nested"
        else:
            words.append(MEANT[found["entity"]] if found["entity"] else found["text"])
    assert opened == []
    return "".join(words)


def check(found: list[Part], limit: int) -> None:
    for part in found:
        assert read(part.html) == part.plain
        assert utf16(part.html) <= limit
        assert part.plain.strip()
        outside = re.sub(r"<pre>.*?</pre>", "x", part.html, flags=re.DOTALL)
        shown = re.sub(r"<[^>]*>", "", outside)
        assert shown == shown.strip()


def ink(found: list[Part]) -> str:
    """All that is to be seen, in order, however it is parted."""
    return re.sub(r"[\s\u200b]", "", "".join(part.plain for part in found))


def html_of(markdown: str) -> str:
    [part] = render_parts(markdown)
    assert read(part.html) == part.plain
    return part.html


@given(texts, limits)
@settings(max_examples=400)
def test_whatever_is_written_every_part_can_be_sent_and_no_word_is_lost_between_them(text: str, limit: int) -> None:
    found = render_parts(text, limit=limit)
    check(found, limit)
    assert ink_of_seen(found) == ink_of_seen(render_parts(text, limit=UNSPLIT))


def ink_of_seen(found: list[Part]) -> str:
    """As `ink`, without what shows nothing: a part of nothing else is not sent."""
    return "".join(sign for sign in ink(found) if unicodedata.category(sign) not in {"Cc", "Cf"})


@given(st.lists(st.sampled_from(BLOCKS), max_size=60).map("".join), limits)
@settings(max_examples=300)
def test_every_word_of_the_source_is_in_the_messages_once_and_in_order(text: str, limit: int) -> None:
    words = re.findall("alpha|beta|gamma|delta", text)
    assert re.findall("alpha|beta|gamma|delta", ink(render_parts(text, limit=limit))) == words


@given(
    st.lists(st.sampled_from(CLUSTERS), min_size=30, max_size=200),
    st.sampled_from([("", ""), ("**", "**"), ("`", "`"), ("```\n", "\n```"), ("> ", ""), ("[", "](http://e.com)")]),
    limits,
)
@settings(max_examples=200)
def test_what_looks_like_one_character_is_never_cut(clusters: list[str], around: tuple[str, str], limit: int) -> None:
    found = render_parts("".join(clusters).join(around), limit=limit)
    check(found, limit)
    whole = re.compile("|".join(sorted(map(re.escape, CLUSTERS), key=len, reverse=True)))
    assert [sign for part in found for sign in whole.findall(part.plain)] == clusters
    assert all(whole.sub("", part.plain) == "" for part in found)


def test_emphasis_links_and_code_are_telegrams() -> None:
    assert html_of("**bold**, *it*, ~~gone~~, ***both*** and `x < y`") == (
        "<b>bold</b>, <i>it</i>, <s>gone</s>, <i><b>both</b></i> and <code>x &lt; y</code>"
    )
    assert html_of('[docs](https://e.com/?a=1&b=2) and <tg://resolve?domain=x>, "as is"') == (
        '<a href="https://e.com/?a=1&amp;b=2">docs</a> and '
        '<a href="tg://resolve?domain=x">tg://resolve?domain=x</a>, "as is"'
    )


def test_a_link_that_leads_nowhere_is_its_text_and_an_image_is_a_link() -> None:
    assert html_of("[press](javascript:alert(1)), [file](/etc/passwd)") == "press, file"
    assert html_of("![a *cat*](https://e.com/cat.png)") == '<a href="https://e.com/cat.png">a cat</a>'
    assert html_of("![](https://e.com/cat.png)") == '<a href="https://e.com/cat.png">https://e.com/cat.png</a>'
    assert html_of("[![logo](https://e.com/l.png)](https://e.com)") == '<a href="https://e.com">logo</a>'


def test_links_with_their_addresses_at_the_end_work_and_other_lines_of_that_shape_stay() -> None:
    text = "See [the page][1] and [note-1].\n\n[1]: https://e.com\n[2]: https://unused.example\n[note-1]: yes"
    assert html_of(text) == (
        'See <a href="https://e.com">the page</a> and [note-1].\n\n[2]: https://unused.example\n[note-1]: yes'
    )


def test_citations_names_and_sums_stay_as_they_are() -> None:
    said = "It opens at 9 [source: note-1], see snake_case_words, 2 * 3 * 4 and item 1. of it.\nSources: a, b"
    assert html_of(said) == said


def test_raw_html_is_text() -> None:
    assert html_of("<b>no</b> <script>x</script>\n\n<div>\n*yes*\n</div>") == (
        "&lt;b&gt;no&lt;/b&gt; &lt;script&gt;x&lt;/script&gt;\n\n&lt;div&gt;\n<i>yes</i>\n&lt;/div&gt;"
    )


def test_headings_are_bold_lines_and_a_newline_stays_one() -> None:
    assert html_of("# Plan **A**\nFirst line\nsecond  \nthird\n## Next\n\n---\nend") == (
        "<b>Plan A</b>\nFirst line\nsecond\nthird\n\n<b>Next</b>\n\n———\nend"
    )


def test_lists_keep_numbers_nesting_and_distance() -> None:
    text = "Do:\n\n3. mix\n4. bake\n   - low\n     heat\n   - [x] done\n\n1) a\n\n2) b\n\n-\n- last"
    assert html_of(text) == ("Do:\n\n3. mix\n4. bake\n   • low\n     heat\n   • [x] done\n\n1) a\n\n2) b\n\n•\n• last")
    assert html_of("0. zero\n0. one") == "0. zero\n1. one"


def test_code_keeps_its_language_and_takes_no_other_formatting() -> None:
    assert html_of("```python title=x\nif a < b:\n    go()\n```") == (
        '<pre><code class="language-python">if a &lt; b:\n    go()</code></pre>'
    )
    assert html_of("# Use `run`\n**bold `code` bold**") == (
        "<b>Use </b><code>run</code>\n<b>bold </b><code>code</code><b> bold</b>"
    )
    assert html_of("[`open`](https://e.com)") == '<a href="https://e.com">open</a>'
    assert html_of("- ```\n  a\n  ```\n- b") == "•\n<pre>a</pre>\n• b"


def test_quotes_within_quotes_are_one_quote() -> None:
    assert html_of("> a\n>\n> > **b**\n> - c\n\n> d") == (
        "<blockquote>a\n\n<b>b</b>\n• c</blockquote>\n\n<blockquote>d</blockquote>"
    )


def test_a_table_is_aligned_as_it_is_seen_and_keeps_cells_that_its_head_has_no_column_for() -> None:
    assert html_of("| Name | Qty |\n|:--|--:|\n| **漢字** | 5 |\n| é & `c` | 12345 |\n| a | b | c |") == (
        "<pre>Name  |   Qty\n------+-------+--\n漢字  |     5\né &amp; c | 12345\na     |     b | c</pre>"
    )


@every_case("nothing", ["", " \n\t", "> ", "#", "```\n\n```", "[](https://e.com)", "&nbsp;", "\u200b \u2060", "\x00"])
def test_what_shows_nothing_is_no_message(nothing: str) -> None:
    assert render_parts(nothing) == []


def test_half_a_character_does_not_stop_the_rest() -> None:
    assert [part.plain for part in render_parts("a \ud83d b \ud83d\ude00")] == ["a \ufffd b 😀"]


def test_a_paragraph_that_fits_is_not_torn_and_a_heading_goes_with_its_text() -> None:
    first, second = "First. " * 10, "Second thing. " * 5
    found = render_parts(f"{first}\n\n# Title\n{second}\n\nEnd.", limit=100)
    assert [part.plain for part in found] == [first.strip(), f"Title\n{second.strip()}\n\nEnd."]


def test_a_long_paragraph_is_cut_at_lines_then_sentences_then_spaces() -> None:
    assert [part.plain for part in render_parts("a" * 40 + " b.\n" + "c" * 40, limit=64)] == [
        "a" * 40 + " b.",
        "c" * 40,
    ]
    assert [part.plain for part in render_parts("One is here. Two is there " + "c" * 50, limit=64)] == [
        "One is here.",
        "Two is there " + "c" * 50,
    ]
    assert [part.plain for part in render_parts("word " * 20, limit=64)] == [
        ("word " * 13).strip(),
        ("word " * 7).strip(),
    ]
    assert [part.plain for part in render_parts("x" * 150, limit=64)] == ["x" * 64, "x" * 64, "x" * 22]


def test_formatting_goes_on_in_the_next_part() -> None:
    found = render_parts("[" + "**bold** word " * 10 + "](https://e.com)", limit=100)
    check(found, 100)
    assert len(found) > 2
    assert all(part.html.startswith('<a href="https://e.com">') and part.html.endswith("</a>") for part in found)


def test_a_long_code_block_stays_code_in_its_language_with_its_indents() -> None:
    lines = [f"    step({number})" for number in range(30)]
    found = render_parts("Look:\n```python\ndef f():\n" + "\n".join(lines) + "\n```\nDone.", limit=200)
    check(found, 200)
    assert all('<pre><code class="language-python">' in part.html for part in found[1:])
    assert found[2].plain.startswith("    step(")
    assert "\n".join(part.plain for part in found) == "\n".join(["Look:", "def f():", *lines, "Done."])


def test_an_address_too_long_for_a_message_is_dropped_and_a_long_one_that_fits_is_not() -> None:
    assert [part.html for part in render_parts(f"[here](https://e.com/{'x' * 5000})")] == ["here"]
    assert html_of(f"[here](https://e.com/{'x' * 3000})").endswith(">here</a>")
    assert [part.html for part in render_parts(f"[{'word ' * 300}](https://e.com/{'x' * 3000})")] == [
        ("word " * 300).strip()
    ]


def test_escapes_and_wide_characters_count_as_they_are_sent() -> None:
    for sign in ("&", "<", "😀"):
        found = render_parts(sign * 5000)
        check(found, 4096)
        assert "".join(part.plain for part in found) == sign * 5000
        assert all(utf16(part.html) > 4090 for part in found[:-1])


@every_case(
    "hostile",
    [
        *(
            "[",
            "![",
            "*",
            "a*",
            "`",
            "> ",
            "- ",
            "1. ",
            "<",
            "&",
            "a\n",
            "a\n\n",
            "- a\n",
            "[a](",
            "~~a ",
            "|a\n",
            "[a\n",
        ),
        *("*a **b ", "![a](b)", "[x]: http://e.com/\n", "`" * 7 + " ", "> - ", "\n", " ", "e\u0301", "\u0301", "👍🏽"),
    ],
)
@every_case("size", [59_990, 300_000])
def test_hostile_text_is_formatted_in_little_time(hostile: str, size: int) -> None:
    began = time.process_time()
    found = render_parts(hostile * (size // len(hostile)))
    assert time.process_time() - began < 10  # about one second where nothing else runs
    assert all(utf16(part.html) <= 4096 for part in found)


def test_lists_ten_thousand_deep_and_what_lies_in_them_are_shown() -> None:
    check(found := render_parts("- " * 10_000 + "bottom"), 4096)
    assert ink(found).endswith("bottom")
    stairs = "".join("  " * depth + f"- step{depth}\n" for depth in range(200))
    check(found := render_parts(stairs), 4096)
    assert re.findall(r"step\d+", ink(found)) == [f"step{depth}" for depth in range(200)]


def test_one_link_around_a_long_text_does_not_grow_with_its_parts() -> None:
    found = render_parts("[" + "a *b* " * 5000 + f"](https://e.com/{'x' * 4000})")
    assert sum(len(part.html) for part in found) < 150_000


def test_a_table_of_one_wide_cell_and_many_rows_is_not_padded_out() -> None:
    found = render_parts(f"|{'w' * 3000}|b|\n|-|-|\n" + "x|\n" * 5000)
    check(found, 4096)
    assert sum(len(part.plain) for part in found) < 100_000


@every_case("pattern", ["[é!<", "=)[> ", "\n”", "1. a\n", "**(~~", "[a](http://a.b]*", ":*", "`&_", "|a|\n", "> "])
def test_hostile_markup_takes_hardly_longer_than_ordinary_text(pattern: str) -> None:
    text = "The *quick* fox, in `code` and with a [link](https://example.org/x).\n\nAnother paragraph of the same length.\n"

    def took(source: str) -> float:
        times: list[float] = []
        for _ in range(3):
            began = time.thread_time()
            render_parts((source * 32_000)[:32_000])
            times.append(time.thread_time() - began)
        return min(times)

    assert took(pattern) < 8 * took(text)
