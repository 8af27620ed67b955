"""Checks before the first request: nodes, tools, clocks, endpoints, keys, free space; and the programs on the nodes."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List, Mapping, Optional, Sequence

import pydantic
import yaml

from cbt_plugins import __version__, archive_format
from cbt_plugins.cluster.ceph import Ceph, CephError, S3Keys
from cbt_plugins.cluster.clock import Offset, offsets
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.host import HostRun
from cbt_plugins.inventory import ROLES, head_of, nodes_of
from cbt_plugins.plan import S3, Plan
from cbt_plugins.programs import own_program

#: bytes that must be free for rows on a client node
ROOM = 1 << 30

#: what every node is asked: one `key value` a line
_FACTS = r"""
echo hostname $(hostname); echo kernel $(uname -r); echo arch $(uname -m); echo cores $(nproc)
echo memory_kib $(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)
echo python $(python3 -c 'import platform; print(platform.python_version())' 2>/dev/null)
echo os $(. /etc/os-release 2>/dev/null; echo "$PRETTY_NAME")
"""

_REACH = (
    "import http.client, ssl, sys\nfrom urllib.parse import urlsplit\n"
    "for u in sys.argv[1:]:\n"
    " s = urlsplit(u)\n"
    " try:\n"
    "  c = http.client.HTTPSConnection(s.netloc, timeout=10, context=ssl._create_unverified_context()) "
    "if s.scheme == 'https' else http.client.HTTPConnection(s.netloc, timeout=10)\n"
    "  c.request('GET', '/'); c.getresponse().read()\n"
    " except Exception as e: print(u, type(e).__name__, e)\n"
)


class PreflightError(Exception):
    """All errors that the checks have found; nothing was changed."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(errors))


@dataclass(frozen=True)
class Ready:
    """A cluster that is fit for the run: keys, clock offsets, programs on the clients, and the manifest."""

    keys: S3Keys
    offsets: Mapping[str, Offset]
    programs: Mapping[str, Mapping[str, str]]  # client node -> program -> its path there
    manifest: Dict[str, Any]


def check(host: HostRun, plan: Plan, remote: Remote, ceph: Ceph) -> Ready:
    """Check everything. Raises PreflightError with all errors."""
    clients = clients_of(plan)
    nodes = all_nodes(host.cluster, clients)
    try:
        facts = _facts(remote, nodes)
        skew = offsets(remote, nodes)
    except RemoteError as error:
        raise PreflightError([str(error)]) from error
    errors = [
        f"{node}: its clock is {o.seconds:+.3f} s off this machine's: synchronize the clocks (chrony)"
        for node, o in skew.items()
        if abs(o.seconds) > 1.0
    ]
    errors += [f"{n}: python3 is not installed" for n in [ceph.head, *clients] if not facts[n].get("python")]
    errors += _scratch_errors(remote, clients, host.run_dir)
    errors += _unreachable(remote, clients, plan.s3.urls)
    keys: Optional[S3Keys] = None
    programs: Dict[str, Dict[str, str]] = {}
    versions: Any = None
    try:
        keys = s3_keys(plan.s3, ceph)
        versions = ceph.json("versions")
        ceph.bucket("cbtp-preflight")  # radosgw-admin answers
    except CephError as error:
        errors.append(str(error))
    if not errors:
        try:
            programs = deploy(plan, remote, clients, host.run_dir)
            generators = {name: _version(remote, clients[0], path) for name, path in programs[clients[0]].items()}
        except (RemoteError, OSError) as error:
            errors.append(str(error))
    if errors or keys is None:
        raise PreflightError(errors)
    manifest = {
        "version": archive_format.VERSION,
        "cbt_plugins": __version__,
        "python": platform.python_version(),
        "pydantic": pydantic.VERSION,
        "pyyaml": yaml.__version__,
        "cbt": {"path": str(host.checkout.path), "commit": host.checkout.commit, "describe": host.checkout.describe}
        if host.checkout
        else None,
        **generators,
        "ceph": versions,
        "head": ceph.head,
        "command_line": list(sys.argv),
        "config_file": str(host.config_file) if host.config_file else None,
        "nodes": facts,
        "clock_offsets": {n: {"seconds": o.seconds, "error": o.error} for n, o in skew.items()},
    }
    return Ready(keys, skew, programs, manifest)


def clients_of(plan: Plan) -> List[str]:
    """Return the nodes that make load."""
    return list(dict.fromkeys(driver.node for driver in plan.drivers))


def all_nodes(cluster: Mapping[str, Any], clients: Sequence[str]) -> List[str]:
    """Return every node that the YAML names, the head first."""
    servers = [role for role in ROLES if role not in ("head", "clients")]
    return list(dict.fromkeys([head_of(cluster), *clients, *nodes_of(cluster, *servers)]))


