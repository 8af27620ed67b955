"""Access to the cluster of a run from its folder alone, by any process: connections, ID and time limits of the run."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from cbt_plugins.archive_files import open_regular
from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.faults import undo_seal
from cbt_plugins.faults.command_runner import Way
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.step import FaultError
from cbt_plugins.faults.undo_journal import UndoJournal
from cbt_plugins.inventory import ROLES, nodes_of
from cbt_plugins.journal import ARCHIVE_VERSION, MOST, write_json
from cbt_plugins.plan import Settings

FILE = "cluster.json"
#: a run's ID is part of file names, and of commands on nodes
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FSID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: keys of the YAML's sections that are needed to reach nodes; none of them may hold a secret
_CLUSTER_KEYS_KEPT_FOR_UNDO = ("user", "conf_file", "ceph", "ceph_cmd", "radosgw-admin_cmd", "kubernetes")
_COMMON_KEYS_KEPT_FOR_UNDO = ("pdsh_cmd", "pdsh_ssh_args")
#: environment variable with the kubeconfigs of the user, and key of cluster.json; "": the user has set none
_KUBECONFIG = "KUBECONFIG"
#: key of `settings: limits:` -> field of `ClusterLimits`
LIMITS: Mapping[str, str] = {"command": "quick", "daemons": "slow", "down": "down", "back": "back", "boot": "boot"}
_EVENT = "limits"


class AnotherCluster(FaultError):
    """The cluster was recreated after the run: the archive's changes and data are not those of this cluster."""


@dataclass(frozen=True)
class ClusterAccess:
    """Access to the cluster for one run; `cluster` and `common` are sections of the YAML."""

    remote: Remote
    ceph: Ceph
    cluster: Mapping[str, Any]
    common: Mapping[str, Any] = field(default_factory=dict)
    run_id: str = "run"
    trusted: bool = False  # the user has read the open changes and trusts whoever wrote them
    admin: bool = True  # False: Ceph's commands are not installed; only the user's own commands are undone
    former: Tuple[Way, ...] = ()  # earlier ways to the cluster, which recorded commands still contain
    sealed: bool = False  # cluster.json, where the ID is from, has a valid seal of this user
    #: the content of cluster.json, so that the file is not read a second time after its seal was checked
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)


def ensure(folder: Path, access: ClusterAccess, limits: ClusterLimits, is_new: bool = False) -> ClusterAccess:
    """Return the access for the run of this folder, with the ID and the former ways of its cluster.json.

    Writes cluster.json if it is missing, and again if the sections now name other nodes. All processes of a run have
    the same ID, which marks what the run leaves on nodes and in the cluster. Raises FaultError, also when the run has
    used another cluster. `is_new`: the run has done nothing yet, so the cluster that answers is its cluster.
    """
    if not access.document and not os.path.lexists(folder / FILE):
        write(folder, access, _fsid(access, limits.quick))
    document, cluster, run_id = _parsed(folder, access.document) if access.document else _read(folder, own=True)
    before, now = Ceph(access.remote, cluster), Way.of(access.ceph)
    ways = dict.fromkeys([*_former(document, access.trusted), Way.of(before)])
    former = tuple(way for way in ways if way != now)
    access = replace(access, run_id=run_id, former=former, sealed=_is_sealed(document))
    if is_new and not document.get("fsid"):
        document["fsid"] = _fsid(access, limits.quick)
        if document["fsid"]:
            write(folder, access, document["fsid"])
    sections = _sections(access)
    # what was read from the file is not written back: an undo does not change the file
    if not access.document and any(document.get(name) != section for name, section in sections.items()):
        fsid = str(document.get("fsid") or "")
        places = (_place(before, document), _place(access.ceph, sections))
        if access.admin and (Way.of(before) != now or places[0] != places[1]):
            _check_same(folder, places, (fsid, _fsid(access, limits.quick)))
        write(folder, access, fsid)
    return access


