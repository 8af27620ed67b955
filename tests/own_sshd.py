"""A real sshd on a port of this machine, with keys of its own, which lets in the user of the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

from waiting import wait_for


def sshd_program() -> Optional[str]:
    return shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def own_sshd(folder: Path, program: str, listen: str = "127.0.0.1") -> Iterator[Tuple[List[str], int]]:
    """Start the sshd; give the options of `ssh` that reach it, and its pid."""
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    port = free_port()
    options = {"HostKey": folder / "host", "AuthorizedKeysFile": folder / "authorized", "StrictModes": "no",
               "MaxStartups": 5000, "UsePAM": "no", "PidFile": "none", "PermitRootLogin": "yes"}  # fmt: skip
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    line = [program, "-D", "-e", "-f", "/dev/null", "-p", str(port), "-o", f"ListenAddress={listen}"]
    line += [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log)
        try:
            wait_for(lambda: "listening" in (folder / "log").read_text() or process.poll() is not None, "sshd")
            assert process.poll() is None, (folder / "log").read_text()
            words = ["-i", str(folder / "user"), "-p", str(port), "-oStrictHostKeyChecking=no"]
            yield [*words, "-oUserKnownHostsFile=/dev/null", "-oLogLevel=ERROR"], process.pid
        finally:
            process.terminate()
            process.wait()
