"""Checks before the first request: nodes, tools, clocks, rights, endpoints, keys, free space, the cluster's state; and
the programs on the nodes."""

from __future__ import annotations

import hashlib
import logging
import platform
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pydantic
import yaml

from cbt_plugins import __version__
from cbt_plugins.cbt_run import CbtRun
from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.cluster.clock_offsets import Offset, offsets
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.cluster.shell_programs import find_own, own_here, program_text
from cbt_plugins.config import plugins
from cbt_plugins.config.generator_classes import generators_of, wants_ceiling
from cbt_plugins.formatting import about_size
from cbt_plugins.journal import ARCHIVE_VERSION
from cbt_plugins.load.generator import Generator
from cbt_plugins.plan import Plan
from cbt_plugins.programs import NULL_SERVER, cache_dir, own_program
from cbt_plugins.run.cluster_fitness import await_conditions
from cbt_plugins.run.context import RunContext
from cbt_plugins.run.endpoints import authority_of, errors_of_endpoints
from cbt_plugins.run.fault_rights import errors_of_rights
from cbt_plugins.run.fill_goal import reached_before, room_warnings
from cbt_plugins.run.s3_key_sources import keys_of_users, owners_of, s3_keys, token_errors

log = logging.getLogger(__name__)

#: seconds that a node's clock may be off
MAX_SKEW = 1.0
#: of what runs on nodes
_OLDEST = "3.6"
#: bytes that must be free for rows on a client node
ROOM = 1 << 30

#: version of a program that did not tell it
UNKNOWN = "unknown"

#: shell text that prints what a node is, one `key value` a line
FACTS = program_text(Path(__file__).parent / "node_facts.sh")

class PreflightError(Exception):
    """All errors of the checks; nothing was changed."""

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
    authority: Optional[str] = None  # path of s3.ca_file on the clients
    others: Tuple[S3Keys, ...] = ()  # of Plan.users


def check(run: RunContext) -> Ready:
    """Check everything. Raises PreflightError with all errors."""
    remote, ceph, clients = run.remote, run.ceph, run.clients
    log.info("checking %d nodes and the cluster", len(run.nodes))
    try:
        facts = _facts(remote, run.nodes)
        without = python_errors(run, facts)
        if without:
            raise PreflightError(without)
        skew = offsets(remote, run.nodes)
    except RemoteError as error:
        raise PreflightError([str(error)]) from error
    errors = [
        f"{node}: its clock differs by {o.seconds:+.3f} s from this machine's: synchronize the clocks (chrony)"
        for node, o in skew.items()
        if abs(o.seconds) > MAX_SKEW
    ]
    errors += errors_of_rights(run)
    errors += _scratch_errors(remote, clients, run.cbt_run.run_dir)
    try:
        authority = authority_of(run.plan.s3)
        # the keys of a user that the run makes are not there yet
        later = run.plan.rgw.make_user
        keys = S3Keys("", "") if later else s3_keys(run.plan.s3, ceph)
        others = () if later else keys_of_users(run.plan, ceph)
        owned = {} if later else owners_of(run.plan, keys, others)
        errors += token_errors(run.plan, keys) + errors_of_endpoints(remote, clients, run.plan.s3, authority, owned)
        versions: Any = {}
        if run.plan.admin:
            versions = ceph.json("versions")
            ceph.bucket("cbtp-preflight")  # radosgw-admin answers
            errors += await_conditions(run)
            errors += _errors_of_fills(run)
    except CephError as error:
        raise PreflightError([*errors, str(error)]) from error
    if errors:
        raise PreflightError(errors)
    try:
        paths = deploy(run)
        arguments = programs_of(run.plan)
        generators = {
            name: _version(remote, clients[0], path, arguments[name]) + _digest(run.plan, name)
            for name, path in paths.items()
        }
    except (RemoteError, OSError) as error:
        raise PreflightError([str(error)]) from error
    place = str(PurePosixPath(run.cbt_run.run_dir) / "bin" / "ca.pem") if authority else None
    if place:
        remote.put({client: {place: authority} for client in clients}, mode=0o600)
    manifest = {
        **_ourselves(run.cbt_run),
        "payload": _payloads(run.plan, versions),
        **generators,
        "ceph": versions,
        "head": ceph.head,
        "nodes": facts,
        "clock_offsets": {n: {"seconds": o.seconds, "error": o.error} for n, o in skew.items()},
    }
    return Ready(keys, skew, {client: paths for client in clients}, manifest, place, others)


def _errors_of_fills(run: RunContext) -> List[str]:
    """Return an error for each fill by `raw` whose share is already used; log a warning for one without room."""
    if run.journal.all("phase-begun"):  # then what is used may be the run's own
        return []
    for warning in room_warnings(run.ceph, [run.plan]):
        log.warning("%s", warning)
    return reached_before(run.ceph, run.plan.phases)


def _payloads(plan: Plan, versions: Mapping[str, Any]) -> Dict[str, str]:
    """Return engine -> "signed" or "unsigned" payloads."""
    payloads = {engine: of.payload(plan, versions) for engine, of in generators_of(plan).items()}
    for engine, payload in payloads.items():
        if payload != plan.s3.payload:
            log.warning("%s: payloads are %s: RGW of this release allows no other kind", engine, payload)
    return payloads


def _ourselves(cbt_run: CbtRun) -> Dict[str, Any]:
    """Return this program and CBT, as the manifest has them."""
    tree = cbt_run.checkout
    return {
        "version": ARCHIVE_VERSION,
        "cbt_plugins": __version__,
        "python": platform.python_version(),
        "pydantic": pydantic.VERSION,
        "pyyaml": yaml.__version__,
        "cbt": {"path": str(tree.path), "commit": tree.commit, "describe": tree.describe} if tree else None,
        "command_line": list(sys.argv),
        "config_file": str(cbt_run.config_file) if cbt_run.config_file else None,
    }


