"""Keys never stand in the YAML, and a message about one never repeats it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load_file

FILE = """\
cluster: {user: root, head: h, clients: [c], osds: [o], mons: [m], iterations: 1}
benchmarks:
  rgwtest:
    s3:
      urls: ['http://rgw1:7480']
      access_key: ACCESS
      secret_key: SECRET
"""


def write(tmp_path: Path, access: str, secret: str) -> Path:
    path = tmp_path / "f.yaml"
    path.write_text(FILE.replace("ACCESS", access).replace("SECRET", secret), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "secret",
    ["hunter2secret", "12345678987654321", "$hunter2secret", "{a: hunter2secret}", "[hunter2secret]"],
)
def test_a_literal_key_is_a_errors_at_its_line_that_does_not_show_it(tmp_path: Path, secret: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_file(write(tmp_path, "'${A}'", secret))
    text = str(refused.value)
    assert "f.yaml:7:" in text
    assert "no secret in the YAML: use ${ENV}, file:/path, secret:NAME/KEY, or user:" in text
    assert "hunter2" not in text + repr(refused.value)
    assert "123456" not in text + repr(refused.value)


def test_references_stay_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "hunter2secret")
    (tmp_path / "key").write_text("hunter2secret", encoding="utf-8")
    (run,) = load_file(write(tmp_path, "'${MY_KEY}'", f"file:{tmp_path}/key")).runs
    assert run.plan.s3.access_key_source == "env:MY_KEY"
    assert run.plan.s3.secret_key_source == f"file:{tmp_path}/key"
    assert run.plan.s3.user is None
    assert "hunter2" not in repr(run)
