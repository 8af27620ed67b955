"""The text of the file: comments on the cluster, and the sections that a run needs."""

from __future__ import annotations

import textwrap
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence

import yaml

from cbt_plugins.config.units import format_percent
from cbt_plugins.faults.cluster_facts import shape_of
from cbt_plugins.formatting import about_size, several
from cbt_plugins.formatting.screen import printable
from cbt_plugins.inventory import host_of

from .cluster_kind import Site
from .cycle import entries_of_cycle
from .discovery import Discovery
from .endpoints import Endpoints
from .entry import Entry

#: width of a comment, and of a value before its comment
_WIDE, _VALUE = 118, 44
#: most pools that are described
_POOLS = 20
#: roles that a file needs, and the nodes to name for them; for clients, the site says which
_REQUIRED = {
    "clients": "",
    "osds": "the nodes with OSDs",
    "mons": "the nodes with ceph-mons",
}
#: marks a line that the user must fill in
EDIT = "EDIT"


def text_of(header: Iterable[str], sections: Mapping[str, Any]) -> str:
    """Return a YAML text of comments and sections; a section is a mapping or a list, of any depth."""
    comments = [line for text in header for line in _comment(text)]
    return "\n".join([*comments, *_lines([Entry(key, value) for key, value in sections.items()], "")]) + "\n"


def _comment(text: str) -> List[str]:
    """Return the lines of a comment; no text of a cluster can end the comment."""
    wrapper = textwrap.TextWrapper(_WIDE, initial_indent="# ", subsequent_indent="#   ", break_long_words=False)
    wrapper.break_on_hyphens = False  # of a name that is copied
    return wrapper.wrap(_one_line(text)) or ["#"]


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _lines(entries: Sequence[Entry], indent: str) -> Iterator[str]:
    for entry in entries:
        behind = f"# {_one_line(entry.comment)}" if entry.comment else ""
        inner = entry.value if isinstance(entry.value, list) and isinstance((entry.value or [""])[0], Entry) else None
        line = "" if inner else f"{indent}{entry.key}: {_flow(entry.value)}"
        if len(line) > _WIDE and isinstance(entry.value, dict):
            inner = [Entry(str(key), value) for key, value in entry.value.items()]
        if inner:
            yield f"{indent}{entry.key}:" + (f"  {behind}" if behind else "")
            yield from _lines(inner, f"{indent}  ")
            continue
        if len(line) > _WIDE and isinstance(entry.value, list):
            yield f"{indent}{entry.key}:" + (f"  {behind}" if behind else "")
            yield from (f"{indent}  - {_flow(element)}" for element in entry.value)
        else:
            yield f"{line:<{_VALUE}}  {behind}" if behind else line


def _flow(value: Any) -> str:
    """Return a value as one line of YAML."""
    text = str(yaml.safe_dump([value], default_flow_style=True, sort_keys=False, width=1 << 20))
    return text.strip()[1:-1]


def header_of(
    cluster: Discovery, command: str, day: str, of_site: Sequence[str], remarks: Sequence[str]
) -> Iterator[str]:
    """Yield the comments at the beginning of the file."""
    status, space = cluster.status, cluster.space
    yield f"Made by `{command}` on {day}. Edit the lines marked {EDIT}. Then: cbt-tools plan FILE --live"
    yield ""
    fsid = cluster.facts.answers["status"].get("fsid", "")
    yield f"Cluster {fsid}, Ceph {cluster.release}, {status.health}"
    devices = sorted({device or "no device class" for device in cluster.devices})
    hosts = several(len(cluster.hosts["osds"]), "host")
    yield f"{several(status.osds, 'OSD')} on {hosts} ({', '.join(devices)}), {about_size(space.total)} raw, " + (
        f"{format_percent(round(space.used_share, 3))} used"
    )
    yield from (f"pool {text}" for text in _pools(cluster))
    zone = cluster.zone
    realm = f", realm {zone.realms[0]}" if len(zone.realms) == 1 else ""
    yield f"zone {zone.name} of zonegroup {zone.zonegroup}{realm}"
    yield from (f"gateway {g.id} on {g.host}: {'; '.join(g.frontends)}" for g in cluster.gateways)
    yield from of_site
    if remarks:
        yield ""
        yield from (f"WARNING: {text}" for text in remarks)
    yield ""


def _pools(cluster: Discovery) -> Iterator[str]:
    for pool in cluster.pools[:_POOLS]:
        domain, members = cluster.failure_domains(pool)
        spread = f" over {several(len(members), domain)}" if members else ""
        available = cluster.space.pools.get(pool["pool_name"])
        room = f", MAX AVAIL {about_size(available.max_avail)}" if available else ""
        number = several(int(pool["pg_num"]), "PG")
        yield f"{pool['pool_name']}: {shape_of(cluster.facts, pool)}{spread}, {number}{room}"
    if len(cluster.pools) > _POOLS:
        yield f"... {len(cluster.pools) - _POOLS} more pools of RGW"
    if cluster.data is None:
        yield f"{cluster.data_pool}: does not exist yet; RGW makes it for the first object"


def cluster_entries(
    cluster: Discovery, site: Site, clients: Sequence[str], silent: Mapping[str, str]
) -> List[Entry]:
    """Return the keys of `cluster:`. `silent`: nodes that cannot be reached."""

    def nodes(key: str, names: Sequence[str]) -> Entry:
        missing = [name for name in names if host_of(name) in silent]
        if key in _REQUIRED and not names:
            return Entry(key, [f"{key[:-1]}1"], f"{EDIT}: {_REQUIRED[key] or site.clients_text}")
        return Entry(key, list(names), f"{EDIT}: cannot be reached: {', '.join(missing)}" if missing else "")

    return [
        Entry("user", site.cluster["user"], site.user_text),
        Entry("head", site.cluster["head"], site.head_text),
        *(
            Entry(key, value, site.comments.get(key, ""))
            for key, value in site.cluster.items()
            if key not in ("user", "head", "clients")
        ),
        nodes("clients", clients),
        *(nodes(key, names) for key, names in cluster.hosts.items() if names or key in _REQUIRED),
        Entry("use_existing", True),
        Entry("iterations", 1),
        Entry("tmp_dir", "/var/tmp/cbt", "folder on clients, for the rows of requests"),
    ]


def s3_entries(endpoints: Endpoints, keys: Sequence[Entry], untrusted: Optional[str]) -> List[Entry]:
    """Return the keys of `s3:`. `untrusted`: name of an authority that clients do not trust, "" if it has no name."""
    entries = [Entry("urls", list(endpoints.urls), f"also: {', '.join(endpoints.also)}" if endpoints.also else "")]
    if endpoints.ca_file:
        entries.append(Entry("ca_file", endpoints.ca_file))
    elif untrusted is not None:
        issuer = f" ({untrusted})" if untrusted else ""
        comment = f"{EDIT}: PEM file on this machine with the authority of the certificates{issuer}"
        entries.append(Entry("# ca_file", "/path/to/ca.pem", comment))
    return [*entries, *keys]


def sections_of(
    cluster: Discovery, of_cluster: List[Entry], s3: List[Entry], clients: int, makes_user: bool
) -> Dict[str, Any]:
    """Return the sections of the file."""
    rgw = [Entry("rgw", {"make_user": True}, "the run makes the user and its keys, and removes both at its end")]
    entries = [Entry("s3", s3), *(rgw if makes_user else []), *entries_of_cycle(cluster, clients)]
    return {
        "cluster": of_cluster,
        "monitoring_profiles": {"resources": {}, "recovery": {}},
        "benchmarks": [Entry("rgwtest", entries)],
    }
