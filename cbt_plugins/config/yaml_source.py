"""A YAML file as data, with the line and column of every key and value."""

from __future__ import annotations

import re
from pathlib import Path as FilePath
from typing import Any, Dict, Iterator, List, Optional, Tuple

import yaml

from cbt_plugins.config.errors import ConfigError, ErrorAt, Path
from cbt_plugins.config.yaml_loader import MOST_BYTES, Loader, is_merge, words_of
from cbt_plugins.formatting import size

#: values of these keys are never shown or archived
_SECRET_KEYS = frozenset({"access_key", "secret_key", "password", "session_token"})
#: a key of a secret of Kubernetes: secret:[NAMESPACE/]NAME/KEY
KUBERNETES_KEY = re.compile(r"secret:(?:[a-z0-9-]+/)?[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._-]+")
_ENTRIES = Dict[Any, Tuple[yaml.Node, yaml.Node]]


class YamlSource:
    """One YAML document; `data` equals what `yaml.safe_load` makes of the same text."""

    def __init__(self, text: bytes, file: str) -> None:
        """Read `text`; raises ConfigError when it is no YAML that CBT could load."""
        self.file = file
        if len(text) > MOST_BYTES:
            raise ConfigError([ErrorAt((), f"larger than {size(MOST_BYTES)}, the limit of a file: split it", file)])
        try:
            self._loader = Loader(text.decode("utf-8"))
            self._root: Optional[yaml.Node] = self._loader.get_single_node()
            #: duplicate keys: no error for YAML, where the last one silently wins
            self.duplicates: Tuple[ErrorAt, ...] = tuple(self._find_duplicates())
            self.data: Any = self._loader.construct_document(self._root) if self._root else None
        except UnicodeDecodeError as error:
            hint = "UTF-16" if text[:2] in (b"\xff\xfe", b"\xfe\xff") else f"byte {text[error.start]:#04x}"
            raise ConfigError([self._unreadable(text[: error.start].decode(), f"not UTF-8 ({hint})")]) from None
        except yaml.reader.ReaderError as error:
            before = text.decode("utf-8")[: error.position]
            raise ConfigError([self._unreadable(before, f"U+{error.character:04X} is not allowed")]) from None
        except yaml.MarkedYAMLError as error:
            mark, words = words_of(error)
            raise ConfigError([self._at(mark, (), words)]) from None
        self._entries: Dict[int, _ENTRIES] = {}

    def error_at(self, path: Path, text: str, of_key: bool = False) -> ErrorAt:
        """Return the error at the value (or key) of `path`; at its nearest ancestor when it is not there."""
        return self._at(self._mark(path, of_key), path, text)

    def place(self, path: Path, of_key: bool = False) -> Tuple[int, int]:
        """Return (line, column), both from 1, of the value (or of the key) at `path`."""
        mark = self._mark(path, of_key)
        return (mark.line + 1, mark.column + 1) if mark else (1, 1)

    def _at(self, mark: Optional[yaml.Mark], path: Path, text: str) -> ErrorAt:
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return ErrorAt(path, text, self.file, line, column)

    def _mark(self, path: Path, of_key: bool) -> Optional[yaml.Mark]:
        node = self._root
        mark = node.start_mark if node else None
        for depth, part in enumerate(path):
            if isinstance(node, yaml.MappingNode):
                key_node, node = self._entries_of(node).get(part, (None, None))
                # A missing value (`key:`) has the place of whatever follows; its key says more.
                absent = isinstance(node, yaml.ScalarNode) and node.start_mark.index == node.end_mark.index
                shown = key_node if absent or (of_key and depth == len(path) - 1) else node
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                shown = node = node.value[part]
            else:
                return mark
            if shown is None:
                return mark
            mark = shown.start_mark
        return mark

    def _entries_of(self, node: yaml.MappingNode) -> _ENTRIES:
        # construct_document() has put merged keys (<<) into node.value by now, before the mapping's own.
        if id(node) not in self._entries:
            self._entries[id(node)] = {self._key(key): (key, value) for key, value in node.value}
        return self._entries[id(node)]

    def _key(self, node: yaml.Node) -> Any:
        return self._loader.construct_object(node, deep=True)

    def _find_duplicates(self) -> Iterator[ErrorAt]:
        for node, path in _walk(self._root):
            seen: Dict[Any, yaml.Node] = {}
            for key_node, _ in node.value:
                if not isinstance(key_node, yaml.ScalarNode) or is_merge(key_node):
                    continue
                key = self._key(key_node)
                if key in seen:
                    first = seen[key].start_mark.line + 1
                    text = f"duplicate key (first in line {first}); YAML would silently take the last: keep one"
                    yield self._at(key_node.start_mark, (*path, key), text)
                seen.setdefault(key, key_node)

    def _unreadable(self, before: str, text: str) -> ErrorAt:
        """Return the error at the character behind `before`."""
        lines = before.split("\n")
        return ErrorAt((), f"not YAML: {text}; save the file as UTF-8 text", self.file, len(lines), len(lines[-1]) + 1)


def read(path: FilePath) -> YamlSource:
    """Return the file's source; raises ConfigError when it cannot be read."""
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise ConfigError([ErrorAt((), f"cannot be read: {why}", str(path))]) from None
    return YamlSource(text, str(path))


#: in place of a secret
MASK = "***"


def mask_secrets(text: str) -> str:
    """Return YAML text with the values of secret keys masked; ${NAME}, file:/path and secret:NAME/KEY stay."""
    spans: List[Tuple[int, int]] = []
    for node, _ in _walk(yaml.compose(text, Loader=yaml.SafeLoader)):
        for key, value in node.value:
            if not (isinstance(key, yaml.ScalarNode) and key.value in _SECRET_KEYS):
                continue
            if not (isinstance(value, yaml.ScalarNode) and _is_reference(value.value)):
                spans.append((value.start_mark.index, value.end_mark.index))
    for start, end in sorted(spans, reverse=True):
        tail = "\n" if text[start:end].endswith("\n") else ""
        text = text[:start] + f"'{MASK}'" + tail + text[end:]
    return text


def _is_reference(value: str) -> bool:
    return value.startswith(("${", "file:")) or KUBERNETES_KEY.fullmatch(value) is not None


def masked_text(path: FilePath) -> Optional[str]:
    """Return the text of a YAML file with the values of secret keys masked; None when it cannot be read."""
    try:
        return mask_secrets(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None


def _walk(root: Optional[yaml.Node]) -> Iterator[Tuple[yaml.MappingNode, Path]]:
    """Yield every mapping once, however many aliases lead to it."""
    todo: List[Tuple[Optional[yaml.Node], Path]] = [(root, ())]
    seen = set()
    while todo:
        node, path = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield node, path
            todo += [
                (value, (*path, key.value if isinstance(key.value, str) else "?"))
                for key, value in node.value
            ]
        elif isinstance(node, yaml.SequenceNode):
            todo += [(value, (*path, index)) for index, value in enumerate(node.value)]
