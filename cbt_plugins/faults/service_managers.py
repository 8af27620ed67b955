"""Service managers: systemd, cephadm, Rook, or bare processes as CBT and the lab start them; for all types of daemons.

A node is asked while its daemons run, so that exactly the stopped daemons are started again.
"""

from __future__ import annotations

import base64
import re
import shlex
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins import daemon_programs
from cbt_plugins.cluster.fan_out import ask_at_once
from cbt_plugins.cluster.kubernetes import Kubernetes, KubernetesError
from cbt_plugins.faults.cluster_facts import DaemonName, names
from cbt_plugins.faults.kubernetes_rights import refuse_without_rights
from cbt_plugins.faults.node_shell import agent, script_text
from cbt_plugins.faults.scene import Scene
from cbt_plugins.faults.step import Check, Command, FaultError, run_all

#: a unit of cephadm: the ID of its cluster
_CEPHADM_UNIT = re.compile(r"ceph-([0-9a-f-]{36})@.+\.service")
#: prefixes of the id of a gateway in its name as a client of the cluster: RGW removes no others for the service map
_CLIENTS = ("client.", "rgw.")


@dataclass(frozen=True)
class DaemonProcess:
    """A process of a daemon; pid and start time identify it."""

    pid: int
    started: int  # clock ticks since the node booted
    files: int  # limit of open files; 0: unknown
    argv: Tuple[str, ...]
    user: int = 0
    group: int = 0
    folder: str = "/"
    environment: Tuple[str, ...] = ()  # NAME=VALUE of the variables that influence the loading of programs

    @property
    def identity(self) -> str:
        """Return PID:START, the argument of the programs on nodes."""
        return f"{self.pid}:{self.started}"


@dataclass(frozen=True)
class Service:
    """A daemon on its node, with its service manager."""

    name: DaemonName
    node: str
    manager: str  # a key of MANAGERS
    unit: str = ""  # unit of systemd, also under cephadm
    process: Optional[DaemonProcess] = None
    endpoints: Tuple[str, ...] = ()  # endpoints of a gateway such as "127.0.0.1:7480", for commands on its node
    instances: int = 1  # daemons of this name: gateways of Rook


class ServiceManager:
    """Starts and stops services of one node, all of which this manager runs."""

    def find_services(self, scene: Scene, daemons: Sequence[DaemonName]) -> Optional[Dict[DaemonName, Service]]:
        """Return the services if the manager knows them; None if the nodes must be asked. Raises FaultError."""
        return None

    def stop(self, scene: Scene, services: Sequence[Service]) -> Command:
        """Return the command that stops services in an orderly way and waits for their end."""
        raise NotImplementedError

    def start(self, scene: Scene, services: Sequence[Service]) -> Command:
        """Return the command that starts services again; running services are not touched."""
        raise NotImplementedError

    def restart(self, scene: Scene, services: Sequence[Service]) -> Command:
        """Return the command that restarts services, even if their processes have changed."""
        stop, start = self.stop(scene, services), self.start(scene, services)
        # start also after a failed stop, which may have stopped some, or has set labels of Rook
        return replace(stop, text=run_all((stop.text, start.text)), timeout=stop.timeout + start.timeout)

    def kill(self, scene: Scene, services: Sequence[Service]) -> Command:
        """Return the command that sends SIGKILL, by pid and start time, and keeps systemd from restarting (Restart=).

        Raises FaultError when the process of a service is not visible.
        """
        for service in services:
            if service.process is None:
                raise FaultError(f"{service.node}: no process of {service.name} found: nothing to kill")
        text = signal("KILL", [s.process for s in services if s.process])
        return self._on_node(scene, services, text)

    def settled(self, scene: Scene, services: Sequence[Service]) -> Tuple[Check, ...]:
        """Return checks that no order to the manager is pending."""
        return ()

    def count(self, scene: Scene, services: Sequence[Service]) -> Command:
        """Return the command that prints the number of running services."""
        raise NotImplementedError

    @staticmethod
    def _on_node(scene: Scene, services: Sequence[Service], text: str) -> Command:
        return Command(services[0].node, text, scene.limits.slow, root=True)


