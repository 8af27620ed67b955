"""Where S3 keys come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from cbt_plugins.cluster.ceph import Ceph, CephError, S3Keys
from cbt_plugins.plan import S3
from cbt_plugins.run.preflight import s3_keys

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
        ("file:/dev/null", "/dev/null is empty"),
    ],
)
def test_what_is_missing_is_named(source: str, said: str) -> None:
    with pytest.raises(CephError, match=said):
        s3_keys(S3(("http://a",), access_key_source=source, secret_key_source=source), NO_CLUSTER)


def test_from_an_rgw_user(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"with": {"keys": [{"access_key": "AK", "secret_key": "SK"}]}, "without": {"keys": []}}
    ceph = Ceph(NO_CLUSTER, {"head": "node0"})
    monkeypatch.setattr(ceph, "_admin_json", lambda command: answers[command.rsplit("=", 1)[1]])
    assert s3_keys(S3(("http://a",), user="with"), ceph) == S3Keys("AK", "SK")
    with pytest.raises(CephError, match="no S3 keys: run radosgw-admin key create"):
        s3_keys(S3(("http://a",), user="without"), ceph)


def test_keys_are_never_printed() -> None:
    assert "SK" not in repr(S3Keys("AK", "SK")) and "AK" not in f"{S3Keys('AK', 'SK')}"