def refuse_another(folder: Path, access: ClusterAccess, timeout: float, is_open: bool) -> None:
    """Raise AnotherCluster when the cluster was recreated after the run. `is_open`: changes of the run are open."""
    document = access.document or _read(folder, own=True)[0]
    recorded = str(document.get("fsid") or "")
    answer = _fsid(access, timeout) if recorded else ""
    if answer and answer != recorded:
        text = f"{folder} belongs to cluster {recorded}, but {access.ceph.head} belongs to cluster {answer}"
        advice = "nothing was undone; to undo the open changes nevertheless: `cbt-tools undo --trust`"
        raise AnotherCluster(f"{text}: {advice if is_open else 'use another archive directory'}")


def _is_sealed(document: Mapping[str, Any]) -> bool:
    """Tell whether this user wrote a cluster.json on this machine. Raises FaultError."""
    return undo_seal.holds(document.get("seal"), {key: value for key, value in document.items() if key != "seal"})


def _former(document: Mapping[str, Any], trusted: bool) -> Iterator[Way]:
    """Yield the former ways of a cluster.json; no ways if other users may have written the file."""
    if "former" in document and (trusted or _is_sealed(document)):
        yield from (Way(*map(str, way)) for way in document["former"])


def write(folder: Path, access: ClusterAccess, fsid: str = "") -> None:
    """Write the cluster.json of a run. `fsid`: the ID of the cluster, "" if it is unknown.

    It has the present way, too: a later version may build other commands from the same sections.
    """
    ways = dict.fromkeys([*access.former, Way.of(access.ceph)])
    document = {
        "version": ARCHIVE_VERSION,
        "run_id": access.run_id,
        **_sections(access),
        "PDSH_SSH_ARGS_APPEND": os.environ.get("PDSH_SSH_ARGS_APPEND", ""),
        **({} if access.admin else {"admin": False}),
        **({"fsid": fsid} if fsid else {}),
        "former": [list(way) for way in ways],
    }
    write_json(folder / FILE, {**document, "seal": undo_seal.of(document)})


def _sections(access: ClusterAccess) -> Dict[str, Any]:
    """Return the keys by which nodes are reached, with the name of the transport of each node.

    Paths of kubeconfigs are absolute: an undo may run in another folder, where others may have such a file.
    """
    cluster, common = access.cluster, access.common
    transports = {node: access.remote.transport_name(node) for node in nodes_of(cluster)}
    nodes = {role: _plain(cluster[role]) for role in ROLES if cluster.get(role)}
    ways = {key: cluster[key] for key in _CLUSTER_KEYS_KEPT_FOR_UNDO if cluster.get(key)}
    environment = {}
    if isinstance(ways.get("kubernetes"), Mapping):
        files = filter(None, os.environ.get(_KUBECONFIG, "").split(os.pathsep))
        environment[_KUBECONFIG] = os.pathsep.join(map(os.path.abspath, files))
        if ways["kubernetes"].get("kubeconfig"):
            ways["kubernetes"] = {**ways["kubernetes"], "kubeconfig": os.path.abspath(ways["kubernetes"]["kubeconfig"])}
    return {
        "cluster": {**nodes, **ways, "transport": transports},
        "common": {k: common[k] for k in _COMMON_KEYS_KEPT_FOR_UNDO if common.get(k)},
        **environment,
    }


def _fsid(access: ClusterAccess, timeout: float) -> str:
    """Return the ID of the cluster, "" if the cluster does not answer."""
    if not access.admin:
        return ""
    try:
        output = access.ceph.run(f"{access.ceph.command} fsid 2>/dev/null", timeout).stdout.strip()
    except (RemoteError, OSError):
        return ""
    return output if _FSID.fullmatch(output) else ""


