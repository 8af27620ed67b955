"""Files of a lab's nodes: ssh and its keys, /etc/hosts, certificates of RGWs, links to this project."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Mapping

import cbt_plugins

from .ceph_conf import TLS_AUTHORITY, TLS_KEY
from .requirements import LabError
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


def write_tls(config: Path, topology: Topology) -> bool:
    """Make a certificate for all RGWs, which is its own authority; returns False without openssl."""
    names = [node.name for node in topology.nodes.values() if node.rgw]
    if not names or shutil.which("openssl") is None:
        return False
    key, authority = config / TLS_KEY, config / TLS_AUTHORITY
    alternatives = ",".join(f"DNS:{name},IP:{topology.nodes[name].address}" for name in names)
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-days", "3650", "-subj", "/CN=lab", "-addext", f"subjectAltName={alternatives}"]
    with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        argv += ["-keyout", "-", "-out", str(authority)]
        result = subprocess.run(argv, stdout=file, stderr=subprocess.PIPE, timeout=60)
        if result.returncode:
            raise LabError(f"openssl made no certificate: {result.stderr.decode(errors='replace').strip()}")
        file.write(authority.read_bytes())
    return True


def write_links(folder: Path) -> None:
    """Make a folder with this project as it would be installed, in links: another Python than ours imports it there."""
    shutil.rmtree(folder, ignore_errors=True)
    package, home = folder / "cbt_plugins", Path(str(cbt_plugins.__file__)).resolve().parent
    package.mkdir(parents=True)
    parts = {path.name: path for path in home.iterdir() if path.name != "__pycache__"}
    for name in ("monitors", "tools"):  # beside the package in a checkout
        parts.setdefault(name, home.parent / name)
    for name, path in parts.items():
        (package / name).symlink_to(path)
    distribution = metadata.distribution("cbt-plugins")
    dist_info = folder / f"cbt_plugins-{distribution.version}.dist-info"
    dist_info.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (dist_info / name).write_text(distribution.read_text(name) or "")


def write_ssh(directory: Path, topology: Topology, environment: Mapping[str, str]) -> None:
    """Fill DIR/ssh, which every node shows as /root/.ssh, and DIR/etc/hosts."""
    home = directory / "ssh"
    home.mkdir(mode=0o700, exist_ok=True)
    for name in ("id_ed25519", "host_ed25519"):
        (home / name).unlink(missing_ok=True)
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(home / name)]
        result = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if result.returncode:  # also where /etc/passwd has no line for this user, or cannot be read
            raise LabError(f"ssh-keygen made no key: {(result.stderr or result.stdout).strip()}")
    shutil.copy(home / "id_ed25519.pub", home / "authorized_keys")
    given = " ".join(f'{name}="{value}"' for name, value in environment.items())
    (home / "sshd_config").write_text(_SERVER.format(environment=given))
    (home / "config").write_text(_CLIENT + (_MULTIPLEX if topology.mux else ""))
    (home / "config").chmod(0o600)
    hosts = ["127.0.0.1 localhost", *(f"{node.address} {node.name}" for node in topology.nodes.values())]
    (directory / "etc" / "hosts").write_text("\n".join(hosts) + "\n")
