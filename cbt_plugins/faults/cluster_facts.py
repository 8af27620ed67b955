"""What the cluster says of itself, asked in one go: the basis of targets, steps and blast radius."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.faults.step import FaultError

#: everything that is asked; the names are the keys of a recorded answer
QUESTIONS = (
    "osd dump",
    "osd tree",
    "osd crush rule dump",
    "pg dump pgs_brief",
    "osd df",
    "quorum_status",
    "mon metadata",
    "osd metadata",
    "config get mon mon_osd_min_in_ratio",
    "config dump",
)


@dataclass(frozen=True)
class Facts:
    """Answers as Ceph gave them, by question."""

    answers: Mapping[str, Any]

    @property
    def osds(self) -> Dict[int, Mapping[str, Any]]:
        """number -> its entry of `osd dump`."""
        return {int(o["osd"]): o for o in self.answers["osd dump"]["osds"]}

    @property
    def pools(self) -> List[Mapping[str, Any]]:
        """Entries of `osd dump`."""
        return list(self.answers["osd dump"]["pools"])

    @property
    def flags(self) -> List[str]:
        """Of the OSD map."""
        return list(self.answers["osd dump"]["flags_set"])

    @property
    def tree(self) -> Dict[int, Mapping[str, Any]]:
        """CRUSH id -> node of `osd tree`."""
        return {int(n["id"]): n for n in self.answers["osd tree"]["nodes"]}

    @property
    def pgs(self) -> List[Mapping[str, Any]]:
        """pgid, state, acting."""
        answer = self.answers["pg dump pgs_brief"]
        return list(answer["pg_stats"] if isinstance(answer, dict) else answer)  # a bare list before Nautilus

    @property
    def hosts(self) -> Dict[str, List[int]]:
        """Host name -> its OSDs: what the daemons say of themselves, else the CRUSH tree."""
        said = {int(m["id"]): str(m.get("hostname") or "") for m in self.answers.get("osd metadata") or []}
        hosts: Dict[str, List[int]] = {}
        for node in self.tree.values():
            if node["type"] == "host":
                for osd in node.get("children", []):
                    hosts.setdefault(said.get(osd) or node["name"], []).append(osd)
        return {host: sorted(osds) for host, osds in sorted(hosts.items())}

    def monitors_go_by(self, option: str, default: str) -> str:
        """The value of an option of the monitors in `config dump`; what a ceph.conf has is not seen."""
        rows = self.answers["config dump"]
        values = {r["section"]: str(r["value"]) for r in rows if r["name"] == option and not r.get("mask")}
        return values.get("mon", values.get("global", default))

    def below(self, item: int) -> List[int]:
        """All OSDs under an item of the CRUSH tree."""
        if item >= 0:
            return [item]
        return [osd for child in self.tree[item].get("children", []) for osd in self.below(child)]


@dataclass(frozen=True)
class Said:
    """What a `ceph` of its own printed, errors included. `status` is None when it did not come to its end."""

    text: str
    status: Optional[int]

    @property
    def object(self) -> Optional[Mapping[str, Any]]:
        """The first JSON object in it, None when there is none."""
        for start in re.finditer(r"^\s*(?={)", self.text, re.MULTILINE):
            found = values(self.text[start.end() :])
            if found:
                return dict(found[0])
        return None

    @property
    def last(self) -> str:
        """Its last line of text, or how it ended."""
        ended = "it did not come to its end" if self.status is None else f"exit status {self.status}"
        return next((line.strip() for line in reversed(self.text.splitlines()) if line.strip()), ended)


def ask(ceph: Ceph, questions: Sequence[str] = QUESTIONS, timeout: float = 30.0, alone: Sequence[str] = ()) -> Facts:
    """Ask all of it over one connection. Raises FaultError when there is an answer missing.

    One `ceph` answers many questions in the time of one; one that is a wrapper and passes no input on is called for
    each.
    The answers to `alone` are each what a `ceph` of its own `Said`: it may fail, or not answer at all.
    """
    lines = "".join(f"{q}\\n" for q in questions)
    each = "; ".join(f"{ceph.command} {q} -f json 2>/dev/null" for q in questions)
    extra = "".join(f"; echo '{_MARK}'; {ceph.command} {q} -f json 2>&1; echo \"{_STATUS} $?\"" for q in alone)
    together = f"printf '{lines}' | {ceph.command} -f json 2>/dev/null" if questions else "true"
    for command in (together, each):
        result = ceph.remote.run([ceph.head], command + extra, timeout=timeout, check=False)[ceph.head]
        first, *others = result.stdout.split(_MARK)
        answers = values(first)
        if len(answers) == len(questions):
            said = [_said(text) for text in others] + [Said("", None)] * (len(alone) - len(others))
            return Facts({**dict(zip(questions, answers)), **dict(zip(alone, said))})
    why = result.stderr.strip().splitlines()[-1:] or [f"exit status {result.status}"]
    raise FaultError(f"ceph on {ceph.head} answered {len(answers)} of {len(questions)} questions: {why[0]}")


#: stand before the answer of a `ceph` of its own, and behind it
_MARK, _STATUS = "cbt-plugins: next answer", "cbt-plugins: status"


def _said(text: str) -> Said:
    said, _, status = text.partition(_STATUS)
    return Said(said.strip(), int(status) if status.strip().isdigit() else None)


def values(text: str) -> List[Any]:
    """The JSON values that stand one after the other in a text."""
    decoder, at = json.JSONDecoder(), 0
    found: List[Any] = []
    while True:
        start = re.compile(r"\S").search(text, at)
        if start is None:
            return found
        try:
            value, at = decoder.raw_decode(text, start.start())
        except ValueError:
            return found
        found.append(value)