class Systemd(ServiceManager):
    """Units such as ceph-osd@3, ceph-radosgw@rgw.a, or ceph-FSID@osd.3 of cephadm.

    Orders to cephadm's orchestrator are not used: it carries them out when it comes to them, and needs a mgr.
    """

    def stop(self, scene: Scene, services: Sequence[Service]) -> Command:
        return self._on_node(scene, services, f"systemctl stop {_units(services)}")

    def start(self, scene: Scene, services: Sequence[Service]) -> Command:
        units = _units(services)
        # systemd refuses to start a unit that has ended too often, until its count is reset
        return self._on_node(
            scene, services, f"systemctl reset-failed {units} 2>/dev/null; systemctl start {units}"
        )

    def kill(self, scene: Scene, services: Sequence[Service]) -> Command:
        killed = super().kill(scene, services)
        return self._on_node(scene, services, f"{killed.text}\nsystemctl stop {_units(services)}")

    def count(self, scene: Scene, services: Sequence[Service]) -> Command:
        return self._on_node(scene, services, f"systemctl is-active {_units(services)} | grep -cx active")


class BareProcess(ServiceManager):
    """Bare processes; they are started again with their former arguments, folder, user, limit and environment."""

    def stop(self, scene: Scene, services: Sequence[Service]) -> Command:
        return self._on_node(scene, services, signal("TERM", [s.process for s in services if s.process]))

    def start(self, scene: Scene, services: Sequence[Service]) -> Command:
        texts = [launch(s.name, s.process) for s in services if s.process]
        return self._on_node(scene, services, run_all(texts))

    def restart(self, scene: Scene, services: Sequence[Service]) -> Command:
        texts = [launch(s.name, s.process, "restart") for s in services if s.process]
        return self._on_node(scene, services, run_all(texts))

    def count(self, scene: Scene, services: Sequence[Service]) -> Command:
        counts = "".join(f"c=$({_counted(s.name)}\n)\nn=$((n + c))\n" for s in services)
        return self._on_node(scene, services, f"n=0\n{counts}echo $n")


class Rook(ServiceManager):
    """Deployments of Rook, by kubectl on the machine that leads the run; `unit` is "NAME:REPLICAS:SELECTOR[:POD:COST]".

    With a POD the deployment loses only this pod (rook_gateways.py).
    """

    def find_services(self, scene: Scene, daemons: Sequence[DaemonName]) -> Optional[Dict[DaemonName, Service]]:
        kubernetes = scene.ceph.kubernetes
        if kubernetes is None:
            return None
        try:
            kubernetes.check_operator()
            return self.find_deployments(scene, kubernetes, daemons, "deployment")
        except KubernetesError as error:
            raise FaultError(str(error)) from error

    def find_deployments(
        self, scene: Scene, kubernetes: Kubernetes, daemons: Sequence[DaemonName], changed: str
    ) -> Dict[DaemonName, Service]:
        """Return the deployment of each daemon. Raises KubernetesError, also for a right that is missing.

        `changed`: the objects that the fault changes, as `Kind.changes_in_kubernetes` names them.
        """
        deployments = kubernetes.get("deployments")["items"]
        refuse_without_rights(kubernetes, changed)
        return {name: self._service_of_deployment(scene, name, deployments) for name in daemons}

    def _service_of_deployment(self, scene: Scene, name: DaemonName, deployments: Sequence[Any]) -> Service:
        matching = [deployment for deployment in deployments if self._runs(deployment["metadata"], name)]
        if len(matching) != 1:
            labels = f"label app=rook-ceph-{name.type} and the ID {name.id}"
            raise FaultError(f"{name}: {len(matching)} deployments have the {labels}, but there must be exactly one")
        spec = matching[0]["spec"]
        selector = ",".join(f"{key}={value}" for key, value in sorted(spec["selector"]["matchLabels"].items()))
        unit = f"{matching[0]['metadata']['name']}:{spec['replicas']}:{selector}"
        return Service(name, scene.node(name), "rook", unit, instances=spec["replicas"])

    def _runs(self, metadata: Mapping[str, Any], name: DaemonName) -> bool:
        labels, app = metadata.get("labels", {}), f"rook-ceph-{name.type}"
        if labels.get("app") != app:
            return False
        if name.type == "rgw":  # the label names the object store; the deployment's name has - for . in the ID
            return bool(str(metadata["name"]).replace("-", ".") == f"{app}-{name.id}".replace("-", "."))
        return bool(labels.get("ceph-osd-id" if name.type == "osd" else "ceph_daemon_id") == name.id)

    def stop(self, scene: Scene, services: Sequence[Service]) -> Command:
        return self._scaled(scene, services, "stop")

    def start(self, scene: Scene, services: Sequence[Service]) -> Command:
        return self._scaled(scene, services, "start")

    def kill(self, scene: Scene, services: Sequence[Service]) -> Command:
        killed = names(service.name for service in services)
        raise FaultError(f"{killed}: Kubernetes starts a killed daemon again at once: use the kind stop")

    def settled(self, scene: Scene, services: Sequence[Service]) -> Tuple[Check, ...]:
        text = self._scaled(scene, services, "settled").text
        return (Check("", text, (((), "settled"),), scene.limits.back),)

    def count(self, scene: Scene, services: Sequence[Service]) -> Command:
        return self._scaled(scene, services, "count")

    @staticmethod
    def _scaled(scene: Scene, services: Sequence[Service], action: str) -> Command:
        kubernetes = scene.ceph.kubernetes
        if kubernetes is None:
            raise FaultError("service_manager: rook needs cluster: kubernetes: {context: NAME}")
        text = script_text(
            "rook",
            action=action,
            kubectl=shlex.join(kubernetes.words()),
            kubectl_operator=shlex.join(kubernetes.words(kubernetes.operator_namespace)),
            namespace=kubernetes.namespace,
            operator=kubernetes.operator,
            deployments=" ".join(service.unit for service in services),
            pause=f"{scene.limits.pause:g}",
            wait=f"{scene.limits.slow / 2:.0f}",
        )
        return Command("", text, scene.limits.slow)