def _facts(remote: Remote, nodes: Sequence[str]) -> Dict[str, Dict[str, str]]:
    answers = remote.run(nodes, _FACTS)
    facts = {}
    for node, result in answers.items():
        pairs = (line.split(None, 1) for line in result.stdout.splitlines() if line.strip())
        facts[node] = {p[0]: p[1].strip() if len(p) > 1 else "" for p in pairs}
    return facts


def _scratch_errors(remote: Remote, clients: Sequence[str], run_dir: str) -> List[str]:
    """Return errors of the scratch folder: it must be writable, local to each node, and have free space."""
    probe = str(PurePosixPath(run_dir) / "probe")
    try:
        remote.put({n: {probe: n.encode()} for n in clients})
        command = f"cat {shlex.quote(probe)}; echo; df -P -B1 {shlex.quote(run_dir)} | tail -1"
        answers = remote.run(clients, command)
    except RemoteError as error:
        return [f"tmp_dir {run_dir}: {error}"]
    errors = []
    for node, result in answers.items():
        owner, _, df = result.stdout.partition("\n")
        if owner != node:
            errors.append(f"{node}: {run_dir} is the same folder as on {owner}: set tmp_dir to a local folder")
        elif (free := int(df.split()[3])) < ROOM:
            errors.append(f"{node}: need {ROOM >> 20} MiB free in {run_dir} for request rows, found {free >> 20}")
    return errors


def _unreachable(remote: Remote, clients: Sequence[str], urls: Sequence[str]) -> List[str]:
    command = f"python3 -c {shlex.quote(_REACH)} {' '.join(shlex.quote(u) for u in urls)}"
    answers = remote.run(clients, command, timeout=15.0 * len(urls) + 15.0, check=False)
    return [f"{node}: no reply from {line}" for node, r in answers.items() for line in r.stdout.splitlines()]


def s3_keys(s3: S3, ceph: Ceph) -> S3Keys:
    """Return the keys from where the plan says. Raises CephError."""
    if s3.user:
        return ceph.user_keys(s3.user)
    return S3Keys(_secret(s3.access_key_source, "access_key"), _secret(s3.secret_key_source, "secret_key"))


def _secret(source: Optional[str], name: str) -> str:
    kind, _, place = (source or "").partition(":")
    try:
        value = os.environ[place] if kind == "env" else Path(place).expanduser().read_text().strip()
    except KeyError:
        raise CephError(f"s3.{name}: environment variable {place} is not set") from None
    except OSError as error:
        raise CephError(f"s3.{name}: {place}: {error.strerror}") from error
    if not value:
        raise CephError(f"s3.{name}: {place} is empty")
    return value


def programs_of(plan: Plan) -> List[str]:
    """Return the programs that the client nodes need for this plan."""
    loads = [p for p in plan.phases if p.kind != "wait"]
    wanted = ["cbt-rows"]
    if any(p.engine == "cbt-load" for p in loads):
        wanted.append("cbt-load")
    if any(p.engine == "warp" for p in loads):
        wanted.append("warp")
    return wanted


def deploy(plan: Plan, remote: Remote, clients: Sequence[str], run_dir: str) -> Dict[str, Dict[str, str]]:
    """Copy our programs to the clients; returns their paths there, with the plan's own warp.

    Raises OSError when one is missing here, RemoteError when one does not run there.
    """
    paths: Dict[str, str] = {}
    for name in programs_of(plan):
        if name == "warp" and plan.warp_path:
            paths[name] = plan.warp_path
            continue
        source = own_program(name)
        if source is None:
            hint = ", or set warp_path: to its path on the clients" if name == "warp" else ""
            raise OSError(f"{name} is not installed: run `cbt-tools build`{hint}")
        content = source.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        path = paths[name] = str(PurePosixPath(run_dir) / "bin" / name)
        answers = remote.run(clients, f"echo '{digest}  {path}' | sha256sum -c --status", check=False)
        lacking = [n for n, r in answers.items() if r.status]
        remote.put({n: {path: content} for n in lacking}, mode=0o755)
    for name, path in paths.items():
        quoted = shlex.quote(path)
        failed = f"{{ echo {quoted} does not run on this node >&2; exit 1; }}"
        remote.run(clients, f"{quoted} {_VERSION[name]} >/dev/null || {failed}")
    return {n: dict(paths) for n in clients}


#: argument with which each program prints its version
_VERSION = {"warp": "--version", "cbt-load": "version", "cbt-rows": "version"}


def _version(remote: Remote, node: str, path: str) -> str:
    asked = f"{shlex.quote(path)} {_VERSION.get(PurePosixPath(path).name, '--version')}"
    out = remote.run([node], asked, check=False)[node].stdout.strip()
    return out.splitlines()[0] if out else "unknown"
