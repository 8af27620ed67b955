"""Containers of a real engine whose image is nearly nothing: the programs are those of this machine, without tar."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List

import pytest
from waiting import wait_for

#: what runc needs where a machine has no CAP_SYS_RESOURCE, and no unified control groups
_LIMITS = "nofile=10000:10000"
_PODMAN = f'[containers]\ndefault_ulimits=["{_LIMITS}","nproc=10000:10000"]\n[engine]\nruntime="runc"\n'
#: vfs mounts nothing of its own
_STORAGE = '[storage]\ndriver="vfs"\ngraphroot="{0}/graph"\nrunroot="{0}/run"\n'
_DOCKERD = ("--iptables=false", "--bridge=none", "--ip-forward=false", "--ip-masq=false", "--default-ulimit", _LIMITS)


class Engine:
    """An engine with a storage of its own. A subclass has the options of the image, and the program's environment."""

    program = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: Dict[str, str] = {}
        if os.geteuid() != 0:
            pytest.skip("containers need root here")
        if not shutil.which(self.program):
            pytest.skip(f"{self.program} is not installed: apt-get install {self.program}")
        self.rootfs = folder / "rootfs"
        for name in ("usr", "etc", "tmp", "proc", "run", "var/tmp", "dev", "sys", "root"):
            (self.rootfs / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            (self.rootfs / name).symlink_to(f"usr/{name}")
        for name in ("passwd", "group"):
            shutil.copy(f"/etc/{name}", self.rootfs / "etc" / name)
        for name in ("tmp", "var/tmp"):
            (self.rootfs / name).chmod(0o1777)

    @property
    def image(self) -> List[str]:
        raise NotImplementedError

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        return subprocess.run([self.program, *words], env=environment, capture_output=True, text=True, timeout=120)

    def run(self, name: str, *options: str) -> None:
        """Start a container that waits, without a network unless `options` give it one."""
        mounts = ["-v", "/usr:/usr:ro", "-v", "/dev/null:/usr/bin/tar:ro"]
        words = [*mounts, *(options or ["--network=none"]), *self.image]
        done = self.call("run", "-d", "--name", name, *words, "sleep", "100000")
        if done.returncode:
            pytest.skip(f"{self.program} runs no container here: {done.stderr.strip()}")

    def close(self) -> None:
        listed = self.call("ps", "-a", "-q").stdout.split()
        if listed:
            self.call("rm", "-f", *listed)


class PodmanEngine(Engine):
    """podman, without an image."""

    program = "podman"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "containers.conf").write_text(_PODMAN)
        (folder / "storage.conf").write_text(_STORAGE.format(folder))
        self.environment = {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    @property
    def image(self) -> List[str]:
        return ["--rootfs", str(self.rootfs)]


class DockerEngine(Engine):
    """docker, with a daemon of its own."""

    program = "docker"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if not shutil.which("dockerd"):
            pytest.skip("dockerd is not installed: apt-get install docker.io")
        socket = folder / "socket"
        self.environment = {"DOCKER_HOST": f"unix://{socket}"}
        places = ["--data-root", folder / "data", "--exec-root", folder / "exec", "-p", folder / "pid", "-H"]
        with open(folder / "log", "wb") as log:
            self._daemon: subprocess.Popen[bytes] = subprocess.Popen(
                ["dockerd", *map(str, places), f"unix://{socket}", *_DOCKERD],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            ended = lambda: self._daemon.poll() is not None  # noqa: E731
            wait_for(lambda: ended() or self.call("version").returncode == 0, "the docker daemon", 60.0)
            if ended():
                pytest.skip(f"dockerd does not run here: {(folder / 'log').read_text()[-500:]}")
            archive = folder / "rootfs.tar"
            subprocess.run(["tar", "-C", str(self.rootfs), "-c", "-f", str(archive), "."], check=True)
            assert self.call("import", str(archive), "base").returncode == 0
        except BaseException:
            self.close()
            raise

    @property
    def image(self) -> List[str]:
        return ["base"]

    def close(self) -> None:
        if self._daemon.poll() is None:
            super().close()
            self._daemon.terminate()
            self._daemon.wait(60)