ROOK = Rook()
MANAGERS: Mapping[str, ServiceManager] = {
    "systemd": Systemd(),
    "cephadm": Systemd(),
    "process": BareProcess(),
    "rook": ROOK,
}


# ---- what a kind does with the services of a node ----


def find_services(
    scene: Scene, daemons: Iterable[DaemonName], manager: str = "", on_node: bool = False
) -> Dict[str, List[Service]]:
    """Return node -> its services. `manager`: the required service manager; "": find out.

    `on_node`: the fault acts on the nodes themselves or on their disks. Raises FaultError, also for such a fault of
    daemons in pods.
    """
    daemons, in_pods = list(daemons), scene.ceph.in_pods
    if in_pods and not manager:
        is_head_a_pod = scene.head in in_pods
        of_rook = [name for name in daemons if is_head_a_pod or scene.node(name) in in_pods]
        others = [name for name in daemons if name not in of_rook]
        if of_rook and others:
            services_of_rook = find_services(scene, of_rook, "rook", on_node)
            return {**services_of_rook, **find_services(scene, others, on_node=on_node)}
        manager = "rook" if of_rook or is_head_a_pod else ""
    own = MANAGERS[manager].find_services(scene, daemons) if manager else None
    if own is not None and on_node:
        hit = names(daemons) or "the nodes"
        text = "the daemons run in pods, but this kind of fault acts on nodes: use stop, out or mark"
        raise FaultError(f"{hit}: {text}")
    if own is not None:
        return _by_node(own.values())
    nodes: Dict[str, List[DaemonName]] = {}
    for name in daemons:
        nodes.setdefault(scene.node(name), []).append(name)
    answers = ask_at_once(*(partial(scene.ask, node, probe(here), root=True) for node, here in nodes.items()))
    return {
        node: [_with_endpoints(scene, service) for service in of_node.values()]
        for node, of_node in (
            (node, services_from_probe(node, here, answer, manager, scene.facts.fsid))
            for (node, here), answer in zip(nodes.items(), answers)
        )
    }


def _by_node(services: Iterable[Service]) -> Dict[str, List[Service]]:
    nodes: Dict[str, List[Service]] = {}
    for service in services:
        nodes.setdefault(service.node, []).append(service)
    return nodes


def _with_endpoints(scene: Scene, service: Service) -> Service:
    if service.name.type != "rgw" or service.process is None:
        return service
    answer = scene.ask(service.node, agent("ports", service.process.identity), root=True)
    return replace(service, endpoints=tuple(answer.split()))


def stop(scene: Scene, services: Sequence[Service]) -> Tuple[Command, ...]:
    """Return the commands that stop services of one node in good order."""
    return tuple(MANAGERS[manager].stop(scene, group) for manager, group in _by_manager(services))


def start(scene: Scene, services: Sequence[Service]) -> Tuple[Command, ...]:
    """Return the commands that start services of one node again."""
    return tuple(MANAGERS[manager].start(scene, group) for manager, group in _by_manager(services))


