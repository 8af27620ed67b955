"""Keys of sessions that a real RGW of each release has made: runs, cbt-load by hand, wrong and renewed tokens."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional
from urllib.parse import urlencode

import pytest
from cycles import IN_HOME, Cycle
from running_lab import RunningLab
from test_conventions import SECTION, write

from cbt_plugins.programs import own_program

pytestmark = [pytest.mark.lab, pytest.mark.long]

#: the gateway that makes sessions, and its user who may ask for them
GATEWAY, USER = "rgw1", "session"
URL = f"http://{GATEWAY}:7480"
#: the shortest session of a role, in seconds
SHORTEST = 60
OPTIONS = {
    "rgw_s3_auth_use_sts": "true",
    "rgw_sts_key": "abcdefghijklmnop",
    "rgw_sts_min_session_duration": str(SHORTEST),
}
ROLE = "renewed"
#: one signed request, as the agent that removes buckets signs it
ASK = """\
import json, sys
from cbt_plugins.run.bucket_agent import SignedRequests
order, body, wanted = json.load(sys.stdin)
_, root = SignedRequests(order).ask("POST", "/", body=body.encode(), wanted=wanted)
print(json.dumps({element.tag: element.text for element in root.iter()}))
"""
#: sends such a request, whose answer must have this element
Ask = Callable[..., Dict[str, str]]
CREDENTIALS = """\
[session]
aws_access_key_id = {AccessKeyId}
aws_secret_access_key = {SecretAccessKey}
aws_session_token = {SessionToken}
"""
#: no region: warp asks for buckets in it, and the zonegroup has no other name
CONFIG = f"[profile session]\nendpoint_url = {URL}\n"
SPEC = {
    "version": 1,
    "workers": 2,
    "objects": 20,
    "make_buckets": True,
    "spaces": [{"name": "4KiB", "bucket": "by-hand", "prefix": "p/", "sizes": [[4096, 4096, 1]]}],
    "ops": [{"op": "PUT", "spaces": ["4KiB"]}],
}


def run(lab: RunningLab, *argv: str, **options: Any) -> str:
    done = lab.exec("node0", argv, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def restart_gateway(lab: RunningLab) -> None:
    """Restart the gateway, which reads these options only when it starts."""
    lab.lab.crash(GATEWAY)
    lab.lab.boot(GATEWAY)


def policy(*actions: str, **whom: Any) -> str:
    """Return a policy without spaces, which some requests of RGW do not decode."""
    statement = {"Effect": "Allow", "Action": actions, **whom}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]}, separators=(",", ":"))


@pytest.fixture(scope="module")
def ask(of_release: RunningLab) -> Iterator[Ask]:
    """A gateway that makes sessions, which USER asks."""
    lab = of_release
    admin, keep = ("radosgw-admin", "user"), [f"--uid={USER}", f"--display-name={USER}", "--max-buckets=0"]
    for option, value in OPTIONS.items():
        run(lab, "ceph", "config", "set", f"client.{GATEWAY}", option, value)
    try:
        restart_gateway(lab)
        caps = "--caps=user-policy=*;roles=*"
        text = run(lab, *admin, "create", *keep, caps, "--gen-access-key", "--gen-secret")
        key = json.loads(text[text.index("{") :])["keys"][0]
        order = {"url": URL, "region": "lab-1", "keys": [key["access_key"], key["secret_key"], ""]}

        def send(wanted: str, **words: str) -> Dict[str, str]:
            message = json.dumps([order, urlencode(words), wanted])
            script = ["sh", "-c", IN_HOME, str(lab.home), lab.python, "-c", ASK]
            reply: Dict[str, str] = json.loads(run(lab, *script, input=message))
            return reply

        yield send
    finally:
        run(lab, *admin, "rm", f"--uid={USER}", "--purge-data")
        for option in OPTIONS:
            run(lab, "ceph", "config", "rm", f"client.{GATEWAY}", option)
        restart_gateway(lab)


@pytest.fixture(scope="module")
def session(ask: Ask) -> Dict[str, str]:
    """AccessKeyId, SecretAccessKey and SessionToken of a session of USER."""
    document = policy("sts:GetSessionToken", "s3:*", Resource=["arn:aws:s3:::*"])
    ask("PutUserPolicyResponse", Action="PutUserPolicy", UserName=USER, PolicyName="sessions", PolicyDocument=document)
    return ask("GetSessionTokenResponse", Action="GetSessionToken", DurationSeconds="3600")


@pytest.fixture
def assume(of_release: RunningLab, ask: Ask) -> Iterator[Callable[[int], Dict[str, str]]]:
    """Return a function that returns the keys of a session of ROLE; its argument: seconds that the session lasts."""
    trust = policy("sts:AssumeRole", Principal={"AWS": [f"arn:aws:iam:::user/{USER}"]})
    ask("CreateRoleResponse", Action="CreateRole", RoleName=ROLE, Path="/", AssumeRolePolicyDocument=trust)
    named = {"RoleName": ROLE, "PolicyName": "all"}
    document = policy("s3:*", Resource=["arn:aws:s3:::*"])
    ask("PutRolePolicyResponse", Action="PutRolePolicy", **named, PolicyDocument=document)
    words = {"Action": "AssumeRole", "RoleArn": f"arn:aws:iam:::role/{ROLE}", "RoleSessionName": "run"}
    yield lambda seconds: ask("AssumeRoleResponse", **words, DurationSeconds=str(seconds))
    with contextlib.suppress(AssertionError):  # 16.2 gives the answer another name; a role with policies stays
        ask("DeleteRolePolicyResponse", Action="DeleteRolePolicy", **named)
    ask("DeleteRoleResponse", Action="DeleteRole", RoleName=ROLE)
    of_release.exec("node0", ["rm", "-rf", "/root/.aws"])


@pytest.fixture
def profile(of_release: RunningLab, session: Dict[str, str]) -> Iterator[Dict[str, str]]:
    """The session as profile `session` of node0."""
    lab = of_release
    write(lab, "credentials", CREDENTIALS.format(**session))
    write(lab, "config", CONFIG)
    yield session
    lab.exec("node0", ["rm", "-r", "/root/.aws"])


@pytest.mark.parametrize("engine", ["cbt-load", "warp"])
def test_a_run_with_the_token_of_a_profile(
    of_release: RunningLab, profile: Dict[str, str], tmp_path: Path, engine: str
) -> None:
    cycle = Cycle(of_release, tmp_path, rgwtest={**SECTION, "engine": engine, "s3": {"profile": "session"}})
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert {phase["status"] for phase in cycle.phases().values()} == {"ok"}
    for secret in (profile["SecretAccessKey"], profile["SessionToken"]):
        leaks = subprocess.run(["grep", "-rlF", secret, str(cycle.archive)], capture_output=True, text=True)
        assert leaks.returncode == 1, leaks.stdout


def test_a_run_whose_token_is_renewed(
    of_release: RunningLab, assume: Callable[[int], Dict[str, str]], tmp_path: Path
) -> None:
    """The first token has expired when the last phase ends, which began after the renewal."""
    lab, renewed = of_release, assume(3600)
    write(lab, "config", CONFIG)
    write(lab, "credentials", CREDENTIALS.format(**assume(SHORTEST)))
    longer = {**SECTION, "engine": "cbt-load", "age": {"duration": f"{SHORTEST + 10}s"}}
    cycle = Cycle(lab, tmp_path, rgwtest={**longer, "s3": {"profile": "session"}})
    cycle.start()
    cycle.await_moment(lambda: list(cycle.archive.glob("results/*/id-*/phases/*-fill.running")), "the fill")
    write(lab, "credentials", CREDENTIALS.format(**renewed))
    assert cycle.ended() == 0, cycle.log.read_text()[-3000:]
    assert {phase["status"] for phase in cycle.phases().values()} == {"ok"}


def test_cbt_load_by_hand_with_the_profile_of_the_environment(
    of_release: RunningLab, profile: Dict[str, str], tmp_path: Path
) -> None:
    lab = of_release
    spec, program = tmp_path / "spec.json", shutil.copy(own_program("cbt-load"), tmp_path)
    spec.write_text(json.dumps(SPEC))
    done = lab.exec("node0", ["env", "AWS_PROFILE=session", str(program), "run", str(spec)])
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 20, done.stderr
    owner = json.loads(run(lab, "radosgw-admin", "bucket", "stats", "--bucket=by-hand"))["owner"]
    assert owner == USER


@pytest.mark.parametrize("kept", [0, -8, None], ids=["another", "cut", "not base64"])
def test_a_token_that_is_wrong(
    of_release: RunningLab, profile: Dict[str, str], tmp_path: Path, kept: Optional[int]
) -> None:
    lab = of_release
    token = "%" if kept is None else profile["SessionToken"][:kept] + "AAAAAAA="
    write(lab, "credentials", CREDENTIALS.format(**{**profile, "SessionToken": token}))
    cycle = Cycle(lab, tmp_path, rgwtest={**SECTION, "s3": {"profile": "session"}})
    words = [lab.python, "-m", "cbt_plugins.tools", "plan", str(cycle.file), "--live"]
    live = lab.exec("node0", ["sh", "-c", IN_HOME, str(lab.home), *words])
    assert live.returncode != 0
    assert "the keys of profile session are wrong: the session token is wrong" in live.stdout + live.stderr
