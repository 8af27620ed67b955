"""CBT files for tests, and the faults that are found in them; § marks where a fault must point."""

from __future__ import annotations

from pathlib import Path
from typing import List, Mapping, Tuple

from cbt_plugins.cbt.checkout import MARKS
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load_file

CLUSTER = """\
cluster:
  user: root
  head: node0
  clients: [client1, client2]
  osds: [node1]
  mons: [node0]
  iterations: 1
"""
S3 = "    s3: {urls: ['http://rgw1:7480'], user: cbt}\n"
RGWTEST = "benchmarks:\n  rgwtest:\n" + S3
WARP = "benchmarks:\n  warp:\n" + S3
CYCLE = "    cycle: {phases: [{fill: {objects: 100}}, {hybrid: {duration: 60s}}]}\n"


def stand_in_checkout(folder: Path, files: Mapping[str, str] = {}) -> Path:
    """Make a folder that passes for a CBT checkout, with these files: plans need no real one."""
    for name, text in {**dict.fromkeys(MARKS, ""), **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def errors_in(tmp_path: Path, text: str) -> List[str]:
    file = tmp_path / "f.yaml"
    file.write_text(text, encoding="utf-8")
    try:
        load_file(file)
    except ConfigError as error:
        return [line.replace(f"{tmp_path}/", "") for line in str(error).splitlines()]
    return []


def marked(text: str) -> Tuple[str, List[str]]:
    """The text without its marks, and "f.yaml:line:column: " of each mark."""
    places = []
    while "§" in text:
        before, _, after = text.partition("§")
        places.append(f"f.yaml:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}: ")
        text = before + after
    return text, places
