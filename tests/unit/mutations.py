"""Seeded mutations of a YAML file: what haste, an editor, a merge or malice makes of it."""

from __future__ import annotations

import random
import re
from typing import Callable, Dict, List

#: values that somebody may write, or that a program makes
VALUES = (
    *("", "~", "null", "true", "no", "0", "-1", "1.5", "1e300", "1.0e+300", ".inf", "-.inf", ".nan", "0x1F", "1_000"),
    *("12:30:45", "12:30:45.5", "2023-13-45", "2001-01-01", "2001-12-14t21:59:43.10-99:99", "9" * 5000, "9" * 30),
    *("[]", "{}", "[[[]]]", "[{}]", "{a: {b: {c: 1}}}", "[1, 2, x]", "[~]", "{1: 2}", "{~: 1}", "{1.5: {true: x}}"),
    *("{[1]: 2}", "? {a: b}", "=", "<<", "{<<: 5}", "{<<: {a: 1}}", "&a [*a]", "*no", "&x y", "!!int hybrid"),
    *("!!float x", "!!bool maybe", "!!binary aGk=", "!!binary é", "!!set {a, b}", "!!omap [a: 1]", "!!pairs [a: 1]"),
    *("!!timestamp x", "!!null x", "!!str [a]", "!!str {=: x}", "!!map [a]", "!!seq {a: 1}", "!local x"),
    *("!!python/object/apply:os.system [id]", '"\\e[31mred"', '"\\u202e"', '"\\ud800"', '"a\\nb"', "é", "\U00010348"),
    *("-oProxyCommand=x", "'; reboot #'", "$(reboot)", "`reboot`", "../../etc/passwd", "%s%n", "{x}", "{}", "a b"),
    *("4K", "4KiB", "-4KiB", "99999999999999999999PiB", "60", "60s", "-5m", "99999999999999999999d", "30%", "101%"),
    *("5M/day", "99999999999999999999G/s", "u(1,N)", "u(N,1)", "http://a:99999", "http://[::1]:80", "x" * 2000),
    *("u", "[u, u]", "[*]", "|", ">", "'", '"', "{", "[", "]", "}", ",", ":", "- x", "# x", "@", "%", "\t", "---"),
)
_SCALAR = re.compile(r"(?<=[:\[,{-] )[^\s\[\]{},:#'\"][^\[\]{},#\n]*")
_KEY = re.compile(r"[A-Za-z_]+(?=:)")


def mutated(text: str, seed: int) -> bytes:
    """Return the file after one to three mutations that the seed chooses."""
    choice = random.Random(seed)
    for _ in range(choice.choice((1, 1, 1, 2, 3))):
        text = choice.choice(list(_WAYS.values()))(text, choice)
    data = text.encode("utf-8", "surrogatepass")
    if choice.random() < 0.02:
        return text.encode("utf-16", "replace")
    if choice.random() < 0.02:
        place = choice.randrange(len(data) + 1)
        return data[:place] + choice.randbytes(3) + data[place:]
    return data


def _value(text: str, choice: random.Random) -> str:
    return _replaced(text, choice, _SCALAR, lambda _: choice.choice(VALUES))


def _key(text: str, choice: random.Random) -> str:
    return _replaced(text, choice, _KEY, lambda key: _misspelt(key, choice))


def _key_is_value(text: str, choice: random.Random) -> str:
    return _replaced(text, choice, _KEY, lambda _: choice.choice(VALUES))


def _misspelt(word: str, choice: random.Random) -> str:
    place = choice.randrange(len(word))
    kinds = (
        word[:place] + word[place + 1 :],
        word[:place] + word[place] * 2 + word[place + 1 :],
        word[:place] + word[place : place + 2][::-1] + word[place + 2 :],
        word.upper(),
        word.replace("_", "-"),
        choice.choice(("x", "benchmarks", "cluster", "cycle", "events", "scale")),
    )
    return choice.choice(kinds)


def _replaced(text: str, choice: random.Random, what: re.Pattern[str], by: Callable[[str], str]) -> str:
    found = list(what.finditer(text))
    if not found:
        return text
    one = choice.choice(found)
    return text[: one.start()] + by(one.group()) + text[one.end() :]


def _lines(text: str, choice: random.Random) -> str:
    lines = text.splitlines(keepends=True) or ["\n"]
    place, other = choice.randrange(len(lines)), choice.randrange(len(lines))
    kind = choice.randrange(5)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines.insert(other, lines[place])
    elif kind == 2:
        lines[place], lines[other] = lines[other], lines[place]
    elif kind == 3:
        lines[place] = choice.choice(("  ", "\t", " ")) + lines[place]
    else:
        lines[place] = lines[place][choice.randrange(1, 4) :]
    return "".join(lines)


def _characters(text: str, choice: random.Random) -> str:
    place = choice.randrange(len(text) + 1)
    kind = choice.randrange(3)
    if kind == 0:
        return text[:place] + choice.choice("\x00\x07\x1b\u202e\ufeff\u2028{}[],:'\"&*!|>%@`#-?\t \n~<=") + text[place:]
    if kind == 1:
        return text[:place] + text[place + choice.randrange(1, 6) :]
    return text[:place]


def _more(text: str, choice: random.Random) -> str:
    sections: List[str] = [
        "monitoring_profiles: {recovery: {interval: 0}, faults: {file: /nonexistent}}\n",
        "montioring_profiles: {}\n",
        "benchmarks: {}\n",
        "events: []\n",
        "---\na: 1\n",
        "base: &b {a: 1}\nuse: {<<: *b}\n",
        "common: {pdsh_ssh_args: \"'\"}\n",
        "client_endpoints: [1]\n",
        "0: 1\n",
        "~: {}\n",
    ]
    return text.rstrip("\n") + "\n" + choice.choice(sections)


_WAYS: Dict[str, Callable[[str, random.Random], str]] = {
    "value": _value,
    "value too": _value,
    "value as well": _value,
    "key": _key,
    "key too": _key,
    "key is a value": _key_is_value,
    "lines": _lines,
    "characters": _characters,
    "more": _more,
}
