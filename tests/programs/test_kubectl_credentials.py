"""Credentials of the user's own: the real kubectl asks a plug-in of its kubeconfig for a token, through TLS."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
from kube_api import KubeApi, Workload
from kube_tls import TlsFront
from waiting import wait_for

from cbt_plugins.cluster import kubernetes
from cbt_plugins.cluster.kubernetes import Kubernetes, KubernetesError
from cbt_plugins.cluster.remote import Remote

CLIENT, USER, TOKEN = "client1", "developer", "t0k3n"
#: a program that logs its calls, and gives the token of the file `token`; with a file `hangs` it does not end
PLUGIN = """#!/bin/sh
echo "$CLUSTER $*" >> {folder}/calls
[ ! -e {folder}/hangs ] || {{ echo $$ > {folder}/hangs; sleep 1000; }}
[ -e {folder}/token ] || {{ printf 'session expir\\351e: log in again\n' >&2; exit 1; }}
printf '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{"token": "%s"}}}}' \\
  "$(cat {folder}/token)"
"""


@pytest.fixture
def api() -> Iterator[KubeApi]:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    server = KubeApi(tokens={USER: TOKEN})
    try:
        server.bare_pod(CLIENT, Workload(list, environment=dict(os.environ)))
        server.secret("keys", AccessKey="A")
        yield server
    finally:
        server.close()


@pytest.fixture
def cluster(api: KubeApi, tmp_path: Path) -> Iterator[Dict[str, Any]]:
    """The section of a cluster whose kubeconfig names the plug-in."""
    program = tmp_path / "plugin"
    program.write_text(PLUGIN.format(folder=tmp_path))
    program.chmod(0o755)
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(program),
        "args": ["get-token", "--cluster-id", "prod"],
        "env": [{"name": "CLUSTER", "value": "prod"}],
        "interactiveMode": "IfAvailable",
    }
    front = TlsFront(int(api.url.rpartition(":")[2]), tmp_path)
    server = {"server": f"{front.url}/{USER}", "certificate-authority": str(front.certificate)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "prod", "cluster": server}],
        "users": [{"name": "me", "user": {"exec": plugin}}],
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "me"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(document))
    kubernetes = {"context": "prod", "kubeconfig": str(tmp_path / "kubeconfig")}
    yield {"user": "root", "clients": [CLIENT], "transport": "kubectl", "kubernetes": kubernetes}
    front.close()


@pytest.mark.parametrize("websockets", ["true", "false"])
def test_a_plugin_of_the_user_gives_the_token(
    cluster: Dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, websockets: str
) -> None:
    monkeypatch.setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
    (tmp_path / "token").write_text(TOKEN)
    remote, content = Remote.of_cluster(cluster, {}), os.urandom(1 << 20)
    result = remote.run([CLIENT], "echo out; echo err >&2; exit 3", check=False)[CLIENT]
    assert (result.stdout, result.stderr, result.status) == ("out\n", "err\n", 3)
    remote.put({CLIENT: {f"{tmp_path}/in/file": content}})
    assert (tmp_path / "in" / "file").read_bytes() == content
    assert Kubernetes(cluster["kubernetes"]).secret("keys", "AccessKey") == "A"
    assert set((tmp_path / "calls").read_text().splitlines()) == {"prod get-token --cluster-id prod"}


def test_a_plugin_that_fails_says_why(cluster: Dict[str, Any], tmp_path: Path) -> None:
    result = Remote.of_cluster(cluster, {}).run([CLIENT], "true", check=False)[CLIENT]
    assert result.status == 255 and "session expir\ufffde: log in again" in result.stderr
    with pytest.raises(KubernetesError, match=r"plugin failed with exit code 1"):
        Kubernetes(cluster["kubernetes"]).secret("keys", "AccessKey")
    (tmp_path / "token").write_text("of-somebody-else")
    result = Remote.of_cluster(cluster, {}).run([CLIENT], "true", check=False)[CLIENT]
    assert result.status == 255 and "error: You must be logged in to the server" in result.stderr


def test_a_plugin_that_hangs_is_ended(
    cluster: Dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "ANSWER", 2.0)
    (tmp_path / "hangs").touch()
    with pytest.raises(KubernetesError, match=r"get secret keys -o json: no reply within 4 s$"):
        Kubernetes(cluster["kubernetes"]).secret("keys", "AccessKey")
    plugin = int((tmp_path / "hangs").read_text())
    wait_for(lambda: not Path(f"/proc/{plugin}").exists(), "the end of the plug-in")
