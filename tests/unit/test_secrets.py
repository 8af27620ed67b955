"""Where S3 keys come from."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any, Dict, Sequence, cast

import pytest

from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.cluster.remote import Result
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.plan import S3
from cbt_plugins.run.endpoints import authority_of
from cbt_plugins.run.s3_key_sources import s3_keys

NO_CLUSTER = cast(Any, None)


def test_from_the_environment_and_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_ACCESS", "AK")
    (tmp_path / "secret").write_text("SK\n")
    s3 = S3(("http://a",), access_key_source="env:MY_ACCESS", secret_key_source=f"file:{tmp_path}/secret")
    assert s3_keys(s3, NO_CLUSTER) == S3Keys("AK", "SK")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("env:NOT_SET_ANYWHERE", "environment variable NOT_SET_ANYWHERE is not set"),
        ("file:/no/such/file", "/no/such/file: No such file"),
        ("file:/dev/null", "/dev/null: is not a regular file$"),
    ],
)
def test_what_is_missing_is_named(source: str, said: str) -> None:
    with pytest.raises(CephError, match=said):
        s3_keys(S3(("http://a",), access_key_source=source, secret_key_source=source), NO_CLUSTER)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe, empty, binary = (tmp_path / name for name in ("pipe", "empty", "binary"))
    os.mkfifo(pipe)
    empty.touch()
    binary.write_bytes(b"\xff\xfe")
    for path, said in ((pipe, ": is not a regular file$"), (empty, " is empty$"), (binary, ": is not text$")):
        with pytest.raises(CephError, match=rf"^s3\.access_key: {path}{said}"):
            s3_keys(S3(("http://a",), access_key_source=f"file:{path}", secret_key_source="env:HOME"), NO_CLUSTER)
    with pytest.raises(CephError, match=rf"^s3\.ca_file: {pipe}: is not a regular file$"):
        authority_of(S3(("https://a",), ca_file=str(pipe)))


def test_from_an_rgw_user(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [
        {"user": "with:read", "access_key": "A", "secret_key": "S", "active": True},
        {"user": "with", "access_key": "B", "secret_key": "S", "active": False},
    ]
    own = {"user": "with", "access_key": "AK", "secret_key": "SK"}  # before Squid without "active"
    answers = {"with": {"keys": [*others, own]}, "old": {"keys": [{"access_key": "AK", "secret_key": "SK"}]}}
    answers["without"] = {"keys": [{**others[0], "user": "without:read"}]}
    ceph = Ceph(NO_CLUSTER, {"head": "node0"})
    monkeypatch.setattr(ceph, "admin_json", lambda command: answers[command.rsplit("=", 1)[1]])
    assert s3_keys(S3(("http://a",), user="with"), ceph) == S3Keys("AK", "SK")
    assert s3_keys(S3(("http://a",), user="old"), ceph) == S3Keys("AK", "SK")
    with pytest.raises(CephError, match="no active S3 keys of its own: run radosgw-admin key create"):
        s3_keys(S3(("http://a",), user="without"), ceph)


def test_keys_are_never_printed() -> None:
    assert "SK" not in repr(S3Keys("AK", "SK")) and "AK" not in f"{S3Keys('AK', 'SK')}"


def test_a_snapshot_of_the_cluster_has_no_password(tmp_path: Path) -> None:
    """Options of the gateways and of the dashboard may hold some."""
    hidden = ("rgw_keystone_admin_password", "mgr/dashboard/RGW_API_SECRET_KEY", "rgw_crypt_default_encryption_key")
    shown = ("rgw_keystone_token_cache_size", "mgr/dashboard/server_port", "rgw_keystone_admin_password_path")
    rows = [{"section": "mgr", "name": name, "value": f"value of {name}"} for name in (*hidden, *shown)]
    conf = "[global]\nkeyring = /etc/ceph/keyring\n[client.a]\n  key = AQBhunter2==\nrgw ldap secret=/etc/hunter2\n"

    class Head:
        def run(self, nodes: Sequence[str], command: str, **_: Any) -> Dict[str, Result]:
            replies = {"config dump": rows, "osd dump": {"erasure_code_profiles": {"default": {"k": "2"}}}}
            text = conf
            if not command.startswith("cat "):
                _, _, *words = shlex.split(command)
                text = "".join(f"\n{json.dumps(replies.get(asked, []))}\n" for asked in words[: words.index("|")])
            return dict.fromkeys(nodes, Result(text, "", 0))

    umask = os.umask(0o002)
    Ceph(Head(), {"head": "node0", "mons": ["node0"]}).snapshot(tmp_path)  # type: ignore[arg-type]
    os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}
    assert json.loads((tmp_path / "ec_profiles.json").read_text()) == {"default": {"k": "2"}}
    dump = (tmp_path / "config_dump.json").read_text()
    assert [f'"value of {name}"' in dump for name in (*hidden, *shown)] == [False] * 3 + [True] * 3
    assert (tmp_path / "ceph.conf").read_text() == (
        "[global]\nkeyring = /etc/ceph/keyring\n[client.a]\n  key = ***\nrgw ldap secret= ***\n"
    )
