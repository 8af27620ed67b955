"""The lab's own ssh: one key pair that opens every node, without a prompt and without known_hosts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Mapping

from .topology import Topology

_SERVER = """\
Port 22
ListenAddress 0.0.0.0
PidFile /run/sshd.pid
HostKey /root/.ssh/host_ed25519
AuthorizedKeysFile /root/.ssh/authorized_keys
PermitRootLogin yes
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
# The lab's folder belongs to whoever started it.
StrictModes no
# pdsh and CBT open many sessions at once.
MaxStartups 200:30:400
MaxSessions 200
PrintMotd no
Subsystem sftp internal-sftp
SetEnv {environment}
"""

_CLIENT = """\
Host *
  User root
  IdentityFile /root/.ssh/id_ed25519
  BatchMode yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  ConnectTimeout 5
  ServerAliveInterval 5
  ServerAliveCountMax 2
  GSSAPIAuthentication no
"""

#: A command over a connection that stands already takes 12 ms instead of 200: on two cores that is the
#: difference between measuring a cluster and measuring ssh. The price: up to 10 s to notice a crashed node.
_MULTIPLEX = """\
  ControlMaster auto
  ControlPath /run/ssh-%C
  ControlPersist 600
"""


def write_ssh(directory: Path, topology: Topology, environment: Mapping[str, str]) -> None:
    """Fill DIR/ssh, which every node shows as /root/.ssh, and DIR/etc/hosts."""
    home = directory / "ssh"
    home.mkdir(mode=0o700, exist_ok=True)
    for name in ("id_ed25519", "host_ed25519"):
        (home / name).unlink(missing_ok=True)
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(home / name)]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    shutil.copy(home / "id_ed25519.pub", home / "authorized_keys")
    given = " ".join(f'{name}="{value}"' for name, value in environment.items())
    (home / "sshd_config").write_text(_SERVER.format(environment=given))
    (home / "config").write_text(_CLIENT + (_MULTIPLEX if topology.mux else ""))
    (home / "config").chmod(0o600)
    hosts = ["127.0.0.1 localhost", *(f"{node.address} {node.name}" for node in topology.nodes.values())]
    (directory / "etc" / "hosts").write_text("\n".join(hosts) + "\n")