def refresh(scene: Scene, services: Sequence[Service]) -> Tuple[Command, ...]:
    """Return the command that lets cephadm's orchestrator look again at the services of one node; () without cephadm.

    It looks at a host once in 10 minutes. Until then it would count these daemons as stopped: in the cluster's health,
    and before it lets another host into maintenance. The command may fail, and takes at most 20 s.
    """
    of_cephadm = [service.name for service in services if service.manager == "cephadm"]
    hosts = {scene.facts.daemons(name.type).get(name, "") for name in of_cephadm} - {""}
    looks = [f"timeout 20 {scene.ceph.command} orch ps {shlex.quote(host)} --refresh" for host in sorted(hosts)]
    return tuple(Command(scene.head, f"{look} >/dev/null 2>&1 || :", scene.limits.slow) for look in looks)


def restart(scene: Scene, services: Sequence[Service]) -> Tuple[Command, ...]:
    """Return the commands that restart services of one node, even if their processes have changed."""
    return tuple(MANAGERS[manager].restart(scene, group) for manager, group in _by_manager(services))


def kill(scene: Scene, services: Sequence[Service]) -> Tuple[Command, ...]:
    """Return the commands that kill services of one node. Raises FaultError when a process is not visible."""
    return tuple(MANAGERS[manager].kill(scene, group) for manager, group in _by_manager(services))


def down(scene: Scene, services: Sequence[Service]) -> Tuple[Check, ...]:
    """Return checks that services are down: OSDs by the OSD map, other daemons by their service manager."""
    return tuple(_running(scene, services, False))


def up(scene: Scene, services: Sequence[Service]) -> Tuple[Check, ...]:
    """Return checks that services are up again, and that no order to the manager is pending."""
    settled = [check for manager, group in _by_manager(services) for check in MANAGERS[manager].settled(scene, group)]
    return (*_running(scene, services, True), *settled)


def _running(scene: Scene, services: Sequence[Service], wanted: bool) -> Iterator[Check]:
    osds = [int(s.name.id) for s in services if s.name.type == "osd"]
    if osds:
        yield scene.osds_back(osds) if wanted else scene.osds_down(osds)
    for manager, group in _by_manager([s for s in services if s.name.type != "osd"]):
        counted = MANAGERS[manager].count(scene, group)
        timeout = scene.limits.back if wanted else scene.limits.down
        number = str(len(group) if wanted else 0)
        yield Check(counted.node, counted.text, (((), number),), timeout, root=counted.root)


def _by_manager(services: Sequence[Service]) -> List[Tuple[str, List[Service]]]:
    managers: Dict[str, List[Service]] = {}
    for service in services:
        managers.setdefault(service.manager, []).append(service)
    return list(managers.items())


# ---- what a node says ----


def probe(daemons: Iterable[DaemonName]) -> str:
    """Return the shell text that asks a node for these daemons."""
    return script_text("daemons", daemons=" ".join(map(str, sorted(daemons))))


def services_from_probe(
    node: str, daemons: Sequence[DaemonName], answer: str, manager: str = "", fsid: str = ""
) -> Dict[DaemonName, Service]:
    """Return the service of each daemon, by the reply to `probe`. `manager`: the required service manager.

    A unit of cephadm has the ID of its cluster in its name; those of other clusters than `fsid` do not count.
    Raises FaultError for a daemon that does not run, or whose service manager is not clear.
    """
    units: Dict[str, List[str]] = {}
    idle: Dict[str, List[str]] = {}
    processes: Dict[str, List[DaemonProcess]] = {}
    for line in answer.splitlines():
        words = line.split()
        if words[:1] == ["unit"] and len(words) == 4:
            of_cluster = _CEPHADM_UNIT.match(words[2])
            if of_cluster and fsid and of_cluster.group(1) != fsid:
                continue
            runs = words[3] not in ("inactive", "failed")
            (units if runs else idle).setdefault(words[1], []).append(words[2])
        elif words[:1] == ["process"] and len(words) == 7:
            process = _process(words[2:])
            daemon = daemon_of(words[1], process.argv)
            if daemon is not None:
                processes.setdefault(str(daemon), []).append(process)
    services = {}
    for name in daemons:
        daemon_units = units.get(str(name), [])
        if str(name) not in processes:  # a unit that does not run counts only if no process runs either
            daemon_units = daemon_units + idle.get(str(name), [])
        services[name] = _service_with_manager(node, name, daemon_units, processes.get(str(name), []), manager)
    return services