def _facts(remote: Remote, nodes: Sequence[str]) -> Dict[str, Dict[str, str]]:
    answers = remote.run(nodes, FACTS)
    facts = {}
    for node, result in answers.items():
        pairs = (line.split(None, 1) for line in result.stdout.splitlines() if line.strip())
        facts[node] = {p[0]: p[1].strip() if len(p) > 1 else "" for p in pairs}
    return facts


def python_errors(run: RunContext, facts: Mapping[str, Mapping[str, str]]) -> List[str]:
    """Return the nodes whose python3 cannot run what is sent to them: the run's own, and those of monitors' agents."""
    wanted = {node: ["the run"] for node in [run.ceph.head, *run.clients]}
    for name, config in run.cbt_run.profiles.items():
        monitors = plugins.references(plugins.MONITORS)
        if name in monitors and getattr(plugins.load(plugins.MONITORS, name), "RECONNECTS", False):
            monitor = plugins.load(plugins.MONITORS, name)(config or {}, run.cbt_run.cluster, run.cbt_run.common)
            for node in monitor.nodes:
                wanted.setdefault(node, []).append(name)
    errors = []
    for node, names in wanted.items():
        version = facts.get(node, {"python": _OLDEST}).get("python", "")
        if _numbers(version) < _numbers(_OLDEST):
            finding = f"python3 is {version}" if version else "python3 is not installed"
            need = "needs" if len(names) == 1 else "need"
            errors.append(f"{node}: {finding}, but {', '.join(names)} {need} {_OLDEST} or newer on this node")
    return errors


def _numbers(version: str) -> Tuple[int, ...]:
    return tuple(int(number) for number in version.split(".") if number.isdigit())


def _scratch_errors(remote: Remote, clients: Sequence[str], run_dir: str) -> List[str]:
    """Return errors of the scratch folder: it must be writable, local to each node, and have free space."""
    probe = str(PurePosixPath(run_dir) / "probe")
    try:
        remote.put({n: {probe: n.encode()} for n in clients})
        command = f"cat -- {shlex.quote(probe)}; echo; df -P -B1 -- {shlex.quote(run_dir)} | tail -1"
        answers = remote.run(clients, command)
    except RemoteError as error:
        return [f"tmp_dir {run_dir}: {error}"]
    errors = []
    for node, result in answers.items():
        owner, _, df = result.stdout.partition("\n")
        if owner != node:
            errors.append(f"{node}: {run_dir} is the same folder as on {owner}: set tmp_dir to a local folder")
        elif (free := int(df.split()[3])) < ROOM:
            rows = f"{about_size(ROOM)} free in {run_dir} for request rows"
            errors.append(f"{node}: need {rows}, found {about_size(free)}")
    return errors


def programs_of(plan: Plan) -> Dict[str, str]:
    """Return the programs that the client nodes need for this plan, each with what makes it print its version."""
    server = {NULL_SERVER: "version"} if wants_ceiling(plan) else {}
    return {"cbt-rows": "version", **server, **{of.program: of.version for of in generators_of(plan).values()}}


def paths_on_clients(plan: Plan) -> Dict[str, str]:
    """Return the programs of a plan's generators that the clients have already, with their paths there."""
    paths = {of.program: of.path_on_clients(plan) for of in generators_of(plan).values()}
    return {program: path for program, path in paths.items() if path}


def deploy(run: RunContext) -> Dict[str, str]:
    """Copy our programs to the clients; returns their paths there, and that of the plan's own warp.

    Raises OSError when one is missing here, RemoteError when one does not run there.
    """
    remote, clients = run.remote, run.clients
    paths = paths_on_clients(run.plan)
    wanted = programs_of(run.plan)
    remedies = {of.program: of.remedy for of in generators_of(run.plan).values()}
    for name in wanted:
        if name in paths:
            continue
        source = own_program(name)
        if source is None:
            raise OSError(f"{name} is not installed: {remedies.get(name, Generator.remedy)}")
        if cache_dir() in source.parents:  # what is on PATH is the business of whoever set that
            own_here(source.parent, "look")
        content = source.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        path = paths[name] = str(PurePosixPath(run.cbt_run.run_dir) / "bin" / name)
        has = f"{find_own(str(PurePosixPath(path).parent))}echo '{digest}  {path}' | sha256sum -c --status && echo has"
        answers = remote.run(clients, has, check=False)
        lacking = [n for n, r in answers.items() if r.stdout.strip() != "has"]
        remote.put({n: {path: content} for n in lacking}, mode=0o700)
    for name, path in paths.items():
        quoted = shlex.quote(path)
        failed = f"{{ echo {quoted} does not run on this node >&2; exit 1; }}"
        remote.run(clients, f"{quoted} {wanted[name]} >/dev/null || {failed}")
    return paths


def _digest(plan: Plan, name: str) -> str:
    """Return the mark that tells a program of somebody else's from others that say the same version."""
    source = own_program(name)
    if source is None or cache_dir() in source.parents or name in paths_on_clients(plan):
        return ""
    return f" (sha256 {hashlib.sha256(source.read_bytes()).hexdigest()[:16]})"


def _version(remote: Remote, node: str, path: str, argument: str) -> str:
    out = remote.run([node], f"{shlex.quote(path)} {argument}", check=False)[node].stdout.strip()
    return out.splitlines()[0] if out else UNKNOWN
