"""Read and write an agent as a YAML file: no aliases, no duplicate keys, only plain values, at most 256 kB."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any, cast

import yaml
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

from rapport.agents.document import AgentDocument, read_document
from rapport.domain.errors import InvalidInput

MAX_FILE_BYTES = 256 * 1024
MAX_DEPTH = 12
"""How deeply values may be nested. An agent needs 6 levels."""
HEADING = "# An agent of Rapport (docs/agents.md). A field that is not here has its default.\n"
_WIDTH = 100
_ONLY_ESCAPED = re.compile(r"[^\n -~\xa0-\u2027\u202a-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML reads as another one, as the end of a line, or not at all."""
_NOT_IN_BLOCKS = re.compile(r"^\s| \n| \Z")
"""Texts that a block scalar would change."""

_TAG = "tag:yaml.org,2002:"
# The scalars of YAML's core schema that JSON has too: `no` and `on` are texts, and a whole number has at most 18 digits.
_SCALARS: dict[str, tuple[re.Pattern[str], str]] = {
    f"{_TAG}null": (re.compile(r"(?:~|null|Null|NULL|)\Z"), "~nN\0"),
    f"{_TAG}bool": (re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF"),
    f"{_TAG}int": (re.compile(r"[-+]?[0-9]{1,18}\Z"), "-+0123456789"),
    f"{_TAG}float": (
        re.compile(r"[-+]?(?:[0-9]{1,18}\.[0-9]{0,30}|\.[0-9]{1,18}|[0-9]{1,18}(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?\Z"),
        "-+.0123456789",
    ),
}


def _make_resolvers() -> dict[str | None, list[tuple[str, re.Pattern[str]]]]:
    resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, (pattern, beginnings) in _SCALARS.items():
        for beginning in beginnings:
            resolvers.setdefault("" if beginning == "\0" else beginning, []).append((tag, pattern))
    return resolvers


class _Loader(yaml.SafeLoader):
    """Load plain values; refuse whatever could make a small file large, or mean something else than it shows."""

    yaml_implicit_resolvers = _make_resolvers()
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = cast("Any", self).peek_event()  # PyYAML's stubs leave its type out
        if getattr(event, "anchor", None) is not None:
            raise ConstructorError(None, None, "aliases and anchors (& and *) are not allowed", event.start_mark)
        if self._depth >= MAX_DEPTH:
            raise ConstructorError(None, None, "the values are nested too deeply", event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != f"{_TAG}str":
                raise ConstructorError(None, None, "a field's name must be a plain word", key.start_mark)
            if key.value in names:
                raise ConstructorError(None, None, f"the field `{key.value[:60]}` is there twice", key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _refuse_tag(_loader: _Loader, node: yaml.Node) -> Any:
    raise ConstructorError(None, None, "tags (words after a !) are not allowed", node.start_mark)


def _construct_number(number: Callable[[str], float]) -> Callable[[_Loader, yaml.ScalarNode], float]:
    return lambda _loader, node: number(str(node.value))


_Loader.add_constructor(f"{_TAG}int", _construct_number(int))
_Loader.add_constructor(f"{_TAG}float", _construct_number(float))
for _tag in ("set", "omap", "pairs", "binary", "timestamp"):
    _Loader.add_constructor(f"{_TAG}{_tag}", _refuse_tag)
_Loader.add_constructor(cast("str", None), _refuse_tag)  # every other tag; PyYAML's stubs leave None out


class _Dumper(yaml.SafeDumper):
    """Write texts of several lines as blocks, and quote what any reader could take for another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless  # entries of a list are indented
        super().increase_indent(flow, indentless=False)


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None
    if _ONLY_ESCAPED.search(text):
        style = '"'
    elif "\n" in text:
        style = '"' if _NOT_IN_BLOCKS.search(text) else "|"
    elif len(text) > _WIDTH:
        style = '"' if _NOT_IN_BLOCKS.search(text) or "  " in text else ">"
    return dumper.represent_scalar(f"{_TAG}str", text, style=style)  # pyright: ignore[reportUnknownMemberType]


_Dumper.add_representer(str, _represent_text)
for _name, (_pattern, _beginnings) in _SCALARS.items():
    _Dumper.add_implicit_resolver(_name, _pattern, list(_beginnings.replace("\0", "")))  # pyright: ignore[reportUnknownMemberType]


def parse_yaml(content: bytes | str) -> Any:
    """Return the value of a YAML text; raise InvalidInput with one sentence if there is none, or the text is not allowed."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInput(f"The file is too large: an agent has at most {MAX_FILE_BYTES // 1024} kB.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("The file is not text in UTF-8.") from None
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - _Loader is a SafeLoader
    except ReaderError as error:
        code = error.character if isinstance(error.character, int) else ord(str(error.character))
        raise InvalidInput(f"The file has a character that YAML does not allow: U+{code:04X}.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"Line {mark.line + 1}: " if mark is not None else ""
        problem = error.problem or error.context or "this is not YAML"
        if problem.startswith("but ") and error.context:
            problem = f"{error.context}, {problem}"
        raise InvalidInput(f"{line}{' '.join(problem.split())[:200]}.") from None


def read_agent_file(content: bytes | str) -> AgentDocument:
    """Return the agent of a YAML file; raise InvalidInput with a sentence for each mistake."""
    value = parse_yaml(content)
    if not isinstance(value, dict):
        raise InvalidInput("The file must hold the fields of an agent, such as `name: Chef`.")
    return read_document(cast("dict[str, Any]", value))


def read_setting(setting: str) -> dict[str, Any]:
    """Return the change of `autonomy.enabled=true` as a document with this one field; `field=` restores the default."""
    path, separator, text = setting.partition("=")
    names = path.strip().split(".")
    if not separator or not all(names):
        raise InvalidInput(f"{setting[:80]!r} is not a change: write field=value, such as `autonomy.enabled=true`.")
    value: Any = _read_value(text.strip())
    for name in reversed(names):
        value = {name: value}
    return value


def _read_value(text: str) -> Any:
    """Return a value of the command line: a list, an object, a number, true, false, null, or else the text as it is."""
    if text[:1] in ("[", "{", '"', "'"):
        return parse_yaml(text)
    tags = [tag for tag, (pattern, _) in _SCALARS.items() if pattern.match(text)]
    return parse_yaml(text) if tags else text


def write_agent_file(document: AgentDocument, *, agent_id: str, for_everyone: bool = False) -> str:
    """Return a file that `read_agent_file` reads as the same agent."""
    kept = document.model_dump(mode="json", exclude={"id", "for_everyone"}, exclude_defaults=True)
    fields: dict[str, Any] = {"id": agent_id, "name": document.name, "persona": document.persona}
    if for_everyone:
        fields = {"id": agent_id, "for_everyone": True, **fields}
    ordered: dict[str, Any] = {
        name: kept.get(name, fields.get(name)) for name in _ORDER if name in kept or name in fields
    }
    if prompts := ordered.get("autonomy", {}).get("prompts"):
        ordered["autonomy"]["prompts"] = {name: _shorten_variants(variants) for name, variants in prompts.items()}
    return HEADING + yaml.dump(ordered, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=_WIDTH)


_ORDER = tuple(AgentDocument.model_fields)


def _shorten_variants(variants: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return a single variant as its text, as far as reading it gives the same."""
    only = variants[0]
    return (
        only["text"] if len(variants) == 1 and only.keys() == {"name", "text"} and only["name"] == "own" else variants
    )
