"""Where the programs of Ceph are on the head: installed there, or in the container that `cephadm shell` opens."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

from cbt_plugins.cluster.shell_programs import script_command
from cbt_plugins.config.cluster import CEPHADM, DEFAULT_CONF, conf_file, installed_program

_SHELL = Path(__file__).with_name("cephadm_shell.sh")
#: the distribution's Python is the one that has Ceph's bindings
_PYTHON = "$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)"


@dataclass(frozen=True)
class CephPrograms:
    """Shell text of each program, for the head; its arguments follow. `prefix` is what runs a program where it is."""

    prefix: str
    conf: str  # ceph.conf as the programs see it
    ceph: str
    admin: str  # radosgw-admin
    python: str  # one that has Ceph's bindings, if there is any
    ceph_there: str  # `ceph` for what runs where it is

    @classmethod
    def of(cls, cluster: Mapping[str, Any]) -> CephPrograms:
        """Return the programs as the YAML's `cluster:` section says."""
        conf = conf_file(cluster)
        if cluster.get("ceph") == CEPHADM:
            prefix = script_command(_SHELL, "-" if conf == DEFAULT_CONF else conf) + " "
            # with options that name a zone, at most
            ceph, admin = f"{prefix}ceph", prefix + str(cluster.get("radosgw-admin_cmd") or "radosgw-admin")
            return cls(prefix, DEFAULT_CONF, ceph, admin, f"{prefix}python3", "ceph")
        ceph = installed_program(cluster, "ceph")
        return cls("", conf, ceph, installed_program(cluster, "radosgw-admin"), _PYTHON, ceph)


def readable(text: str) -> str:
    """Return a command for people: with `cephadm shell --` in the place of the program that keeps it open."""
    if _SHELL.name not in text:
        return text
    program = script_command(_SHELL)
    for quoted in (program, shlex.quote(program)[1:-1]):
        text = text.replace(f"{quoted} - ", "cephadm shell -- ").replace(f"{quoted} ", "cephadm shell -c ")
    return text
