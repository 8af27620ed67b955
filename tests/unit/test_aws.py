"""Profiles, endpoints and regions of AWS's tools: as botocore finds them, from files that nobody else could write."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable, Dict, List, cast

import pytest

from cbt_plugins.config import aws_profile
from cbt_plugins.config.aws_profile import AwsError
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load_file
from cbt_plugins.config.plan_preview import warnings
from cbt_plugins.plan import S3, Driver, Phase, Plan
from cbt_plugins.run.s3_key_sources import s3_keys

DATA = Path(__file__).parents[1] / "data" / "aws" / "botocore.json"
TABLES: Dict[str, Any] = json.loads(DATA.read_text())
CASES: Dict[str, Any] = TABLES["cases"]
KEYS = "aws_access_key_id = AK\naws_secret_access_key = SK\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`~/.aws` of a user without variables of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return tmp_path / ".aws"


@pytest.mark.parametrize("name", CASES)
def test_as_botocore_finds_them(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    case = CASES[name]
    for file in ("credentials", "config"):
        if case[file] is not None:
            (home / file).write_text(case[file])
    for variable, value in case["environment"].items():
        monkeypatch.setenv(variable, value)
    expected = case["botocore"]
    assert aws_profile.endpoint_of("lab") == expected["endpoint"]
    assert aws_profile.region_of("lab") == expected["region"]
    assert list(aws_profile.keys_of("lab")) == expected["keys"]


def test_a_home_that_nobody_knows(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As botocore, which looks for a file with this name."""
    monkeypatch.setenv("AWS_CONFIG_FILE", "~no-such-user/config")
    with pytest.raises(AwsError, match=r"credentials and ~no-such-user/config: no profile lab"):
        aws_profile.region_of("lab")