def _service_with_manager(
    node: str, name: DaemonName, units: Sequence[str], processes: Sequence[DaemonProcess], manager: str
) -> Service:
    for noun, several in (("units", units), ("processes", processes)):
        if len(several) > 1:
            raise FaultError(f"{node} has {len(several)} {noun} of {name}, but there must be exactly one")
    unit, process = next(iter(units), ""), next(iter(processes), None)
    cephadm = bool(_CEPHADM_UNIT.fullmatch(unit))
    if manager == "process" and unit:
        text = "the daemon is not a bare process: remove service_manager: process"
        raise FaultError(f"{name} is run by {unit} on {node}; {text}")
    if manager == "cephadm" and unit and not cephadm:
        raise FaultError(f"{name}: {unit} on {node} is not a unit of cephadm")
    which = manager or ("cephadm" if cephadm else "systemd" if unit else "process")
    if which != "process" and not unit:
        raise FaultError(f"{name} is not a unit of systemd on {node}; for a bare process set service_manager: process")
    if which == "process" and process is None:
        users = "root, the user ceph, the owner of /var/lib/ceph or the login user"
        raise FaultError(f"{node}: {name} does not run as a process of {users}, and systemd has no unit of {name}")
    return Service(name, node, which, unit, process)


def _process(words: Sequence[str]) -> DaemonProcess:
    pid, begun, files, argv, around = words
    owner, folder, *environment = base64.b64decode(around).decode(errors="replace").rstrip("\n").split("\n")
    user, group = map(int, owner.split())
    line = base64.b64decode(argv).decode(errors="replace").rstrip("\0").split("\0")
    return DaemonProcess(int(pid), int(begun), int(files), tuple(line), user, group, folder, tuple(environment))


def daemon_of(program: str, argv: Sequence[str]) -> Optional[DaemonName]:
    """Return the daemon that a program was started for: -i 3, --id=3, -n osd.3, --name client.rgw.a."""
    type = daemon_programs.TYPES.get(program)
    for i, word in enumerate(argv[1:], 1):
        name, has, value = word.partition("=")
        if name in ("-i", "--id", "-n", "--name"):
            id = value if has else argv[i + 1] if i + 1 < len(argv) else ""
        elif re.fullmatch(r"-i\w[\w.-]*", word):
            id = word[2:]
        else:
            continue
        for prefix in _CLIENTS if type == "rgw" else (f"{type}.",):
            id = id[len(prefix) :] if id.startswith(prefix) else id
        return DaemonName(type, id) if type and id and (type != "osd" or id.isdigit()) else None
    return None


# ---- shell text ----


def _units(services: Sequence[Service]) -> str:
    return " ".join(shlex.quote(service.unit) for service in services)


def signal(name: str, processes: Sequence[DaemonProcess]) -> str:
    """Return shell text that signals exactly these processes and waits until they have ended."""
    return script_text("process", action="signal", signal=name, processes=" ".join(p.identity for p in processes))


def launch(name: DaemonName, process: DaemonProcess, action: str = "start") -> str:
    """Return shell text that starts a bare process again unless it runs; with "restart", also if it runs."""
    line = " ".join(map(shlex.quote, ["env", *process.environment, *process.argv]))
    if process.user and not any(word.startswith("--setuser") for word in process.argv):
        line = f"setpriv --reuid={process.user} --regid={process.group} --init-groups {line}"
    foreground = any(word in ("-f", "-d", "--foreground") for word in process.argv)
    return script_text(
        "process",
        action=action,
        **_which(name),
        line=line,
        folder=process.folder,
        files=process.files,
        foreground="yes" if foreground else "",
    )


def _counted(name: DaemonName) -> str:
    return script_text("process", action="count", **_which(name))


def _which(name: DaemonName) -> Dict[str, str]:
    """Return the means to find a daemon's bare process: programs of its type, and a pattern of its command line."""
    programs = " ".join(program for program, type in daemon_programs.TYPES.items() if type == name.type)
    heads = ("rgw.", "") if name.type == "rgw" else ("",)
    ids = "|".join(re.escape(head + name.id) for head in heads)
    client_pattern = "|".join(re.escape(f"client.{head}{name.id}") for head in heads)
    full = f"({client_pattern})" if name.type == "rgw" else re.escape(str(name))
    return {"programs": programs, "pattern": rf"-i ?({ids}) |--id[ =]({ids}) |(-n|--name)[ =]{full} "}
