"""The keys of CBT's `cluster:` section that we depend on; CBT's others pass unread."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, Dict, FrozenSet, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, field_validator

from cbt_plugins.config import plugins
from cbt_plugins.config.errors import Path, did_you_mean
from cbt_plugins.config.key_errors import FieldError, FieldErrors
from cbt_plugins.config.kubernetes import KubernetesSection, errors_of_pods
from cbt_plugins.config.shell_values import AbsolutePath, FilePath, Login, Program, check_arguments
from cbt_plugins.inventory import ROLES, check_node_name, head_of, host_of, nodes_of, split_names


def _nodes(value: Any) -> Any:
    # CBT reads a list, or a mapping whose keys are the nodes.
    return list(value) if isinstance(value, dict) else value


#: of a node where nothing else is said, and of cephadm's container in any case
DEFAULT_CONF = "/etc/ceph/ceph.conf"
#: value of `ceph`: the programs of Ceph are in the container that `cephadm shell` opens
CEPHADM = "cephadm"
#: the one command that may stand beside `ceph: cephadm`: it says on which zone it works, not where the program is
_ADMIN_OF_ZONE = re.compile(r"radosgw-admin(?: --rgw-(?:realm|zonegroup|zone)=\S+)+")
Node = Annotated[str, BeforeValidator(check_node_name), WithJsonSchema({"type": "string", "pattern": r"^\S+$"})]
_List = Annotated[List[Node], Field(min_length=1)]
_LIST_OR_MAPPING = {
    "anyOf": [
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": "object", "minProperties": 1},
    ]
}
#: ours by name, for the editor's list; another distribution's may be installed where the file is used
_TRANSPORT = {"anyOf": [{"enum": plugins.built_in(plugins.TRANSPORTS)}, {"type": "string", "minLength": 1}]}
_TRANSPORTS = {"anyOf": [*_TRANSPORT["anyOf"], {"type": "object", "additionalProperties": _TRANSPORT}]}
NodesOrMapping = Annotated[_List, BeforeValidator(_nodes), WithJsonSchema(_LIST_OR_MAPPING)]


def conf_file(cluster: Mapping[str, Any]) -> str:
    """Return the path of ceph.conf on the head."""
    return str(cluster.get("conf_file") or DEFAULT_CONF)


def installed_program(cluster: Mapping[str, Any], name: str) -> str:
    """Return the command line of a program of Ceph that is installed on the head, for arguments to follow."""
    return f"{cluster.get(f'{name}_cmd') or name} -c {shlex.quote(conf_file(cluster))}"


#: -l%u, or -l before %u, perhaps behind options without a value; and another way to name the user
_LOGIN = re.compile(r"-([46AaCfGgKkMNnqsTtVvXxYy]*)l(%u)?")
_PLACED_USER = re.compile(r"(-o)?(user=)?%u", re.IGNORECASE)


def ssh_options(pdsh_ssh_args: str) -> Tuple[str, ...]:
    """Return the words of `pdsh_ssh_args` without pdsh's placeholders, -l%u and %h: ssh is given user and host by us.

    Raises ValueError for an open quotation.
    """
    words, options = shlex.split(pdsh_ssh_args), []
    while words:
        word = words.pop(0)
        login = _LOGIN.fullmatch(word)
        if login and (login[2] or words[:1] == ["%u"]):
            del words[: 0 if login[2] else 1]
            options += [f"-{login[1]}"] if login[1] else []
        elif word != "%h":
            options.append(word)
    return tuple(options)


def node_errors(cluster: Mapping[str, Any], roles: Sequence[str] = ROLES) -> Iterator[FieldError]:
    """Yield each node whose name cannot be used: all that is checked of the section beside CBT's own benchmarks."""
    for role in roles:
        value = cluster.get(role)
        if value is not None and not isinstance(value, (str, list, dict)):
            yield FieldError((role,), "must be a host name, a list of them, or a mapping from them")
            continue
        for place, entry in [((role,), value)] if isinstance(value, str) else _entries(role, value):
            try:
                for name in split_names(entry) if isinstance(entry, str) else [entry]:
                    check_node_name(name)
            except ValueError as error:
                yield FieldError(place, str(error), of_key=isinstance(value, dict))


