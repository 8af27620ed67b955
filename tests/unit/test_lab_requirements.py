from __future__ import annotations

from pathlib import Path

import pytest

from cbt_plugins.tools.lab import requirements
from cbt_plugins.tools.lab.requirements import LabError


def release(folder: Path, *without: str) -> Path:
    """A root folder that has every program that nodes need, but those named."""
    (folder / "usr" / "bin").mkdir(parents=True)
    for program in ("apt-get", *(need.program for need in requirements.NODES)):
        if program not in without:
            (folder / "usr" / "bin" / program).touch()
    return folder


@pytest.fixture(autouse=True)
def _complete_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "HOST", ())


def test_nothing_missing_says_nothing(tmp_path: Path) -> None:
    assert requirements.missing(str(release(tmp_path))) == ([], [])


def test_missing_package_is_one_line_with_its_command(tmp_path: Path) -> None:
    root = release(tmp_path, "radosgw", "sudo")
    faults, warnings = requirements.missing(str(root))
    assert faults == [
        f"missing: radosgw (package radosgw): chroot {root} apt-get install radosgw",
        f"missing: sudo (package sudo): chroot {root} apt-get install sudo",
    ]
    assert warnings == []


def test_red_hat_names(tmp_path: Path) -> None:
    root = release(tmp_path, "radosgw", "apt-get")
    (root / "usr" / "bin" / "dnf").touch()
    faults, _ = requirements.missing(str(root))
    assert faults == [f"missing: radosgw (package ceph-radosgw): chroot {root} dnf install ceph-radosgw"]


def test_what_only_cbt_needs_is_a_warning_that_says_what_is_lost(tmp_path: Path) -> None:
    faults, warnings = requirements.missing(str(release(tmp_path, "pdsh")))
    assert faults == []
    assert len(warnings) == 1
    assert warnings[0].endswith(
        "apt-get install pdsh (CBT uses pdsh between the nodes)"
    )


def test_a_node_without_sshd_needs_no_sshd_package(tmp_path: Path) -> None:
    root = str(release(tmp_path, "sshd", "sudo"))
    assert requirements.missing(root, ssh=False) == ([], [])
    assert len(requirements.missing(root)[0]) == 2


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "unshare"
    program.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("knob", "value", "cure"),
    [
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    ],
)
@pytest.mark.usefixtures("refusing")
def test_refused_user_namespaces_name_the_sysctl(
    monkeypatch: pytest.MonkeyPatch, knob: str, value: str, cure: str
) -> None:
    monkeypatch.setattr(requirements, "sysctl_value", {knob: value}.get)
    with pytest.raises(LabError) as caught:
        requirements.refuse_without_namespaces(privileged=False)
    assert (
        f"user namespaces are refused (unshare: unshare failed: Operation not permitted): {cure}"
        in str(caught.value)
    )


@pytest.mark.usefixtures("refusing")
def test_powerless_root_is_told_apart() -> None:
    with pytest.raises(LabError, match=r"namespaces are refused to root .*CAP_SYS_ADMIN"):
        requirements.refuse_without_namespaces(privileged=True)


def test_no_room_for_more_osds_is_said_before_one_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"fs/aio-nr": "61440", "fs/aio-max-nr": "65536"}
    monkeypatch.setattr(requirements, "sysctl_value", values.get)
    requirements.refuse_without_aio(2)
    with pytest.raises(LabError, match=r"3 OSDs need 6144 of fs\.aio-max-nr, which has 4096 of 65536 left: end other"):
        requirements.refuse_without_aio(3)
