"""Fixtures of programs that run on real clusters."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
import yaml
from rook_cluster import CLIENT, CONSENT, NAMESPACE, OWN, STORE, kubectl, tool, wait_until_at_rest, watched_pods


@pytest.fixture(scope="session")
def init_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with my.yaml, which `init` has written and whose client is a pod."""
    if os.environ.get(CONSENT) != OWN or not shutil.which("kubectl"):
        pytest.skip("no real cluster of Rook was tried: tests/rook makes one")
    if subprocess.run(["kubectl", "-n", NAMESPACE, "get", "cephcluster"], capture_output=True).returncode:
        pytest.skip("this Kubernetes has no Rook: tests/rook makes one that has")
    folder = tmp_path_factory.mktemp("rook")
    file = folder / "my.yaml"
    words = ["--namespace", NAMESPACE, "--object-store", STORE, "--user", "load", "--clients", CLIENT]
    done = tool("init", *words, "-o", str(file))
    assert done.returncode == 0, done.stderr
    assert "CephObjectStoreUser load" in file.read_text() and "4 OSDs on 2 hosts" in file.read_text()
    document = yaml.safe_load(file.read_text())
    assert document["cluster"]["watched"] == watched_pods()
    # not on each Kubernetes node of a label, but a pod by its name
    document["cluster"]["kubernetes"]["pods"][CLIENT] = CLIENT
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    image = os.environ["CBT_PLUGINS_IMAGE"]
    manifest = tool("kubernetes", "manifest", str(file), "--image", image, "--cpu", "250m", "--memory", "256Mi")
    assert manifest.returncode == 0, manifest.stderr
    kubectl("apply", "-f", "-", given=manifest.stdout)
    kubectl("wait", "--for=condition=Ready", f"pod/{CLIENT}", "--timeout=300s")
    wait_until_at_rest()
    yield folder
    kubectl("delete", "--ignore-not-found", "-f", "-", given=manifest.stdout)