def errors_of_case(cluster: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield each key that names a host in other capitals than one before it: it would count as two nodes."""
    spelled: Dict[str, str] = {}
    for role in ROLES:
        for host in map(host_of, split_names(cluster.get(role))):
            first_spelling = spelled.setdefault(host.lower(), host)
            if first_spelling != host:
                yield FieldError((role,), f"{host} and {first_spelling} are one host: write it in one way")


def errors_of_transports(cluster: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield each transport that is not installed or lacks its keys, and each node that the section does not have."""
    value, hosts = cluster.get("transport"), nodes_of(cluster)
    by_place = {(node,): name for node, name in value.items()} if isinstance(value, dict) else {(): value}
    names = plugins.names(plugins.TRANSPORTS)
    for place, name in by_place.items() if value is not None else ():
        if place and host_of(str(place[0])) not in hosts:
            yield FieldError(("transport", *place), f"the section has no node {place[0]!r}", of_key=True)
        elif name not in names:
            hint = did_you_mean(name, names) if isinstance(name, str) else ""
            text = f"no transport {name!r} is installed; installed are {', '.join(names)}{hint}"
            yield FieldError(("transport", *place), text)
        elif name in plugins.built_in(plugins.TRANSPORTS):
            for key in plugins.load(plugins.TRANSPORTS, name).needs:
                if not cluster.get(key):
                    yield FieldError(("transport", *place), f"{name} needs the key `{key}:` of `cluster:`")
    yield from errors_of_pods(cluster, hosts)


def is_head_a_pod(cluster: Mapping[str, Any]) -> bool:
    """Return whether Ceph's programs are in a pod, as on a cluster of Rook: by the transport that the head names."""
    return head_of(cluster) in _pods(cluster, [head_of(cluster)])


def nodes_in_pods(cluster: Mapping[str, Any]) -> FrozenSet[str]:
    """Return the nodes whose daemons are in pods, by Rook: all if the head is a pod, else nodes that are pods."""
    if is_head_a_pod(cluster):
        return frozenset(nodes_of(cluster))
    roles = [role for role in ROLES if role not in ("head", "clients", "watched")]
    return _pods(cluster, nodes_of(cluster, *roles))


def _pods(cluster: Mapping[str, Any], nodes: Sequence[str]) -> FrozenSet[str]:
    """Return those of the nodes that are pods."""
    value = cluster.get("transport")
    by_node = {host_of(str(key)): name for key, name in value.items()} if isinstance(value, dict) else None
    built_in_names = plugins.built_in(plugins.TRANSPORTS)
    transports = {node: value if by_node is None else by_node.get(node) for node in nodes}
    of_pods = {
        name
        for name in {name for name in transports.values() if name in built_in_names}
        if "kubernetes" in plugins.load(plugins.TRANSPORTS, name).needs
    }
    return frozenset(node for node, name in transports.items() if name in built_in_names and name in of_pods)


def _entries(role: str, value: Union[List[Any], Dict[Any, Any], None]) -> Iterator[Tuple[Path, Any]]:
    for index, entry in enumerate(value or ()):
        yield (role, entry if isinstance(value, dict) else index), entry


class ClusterSection(BaseModel):
    """An existing cluster: never built, never taken down."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, hide_input_in_errors=True)

    user: Login = Field(description="User who logs in on nodes.")
    head: Node = Field(description="Node with `ceph` and `radosgw-admin`.")
    clients: _List = Field(description="Nodes where load generators run.")
    osds: NodesOrMapping = Field(description="Nodes with OSDs.")
    mons: NodesOrMapping = Field(description="Nodes with ceph-mons.")
    rgws: Optional[NodesOrMapping] = Field(None, description="Nodes with gateways.")
    watched: Optional[NodesOrMapping] = Field(None, description="More nodes for monitors, such as pods of OSDs.")
    iterations: int = Field(ge=1, le=10_000, description="Repetitions of every run.")
    use_existing: bool = Field(True, description="Must be true.", json_schema_extra={"const": True})
    rebuild_every_test: bool = Field(False, description="Must be false.", json_schema_extra={"const": False})
    conf_file: Optional[FilePath] = Field(None, description=f"Default: {DEFAULT_CONF}.")
    ceph: Optional[Literal["cephadm"]] = Field(
        None, description="`cephadm`: the head has Ceph's programs in `cephadm shell`. Default: they are installed."
    )
    ceph_cmd: Optional[Program] = Field(None, description="Command `ceph` on the head.")
    radosgw_admin_cmd: Optional[Program] = Field(
        None, alias="radosgw-admin_cmd", description="Command `radosgw-admin` on the head. May name a zone."
    )
    tmp_dir: Optional[AbsolutePath] = Field(None, description="Scratch folder on nodes.")
    transport: Annotated[Any, WithJsonSchema(_TRANSPORTS)] = Field(
        None, description="How nodes are reached: name, or node -> name. Default: `local`, else `pdsh`, else `ssh`."
    )

    kubernetes: Optional[KubernetesSection] = Field(None, description="For the transport `kubectl`, and Rook.")

    @field_validator("head", mode="before")
    @classmethod
    def _one_head(cls, value: Any) -> Any:
        if isinstance(value, (list, dict)):
            raise ValueError("must be one host name, not a list")
        return value

    @field_validator("ceph_cmd", "radosgw_admin_cmd")
    @classmethod
    def _installed(cls, value: Optional[str], info: ValidationInfo) -> Optional[str]:
        of_zone = info.field_name == "radosgw_admin_cmd" and value is not None and _ADMIN_OF_ZONE.fullmatch(value)
        if value is not None and info.data.get("ceph") and not of_zone:
            raise ValueError(f"`ceph: {info.data['ceph']}` says where the program is: remove one of the two keys")
        return value

    @field_validator("clients")
    @classmethod
    def _each_once(cls, nodes: List[str]) -> List[str]:
        hosts = list(map(host_of, nodes))
        repeated = [(i, node) for i, node in enumerate(nodes) if hosts[i] in hosts[:i]]
        twice = [FieldError((i,), f"{node} is in the list twice") for i, node in repeated]
        if twice:
            raise FieldErrors(twice)
        return nodes

    @field_validator("iterations", mode="before")
    @classmethod
    def _runs_at_all(cls, value: Any) -> Any:
        if value == 0 and not isinstance(value, bool):
            raise ValueError("0 iterations run nothing at all, and CBT reports success")
        return value

    @field_validator("use_existing")
    @classmethod
    def _existing(cls, value: bool) -> bool:
        if not value:
            raise ValueError(
                "use_existing: false makes CBT take the cluster down and build a new one; "
                "these benchmarks run on an existing cluster only: write use_existing: true"
            )
        return value

    @field_validator("rebuild_every_test")
    @classmethod
    def _not_rebuilt(cls, value: bool) -> bool:
        if value:
            raise ValueError("these benchmarks need an existing cluster: write rebuild_every_test: false")
        return value


class CommonSection(BaseModel):
    """The keys of CBT's `common:` section that say how nodes are reached."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, hide_input_in_errors=True)

    pdsh_cmd: Optional[Program] = None
    pdsh_ssh_args: Optional[str] = None

    @field_validator("pdsh_ssh_args")
    @classmethod
    def _words(cls, text: Optional[str]) -> Optional[str]:
        try:
            options = ssh_options(text or "")
        except ValueError as error:
            raise ValueError(f"must be options of ssh: {error}") from None
        for option in filter(_PLACED_USER.fullmatch, options):
            raise ValueError(f"{option!r} would be the name of the user: write -l%u, and `user:` in `cluster:`")
        return text


class CbtProfile(BaseModel):
    """The keys of CBT's own monitors; unknown keys are not checked."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, hide_input_in_errors=True)

    args: Optional[str] = None


class CollectlProfile(CbtProfile):
    """The profile of `collectl`, which our run loop starts as well."""

    @field_validator("args")
    @classmethod
    def _arguments(cls, args: Optional[str]) -> Optional[str]:
        return None if args is None else check_arguments(args, "collectl_dir")


def errors_of_watched(nodes: Any, cluster: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the names in a profile's `nodes:` that are no key of `cluster:`: such a monitor would watch nothing."""
    named = [nodes] if isinstance(nodes, str) else nodes
    if not isinstance(named, (list, dict)) or not all(isinstance(name, str) for name in named):
        yield FieldError(("nodes",), "must be a key of `cluster:`, or a list of them")
        return
    for index, name in enumerate(named):
        path = ("nodes", index) if isinstance(nodes, list) else ("nodes",)
        if name not in ROLES and name not in cluster:
            hint = did_you_mean(name, ROLES) or f"; known are {', '.join(ROLES)}"
            yield FieldError(path, f"no key of `cluster:`: {name!r}{hint}")
        elif name not in ROLES:
            for error in node_errors(cluster, [name]):
                yield FieldError(path, f"cluster.{name}: {error.text}")