def _place(ceph: Ceph, sections: Mapping[str, Any]) -> str:
    """Return in words where a cluster is reached; `sections`: those of its cluster.json."""
    kubernetes, kubeconfigs = sections["cluster"].get("kubernetes"), sections.get(_KUBECONFIG)
    words = [f"head {ceph.head}", ceph.conf_file]
    if isinstance(kubernetes, Mapping):
        words += [f"{key} {kubernetes[key]}" for key in ("context", "kubeconfig") if kubernetes.get(key)]
    return ", ".join([*words, *([f"{_KUBECONFIG}={kubeconfigs}"] if kubeconfigs else [])])


def _check_same(folder: Path, places: Tuple[str, str], fsids: Tuple[str, str]) -> None:
    """Raise FaultError when the cluster that answers is not, or may not be, the cluster of a folder.

    The first place and ID are those of the folder.
    """
    values = fsids if all(fsids) else places
    if values[0] != values[1]:
        old, new = (f"cluster {fsid or 'of unknown fsid'} ({place})" for fsid, place in zip(fsids, places))
        raise FaultError(f"{folder} belongs to {old}, but this run uses {new}: use another archive directory")


def _plain(value: Any) -> Any:
    # the keys of a mapping are nodes; its values may be anything
    return [str(key) for key in value] if isinstance(value, (dict, list, tuple)) else value


def _read(folder: Path, own: bool) -> Tuple[Dict[str, Any], Dict[str, Any], str]:
    try:
        with open_regular(folder / FILE, MOST, own) as file:
            document = json.loads(file.read().decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _unusable(folder, error) from error
    return _parsed(folder, document)


def _parsed(folder: Path, document: Mapping[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any], str]:
    try:
        if not RUN_ID.fullmatch(str(document["run_id"])):
            raise ValueError(f"run_id is {document['run_id']!r}")
        return dict(document), dict(document["cluster"]), str(document["run_id"])
    except (ValueError, KeyError, TypeError) as error:
        raise _unusable(folder, error) from error


def _unusable(folder: Path, error: Exception) -> FaultError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    return FaultError(f"{folder / FILE}: {why}: without this file the cluster cannot be reached")


def read(folder: Path, trusted: bool = False) -> ClusterAccess:
    """Return the access of the run of this folder. Raises FaultError, also when another user wrote it: see `seal`."""
    document, cluster, run_id = _read(folder, own=not trusted)
    if not trusted and not _is_sealed(document):
        raise FaultError(undo_seal.refusal(folder / FILE))
    # the run used the same options of ssh
    if document.get("PDSH_SSH_ARGS_APPEND"):
        os.environ.setdefault("PDSH_SSH_ARGS_APPEND", str(document["PDSH_SSH_ARGS_APPEND"]))
    # and the same kubeconfigs: those of now may have another cluster in a context of the same name
    if document.get(_KUBECONFIG):
        os.environ[_KUBECONFIG] = str(document[_KUBECONFIG])
    elif _KUBECONFIG in document:
        os.environ.pop(_KUBECONFIG, None)
    common = document.get("common", {})
    remote = Remote.of_cluster(cluster, common)
    admin = document.get("admin") is not False
    return ClusterAccess(remote, Ceph(remote, cluster), cluster, common, run_id, trusted, admin, document=document)


def limits_of(settings: Settings, base: Optional[ClusterLimits] = None) -> ClusterLimits:
    """Return the limits of a plan; a limit that the plan does not set is as in `base`."""
    base = base or ClusterLimits()
    named = replace(base, **{LIMITS[name]: seconds for name, seconds in settings.limits.items()})
    # a map that is slow to show daemons down also shows them up for that long
    return replace(named, lag=max(base.lag, named.down)) if named.down > base.down else named


def remembered(journal: UndoJournal, settings: Optional[Settings]) -> Settings:
    """Return the settings of a run after writing down their limits; without settings, the limits written before."""
    lines = [line["seconds"] for line in journal.records if line["event"] == _EVENT]
    before = lines[-1] if lines else {}
    if settings is None:
        return Settings(limits=before)
    if dict(settings.limits) != before:
        journal.say(_EVENT, seconds=dict(settings.limits))
    return settings
