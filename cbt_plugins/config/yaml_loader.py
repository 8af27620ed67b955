"""YAML text -> nodes and values, as PyYAML's safe loader makes them; what no CBT file needs is refused at once."""

from __future__ import annotations

import itertools
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

import yaml

#: bytes of a file, values with all aliases followed, elements of a list, levels of nesting: more would cost minutes
MOST_BYTES, MOST_VALUES, MOST_ELEMENTS, DEEPEST = 1 << 17, 100_000, 5000, 50
#: whole numbers from here on are typing errors; some interpreters take minutes for those of many digits
_LARGEST = 1 << 64
_OCTAL = re.compile(r"[-+]?0[0-7_]+")
_MERGE = "tag:yaml.org,2002:merge"

#: what PyYAML says -> our words; the first that is found in its message
_WORDS: Mapping[str, str] = {
    "found another document": "a second document begins here, and CBT reads one: put it into a file of its own",
    "character '\\t'": "a tab: YAML is indented by spaces only",
    "mapping values are not allowed": "a colon at a wrong place: check the indentation, and quote a value with ': '",
    "while scanning an alias": "an alias (*name) without a name: quote a value that begins with *",
    "found undefined alias": "no anchor of this name stands before this alias",
    "could not determine a constructor": "unknown tag, or a lone '=': remove the tag, or quote the value",
    "found unhashable key": "a key must be text, not a mapping or a list; between braces quote what has a brace",
    "expected ',' or ']'": "a comma or ] is missing before this",
    "expected ',' or '}'": "a comma or } is missing before this; quote a value that has a comma or a brace",
    "expected <block end>": "this fits neither the line before nor its indentation",
    "could not find expected ':'": "a colon is missing: write key: value",
}


class NotTaken(yaml.MarkedYAMLError):
    """YAML that the safe loader would take, at great cost or as something else than what was meant."""

    def __init__(self, text: str, mark: Any) -> None:
        super().__init__(None, None, text, mark)


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader; values that it can resolve but not convert (2023-13-45) have a place too."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        #: id of a list or mapping -> (values in it, levels in it), aliases followed
        self._extent: Dict[int, Tuple[int, int]] = {}
        self._open: List[Optional[str]] = []  # anchors of what is being composed

    def compose_node(self, parent: Optional[yaml.Node], index: int) -> Optional[yaml.Node]:
        """Return the next node; raises NotTaken for one that is in itself, too large or too deep."""
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) and event.anchor in self._open:
            text = f"*{event.anchor} stands inside of &{event.anchor}: it would contain itself"
            raise NotTaken(text, event.start_mark)
        if len(self._open) >= DEEPEST:
            raise NotTaken(f"nested too deeply: {DEEPEST} levels are the limit", event.start_mark)
        self._open.append(None if isinstance(event, yaml.AliasEvent) else event.anchor)
        node = super().compose_node(parent, index)
        self._open.pop()
        if isinstance(node, yaml.CollectionNode) and id(node) not in self._extent:
            self._extent[id(node)] = self._measure(node)
        return node

    def _measure(self, node: yaml.CollectionNode) -> Tuple[int, int]:
        pairs = isinstance(node, yaml.MappingNode)
        inner = itertools.chain.from_iterable(node.value) if pairs else node.value
        extents = [self._extent.get(id(child), (1, 1)) for child in inner]
        values, levels = 1 + sum(many for many, _ in extents), 1 + max((deep for _, deep in extents), default=0)
        if values > MOST_VALUES:
            text = f"more than {MOST_VALUES} values, with its aliases followed: shorten it, or split the file"
            raise NotTaken(text, node.start_mark)
        if not pairs and len(node.value) > MOST_ELEMENTS:
            raise NotTaken(f"a list of {len(node.value)} elements: {MOST_ELEMENTS} are the limit", node.start_mark)
        if levels > DEEPEST:
            raise NotTaken(f"nested too deeply: {DEEPEST} levels are the limit, aliases followed", node.start_mark)
        return values, levels

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node; raises a marked error, whatever its text makes a conversion raise."""
        if not isinstance(node, yaml.ScalarNode):
            return super().construct_object(node, deep)
        kind = node.tag.rpartition(":")[2]
        if kind in ("int", "float") and ":" in node.value:
            text = "to YAML this is a number in base 60: quote it, or write a duration as 12h30m"
            raise NotTaken(text, node.start_mark)
        if kind == "int" and _OCTAL.fullmatch(node.value):
            text = f"to YAML this is the octal number {int(node.value, 8)}: write it without the leading 0, or quote it"
            raise NotTaken(text, node.start_mark)
        try:
            value = super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError, TypeError, ArithmeticError):
            text = f"this cannot be read as a value of the YAML type {kind!r}; quote it when it is text"
            if kind == "timestamp":
                text = "no such date or time; quote it when it is text"
            raise NotTaken(f"not YAML: {text}", node.start_mark) from None
        if isinstance(value, int) and abs(value) >= _LARGEST:
            raise NotTaken("a number of more than 64 bits; quote it when it is text", node.start_mark)
        return value


def is_merge(node: yaml.Node) -> bool:
    """Return whether a key is YAML's `<<`."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _MERGE


def words_of(error: yaml.MarkedYAMLError) -> Tuple[Optional[yaml.Mark], str]:
    """Return the place of PyYAML's error, and its meaning."""
    yaml_text = ", ".join(part for part in (error.context, error.problem) if part)
    if isinstance(error, NotTaken):
        return error.problem_mark, yaml_text
    if "while scanning a quoted scalar" in yaml_text and "unexpected end of stream" in yaml_text:
        return error.context_mark, "not YAML: this quote is not closed"
    text = next((own_text for fragment, own_text in _WORDS.items() if fragment in yaml_text), yaml_text)
    return error.problem_mark or error.context_mark, f"not YAML: {text}"
