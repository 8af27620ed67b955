"""Fixtures that several files have."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List

import pytest
import yaml
from archive_builder import COPIED, HALF
from burning_daemon import Daemon
from rook_cluster import CLIENT, CONSENT, NAMESPACE, OWN, STORE, kubectl, tool, wait_until_at_rest, watched_pods
from rook_daemons import Rook
from verb_words import words_with

from cbt_plugins.journal import Journal
from cbt_plugins.results.live_run import LiveRun

if TYPE_CHECKING:  # needs jinja2
    from cbt_plugins.report.live_page import LivePage
    from cbt_plugins.report.live_server import LiveServer


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, List[str]]:
    """What each verb is called with."""
    return words_with(tmp_path_factory.mktemp("archives"))


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


@pytest.fixture
def rook(tmp_path: Path) -> Iterator[Rook]:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    made = Rook(tmp_path)
    try:
        yield made
    finally:
        made.api.close()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The half archive, which a process has."""
    folder = tmp_path / "results" / "00000000" / "id-1a2b3c4d"
    shutil.copytree(HALF, folder)
    monkeypatch.setattr("time.time", lambda: COPIED)
    with closing(Journal(folder / "journal.jsonl")) as journal:
        journal.write("invocation")
        yield folder


@pytest.fixture
def page(run: Path) -> LivePage:
    """The page of this run."""
    from cbt_plugins.report.live_page import LivePage

    made = LivePage(LiveRun(run))
    made.look()
    return made


@pytest.fixture
def server(page: LivePage) -> Iterator[LiveServer]:
    """The server of this page."""
    from cbt_plugins.report.live_server import LiveServer

    with closing(LiveServer(page, "127.0.0.1", 0)) as started:
        yield started


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[[str, float], Daemon]]:
    made: List[Daemon] = []

    def make(id: str, seconds: float) -> Daemon:
        made.append(Daemon(tmp_path, id, seconds))
        return made[-1]

    yield make
    for its in made:
        its.end()
