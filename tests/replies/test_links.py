"""Test which addresses of a reply are links: those that people or notes have given (ADR 97)."""

from __future__ import annotations

from rapport.replies.links import MAX_LINKS, find_known_addresses
from tests.support.cases import every_case


@every_case(
    ("reply", "said", "known"),
    [
        ("See https://a.example/x.", "Is https://a.example/x good?", ["https://a.example/x"]),
        ("[here](https://a.example/x)", "(https://a.example/x)", ["https://a.example/x"]),
        ("![](https://a.example/x)", "https://a.example", []),
        ("https://a.example/?q=secret", "https://a.example/", []),
        ("https://a.example", "https://a.example/longer", []),
        ("no address", "https://a.example", []),
        ("https://a.example", "HTTPS is meant: a.example", []),
    ],
)
def test_an_address_is_known_if_it_was_written_as_a_whole(reply: str, said: str, known: list[str]) -> None:
    assert find_known_addresses(reply, ["hello", said]) == known


def test_a_reply_has_a_limited_number_of_links() -> None:
    many = " ".join(f"https://a.example/{number}" for number in range(500))
    assert len(find_known_addresses(many, [many])) == MAX_LINKS
