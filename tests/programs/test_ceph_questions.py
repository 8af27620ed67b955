"""Several questions to one `ceph` process, as the shell of the head runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Dict, Sequence

import pytest

from cbt_plugins.cluster.ceph import Ceph, CephError, Reply
from cbt_plugins.cluster.remote import Result

#: says what it is asked, by its words or line by line; `wrapper` keeps its input to itself, as `cephadm shell` does
PROGRAM = """\
#!/bin/sh
echo >> {calls}
words=
while [ $# != 0 ]; do
  case $1 in -c | -f | --connect-timeout) shift 2 ;; *) words="$words $1"; shift ;; esac
done
answer() {{
  case $* in
    refused) echo "Error EINVAL: invalid command" >&2; return 22 ;;
    *) printf '\\n{{"asked":"%s"}}\\n' "$*" ;;
  esac
}}
[ -z "$words" ] || {{ answer $words; exit; }}
[ {wrapper} = no ] || exit 0
while read -r line; do answer $line; done
"""


class Head:
    def run(self, nodes: Sequence[str], command: str, **_: Any) -> Dict[str, Result]:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        return dict.fromkeys(nodes, Result(done.stdout, done.stderr, done.returncode))


def made(folder: Path, wrapper: str) -> Ceph:
    program = folder / "ceph"
    program.write_text(PROGRAM.format(calls=folder / "calls", wrapper=wrapper))
    program.chmod(0o755)
    head: Any = Head()
    return Ceph(head, {"head": "node0", "ceph_cmd": str(program)})


@pytest.mark.parametrize(("wrapper", "calls"), [("no", 1), ("yes", 4)])
def test_all_replies_are_of_one_process_where_it_reads_its_input(tmp_path: Path, wrapper: str, calls: int) -> None:
    ceph = made(tmp_path, wrapper)
    assert ceph.json_all(("status", "osd dump", "df detail")) == [
        {"asked": "status"},
        {"asked": "osd dump"},
        {"asked": "df detail"},
    ]
    assert len((tmp_path / "calls").read_text()) == calls


@pytest.mark.parametrize("wrapper", ["no", "yes"])
def test_what_is_refused_is_told_in_cephs_words(tmp_path: Path, wrapper: str) -> None:
    ceph = made(tmp_path, wrapper)
    with pytest.raises(CephError, match="gave 2 of 3 replies: Error EINVAL: invalid command"):
        ceph.json_all(("status", "refused", "df"))
    answers, replies = ceph.ask_all(("status",), 30.0, alone=("refused",))  # it may fail
    assert answers == [{"asked": "status"}] and replies == [Reply("Error EINVAL: invalid command", 22)]
