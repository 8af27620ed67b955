"""How the cluster of a run is reached, from its archive alone: by another process, another day."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Mapping, Tuple

from cbt_plugins import archive_format
from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.faults.step import FaultError
from cbt_plugins.inventory import ROLES
from cbt_plugins.journal import write_json

FILE = "cluster.json"
#: of the YAML's sections: what reaching nodes takes, and nothing that may be secret
_CLUSTER = (*ROLES, "user", "conf_file", "ceph_cmd", "radosgw-admin_cmd")
_COMMON = ("pdsh_cmd", "pdsh_ssh_args")


def settle(folder: Path, cluster: Mapping[str, Any], common: Mapping[str, Any], run_id: str) -> str:
    """The id of the run that has this folder: what its cluster.json says, which is written if there is none.

    Every process of a run has the same: on the nodes and in the cluster it tells what is this run's. Raises FaultError.
    """
    if not (folder / FILE).exists():
        _write(folder, cluster, common, run_id)
    return _read(folder)[2]


def _write(folder: Path, cluster: Mapping[str, Any], common: Mapping[str, Any], run_id: str) -> None:
    """Whole and on disk before this returns."""
    document = {
        "version": archive_format.VERSION,
        "run_id": run_id,
        "cluster": {k: _plain(cluster[k]) for k in _CLUSTER if cluster.get(k)},
        "common": {k: common[k] for k in _COMMON if common.get(k)},
        "PDSH_SSH_ARGS_APPEND": os.environ.get("PDSH_SSH_ARGS_APPEND", ""),
    }
    write_json(folder / FILE, document)


def _plain(value: Any) -> Any:
    # a mapping has nodes for its keys; what is below may be anything
    return [str(key) for key in value] if isinstance(value, (dict, list, tuple)) else value


def _read(folder: Path) -> Tuple[Dict[str, Any], Dict[str, Any], str]:
    path = folder / FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return document, dict(document["cluster"]), str(document["run_id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FaultError(f"{path}: {error}: how the cluster is reached is not known") from error


def read(folder: Path) -> Tuple[Dict[str, Any], Remote, Ceph, str]:
    """cluster section, connections, cluster, run id. Raises FaultError."""
    document, cluster, run_id = _read(folder)
    # the way that the run itself came by
    if document.get("PDSH_SSH_ARGS_APPEND"):
        os.environ.setdefault("PDSH_SSH_ARGS_APPEND", str(document["PDSH_SSH_ARGS_APPEND"]))
    remote = Remote.from_host(cluster, document.get("common", {}))
    return cluster, remote, Ceph(remote, cluster), run_id