def test_variables_name_the_files_and_the_region(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "c").write_text(f"[lab]\n{KEYS}")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/c")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "second")
    monkeypatch.setenv("AWS_REGION", "first")
    assert (
        aws_profile.keys_of("lab") == ("AK", "SK", "")
        and aws_profile.region_of("lab") == aws_profile.region_of(None) == "first"
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://a:80")
    assert aws_profile.endpoint_of(None) == "http://a:80"


def test_older_names_go_first(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with botocore."""
    (home / "credentials").write_text(f"[a]\n{KEYS}aws_session_token = new\naws_security_token = old\n[b]\n{KEYS}")
    assert aws_profile.profile_of_environment() is None
    monkeypatch.setenv("AWS_PROFILE", "b")
    assert s3_of(tmp_path, "urls: ['http://a:1']").profile == "b"
    monkeypatch.setenv("AWS_DEFAULT_PROFILE", "a")
    assert s3_of(tmp_path, "urls: ['http://a:1']").profile == "a"
    assert aws_profile.keys_of("a") == ("AK", "SK", "old")


def test_null_is_no_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "credentials").write_text(f"[lab]\n{KEYS}")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    assert aws_profile.keys_of("lab") == ("AK", "SK", "") and aws_profile.region_of("lab") is None
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/zero")
    with pytest.raises(AwsError, match="/dev/zero: is not a regular file"):
        aws_profile.keys_of("lab")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda p: p.unlink(), "credentials and .*/.aws/config: no profile lab; there are: none"),
        (lambda p: p.write_text(f"[other]\n{KEYS}[more]\n"), "no profile lab; there are: more, other"),
        (lambda p: p.write_text("[lab]\naws_access_key_id = AK\n"), "profile lab has no aws_secret_access_key"),
        (lambda p: p.write_text("[lab]\ncredential_process = x\n"), "by credential_process: run aws configure export-"),
        (lambda p: p.write_text(f"[lab]\n{KEYS}  more\n"), "aws_secret_access_key has more than one line"),
        (fifo, "credentials: is not a regular file"),
        (lambda p: p.chmod(0o662), "others can write it: chmod go-w "),
        (lambda p: p.chmod(0o620), "others can write it: chmod go-w "),
        (lambda p: p.parent.chmod(0o777), "others can write this folder: chmod o-w "),
        (lambda p: p.write_bytes(b"\xff"), "cannot be read as a file of AWS's profiles"),
        (lambda p: p.write_text(KEYS), "cannot be read as a file of AWS's profiles"),
        (lambda p: p.write_text("[lab]\n" + "# x" * (1 << 19)), "has more than 1048576 bytes"),
        (lambda p: os.chown(p, 12345, 0), "belongs to another user .uid 12345"),
    ],
)
def test_files_that_cannot_be_used(home: Path, change: Callable[[Path], Any], text: str) -> None:
    if "12345" in text and os.geteuid():
        pytest.skip("only root can give a file away")
    path = home / "credentials"
    path.write_text(f"[lab]\n{KEYS}")
    path.chmod(0o600)
    change(path)
    with pytest.raises(AwsError, match=text) as raised:
        aws_profile.keys_of("lab")
    assert "AK" not in str(raised.value) and "SK" not in str(raised.value)


FILE = """\
cluster: {user: root, head: h, clients: [c], osds: [o], mons: [m], iterations: 1}
benchmarks:
  rgwtest:
    s3: {SECTION}
"""
LAB = "[profile lab]\nregion = eu-lab-1\nendpoint_url = https://s3.example:8443\n"


def s3_of(tmp_path: Path, section: str) -> S3:
    (tmp_path / "f.yaml").write_text(FILE.replace("SECTION", section))
    (run,) = load_file(tmp_path / "f.yaml").runs
    return run.plan.s3


def test_a_section_with_a_profile_alone(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "credentials").write_text(f"[lab]\n{KEYS}aws_session_token = T\n")
    (home / "config").write_text(LAB)
    s3 = s3_of(tmp_path, "profile: lab")
    assert (s3.urls, s3.region, s3.profile) == (("https://s3.example:8443",), "eu-lab-1", "lab")
    assert s3_keys(s3, cast(Any, None)).all == ("AK", "SK", "T") and "SK" not in repr(s3)
    s3 = s3_of(tmp_path, "profile: lab, urls: ['http://a:1'], region: here")
    assert (s3.urls, s3.region) == (("http://a:1",), "here")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3:80/")
    assert s3_of(tmp_path, "profile: lab").urls == ("http://s3:80",)
    keys = "access_key: '${AWS_ACCESS_KEY_ID}', secret_key: '${AWS_SECRET_ACCESS_KEY}'"
    s3 = s3_of(tmp_path, keys)
    assert (s3.urls, s3.region) == (("http://s3:80",), "us-east-1")


def test_a_token_that_may_expire_before_the_end_is_a_warning(home: Path) -> None:
    (home / "credentials").write_text(f"[lab]\n{KEYS}aws_session_token = T\n[constant]\n{KEYS}")
    environment = {"access_key_source": "env:A", "secret_key_source": "env:B", "session_token_source": "env:T"}

    def about_token(minutes: int, **keys: str) -> List[str]:
        phase = Phase("age", "hybrid", duration=60.0 * minutes, mix={"GET": 100.0}, engine="cbt-load")
        plan = Plan("warp", S3(("http://a",), **cast(Any, keys)), (), (Driver("01", "c1", ("b",), 1),), (phase,))
        return [text for text in warnings(plan, ["c1"]) if "token" in text]

    text = "s3: the cycle takes 2h, and its session token may expire before: "
    assert about_token(120, profile="lab") == [
        f"{text}renew it at its source, which is read again before each phase with load"
    ]
    assert about_token(120, **environment) == [
        f"{text}no later token is read from the environment: use file: or profile:, and renew it there"
    ]
    assert about_token(60, profile="lab") == about_token(120, profile="constant") == about_token(120, user="u") == []


def test_a_key_of_encryption_is_not_made_of_keys_with_a_token(home: Path, tmp_path: Path) -> None:
    (home / "credentials").write_text(f"[lab]\n{KEYS}aws_session_token = T\n[constant]\n{KEYS}")
    section = "urls: ['https://a'], sse: c, profile: "
    with pytest.raises(ConfigError, match="use keys without a token"):
        s3_of(tmp_path, f"{section}lab")
    assert s3_of(tmp_path, f"{section}constant").sse == "c"


def test_urls_are_enough_where_the_profile_is_not(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may be planned on another machine; variables of AWS say nothing of a file with URLs and keys."""
    monkeypatch.setenv("AWS_REGION", "elsewhere")
    assert s3_of(tmp_path, "urls: ['http://a:1'], profile: nobody").region == "elsewhere"
    assert s3_of(tmp_path, "urls: ['http://a:1'], user: cbt").region == "us-east-1"
    monkeypatch.delenv("AWS_REGION")
    assert s3_of(tmp_path, "urls: ['http://a:1'], profile: nobody").region == "us-east-1"


@pytest.mark.parametrize("name", ["AWS_PROFILE", "AWS_PROFILE with a token"])
def test_a_section_without_a_profile_has_that_of_the_environment(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    case = TABLES["by_environment"][name]
    for file in ("credentials", "config"):
        (home / file).write_text(case[file])
    monkeypatch.setenv("AWS_PROFILE", case["environment"]["AWS_PROFILE"])
    s3, expected = s3_of(tmp_path, ""), case["botocore"]
    assert (s3.profile, s3.urls, s3.region) == ("lab", (expected["endpoint"],), expected["region"])
    assert list(s3_keys(s3, cast(Any, None)).all) == expected["keys"]
    assert s3_of(tmp_path, "urls: ['http://a:1']").profile == "lab"
    assert s3_of(tmp_path, "profile: default, urls: ['http://a:1']").profile == "default"


@pytest.mark.parametrize("section", ["user: cbt", "access_key: '${A}', secret_key: '${B}'", "endpoints: e"])
def test_the_profile_of_the_environment_changes_no_section_with_keys(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str
) -> None:
    text = FILE + "client_endpoints: {e: {driver: s3, urls: ['http://a:1'], user: cbt}}\n"
    place = "" if section == "endpoints: e" else ", urls: ['http://a:1']"

    def plan() -> S3:
        (tmp_path / "f.yaml").write_text(text.replace("SECTION", f"{section}{place}"))
        (run,) = load_file(tmp_path / "f.yaml").runs
        return run.plan.s3

    before = plan()
    (home / "credentials").write_text(f"[lab]\n{KEYS}")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert plan() == before and before.profile is None
    monkeypatch.setenv("AWS_PROFILE", "a b")
    with pytest.raises(ConfigError, match=r"s3.profile: AWS_DEFAULT_PROFILE or AWS_PROFILE is not the name"):
        s3_of(tmp_path, "urls: ['http://a:1']")


@pytest.mark.parametrize(
    ("section", "config", "text"),
    [
        ("profile: nobody", LAB, "f.yaml:4:19: benchmarks.rgwtest.s3.profile: .*no profile nobody; there are: lab$"),
        ("profile: lab", "[profile lab]\n", "s3.profile: needs urls: AWS_ENDPOINT_URL_S3 is not set, and prof"),
        ("profile: lab", "[profile lab]\nendpoint_url = http://u:SK@h\n", "the endpoint of .* no user or key in a URL"),
        ("profile: lab", "[profile lab]\nendpoint_url = http://h/path\n", "must be http://host.:port. or .* without a"),
        ("profile: lab", "[profile lab]\nregion = a b\n", "is not the name of a region"),
        ("access_key: '${A}', secret_key: '${B}'", "", "f.yaml:4:9: benchmarks.rgwtest.s3: needs urls: AWS_ENDPOINT"),
        ("user: cbt", LAB, "needs urls: .http://rgw1:7480, .... or endpoints: NAME"),
    ],
)
def test_errors_name_the_line(home: Path, tmp_path: Path, section: str, config: str, text: str) -> None:
    (home / "config").write_text(config)
    with pytest.raises(ConfigError, match=text) as raised:
        s3_of(tmp_path, section)
    assert "SK" not in str(raised.value)
