from __future__ import annotations

import os
from pathlib import Path
from typing import List

import pytest

from cbt_plugins.tools.lab import LabError, installed_releases, root_builder
from cbt_plugins.tools.lab.installed_releases import Release
from cbt_plugins.tools.lab.node_files import write_links
from cbt_plugins.tools.lab.root_builder import RootBuilder, lay, requirements

REEF = "ceph version 18.2.7 (6b0e98) reef (stable)"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stand-ins that is first on PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return folder


def stand_in(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def test_a_root_of_an_image_is_made_once_and_whole(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(programs / "podman", f"""
echo "$*" >> {tmp_path}/asked
case $1 in
create) [ "$3" = there ] && echo box7 || {{ echo "$3: image not known" >&2; exit 125; }} ;;
export) mkdir -p {tmp_path}/image/usr/bin; touch {tmp_path}/image/usr/bin/ceph-mon; tar -C {tmp_path}/image -c . ;;
esac""")
    version = lambda root, *_: REEF if Path(root, "usr/bin/ceph-mon").exists() else ""  # noqa: E731
    monkeypatch.setattr(installed_releases, "output_in_root", version)
    monkeypatch.setattr(root_builder, "output_in_root", lambda root, *words: "")
    said: List[str] = []
    builder = RootBuilder(said.append, tmp_path / "roots")
    with pytest.raises(LabError, match="absent: image not known"):
        builder.make("mine", image="absent")
    assert [path.name for path in (tmp_path / "roots").glob("[!.]*")] == []
    for _ in range(2):
        assert builder.make("mine", image="there") == tmp_path / "roots/mine"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["create", "create", "export", "rm"]
    assert any("missing: sshd" in line and f"chroot {tmp_path}/roots/mine" in line for line in said)
    assert "the root folder has no python3: cycles cannot run in its nodes" in said


def test_programs_in_a_new_root_have_a_tmpdir_that_exists(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of the machine that TMPDIR names is not in the root: update-ca-certificates failed there."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    stand_in(programs / "debootstrap", 'mkdir -p "$4/usr/sbin" "$4/usr/local/share/ca-certificates"')
    stand_in(programs / "apt-get", "echo Debian bookworm http://mirror.example")
    stand_in(programs / "unshare", 'shift 3; exec "$@"')
    stand_in(programs / "chroot", f'echo "$2 $TMPDIR" >> {tmp_path}/seen')
    for name in ("apt-config", "mount"):
        stand_in(programs / name, "true")
    monkeypatch.setattr(installed_releases, "output_in_root", lambda *_: "")
    with pytest.raises(LabError):  # no Ceph is in it
        RootBuilder(print, tmp_path / "roots").make("pacific")
    seen = (tmp_path / "seen").read_text().splitlines()
    assert seen == ["update-ca-certificates /tmp", "apt-get /tmp", "apt-get /tmp"]


def test_an_image_without_ceph_is_no_root(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(programs / "podman", f"[ $1 != export ] || tar -C {programs} -c .")
    monkeypatch.setattr(installed_releases, "output_in_root", lambda *_: "")
    with pytest.raises(LabError, match="no Ceph in it"):
        RootBuilder(lambda _: None, tmp_path / "roots").make("mine", image="x")
    assert not (tmp_path / "roots/mine").exists()


@pytest.mark.parametrize(
    ("targets", "mirror"),
    [
        ("Debian bookworm-security http://d/\nDebian bookworm http://mirror.site/debian/", "http://mirror.site/debian/"),
        ("Ubuntu jammy http://archive.ubuntu.com/ubuntu/", None),
    ],
)
def test_the_mirror_is_that_of_the_machines_sources(programs: Path, targets: str, mirror: str) -> None:
    stand_in(programs / "apt-get", f"echo '{targets}'")
    if mirror:
        assert root_builder.debian_mirror() == mirror
    else:
        with pytest.raises(LabError, match="no mirror of Debian"):
            root_builder.debian_mirror()


def test_a_build_trees_files_replace_those_of_the_same_name(tmp_path: Path) -> None:
    root, tree = tmp_path / "root", tmp_path / "tree"
    files = ("usr/bin/ceph-osd", "usr/bin/ls", "usr/lib/x86_64-linux-gnu/ceph/libceph-common.so.2", "usr/bin/ceph")
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"\x7fELF old")
    (root / "usr/lib/x86_64-linux-gnu/librados.so.2").symlink_to("librados.so.2.0.0")
    for name in ("bin/ceph-osd", "bin/ceph_test_rados", "lib/libceph-common.so.2", "lib/libnew.so.1"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(b"\x7fELF new")
    (tree / "bin/ceph").write_text("#!/usr/bin/python3\n")
    assert lay(tree, root) == 3
    changed = [path for path in root.rglob("*") if path.is_file() and b"new" in path.read_bytes()]
    new = sorted(str(path.relative_to(root)) for path in changed)
    assert new == ["usr/bin/ceph-osd", "usr/lib/x86_64-linux-gnu/ceph/libceph-common.so.2", "usr/local/lib/libnew.so.1"]


def test_a_release_is_found_by_name_and_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {Release((18, 2, 4), "reef"): "/a", Release((18, 2, 7), "reef"): "/b", Release((16, 2, 15), "pacific"): "/"}
    monkeypatch.setattr(installed_releases, "releases", lambda: there)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert [installed_releases.root_of(name) for name in ("reef", "18", "18.2.4", "16.2")] == ["/b", "/b", "/a", "/"]
    for name in ("1", "18.2.40", "squid"):
        on_machine = r"16\.2\.15 pacific, 18\.2\.4 reef, 18\.2\.7 reef"
        with pytest.raises(LabError, match=rf"releases on this machine: {on_machine}; .*lab root"):
            installed_releases.root_of(name)
    (tmp_path / "cbt-plugins/roots/squid").mkdir(parents=True)
    assert installed_releases.root_of("squid") == f"{tmp_path}/cbt-plugins/roots/squid"


def test_another_python_imports_this_project_through_links(tmp_path: Path) -> None:
    write_links(tmp_path / "python")
    names = {path.name for path in (tmp_path / "python/cbt_plugins").iterdir()}
    assert {"__init__.py", "monitors", "tools", "faults"} <= names
    assert (tmp_path / "python/cbt_plugins/tools/lab/pid1.py").exists()
    (known,) = (tmp_path / "python").glob("cbt_plugins-*.dist-info")
    assert "cbt_plugins.faults" in (known / "entry_points.txt").read_text()
    assert {"numpy", "pydantic"} <= {line.split(">")[0] for line in requirements()}
