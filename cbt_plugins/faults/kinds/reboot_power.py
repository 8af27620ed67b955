"""Faults of whole nodes: reboot, and loss of power."""

from __future__ import annotations

import os
import re
import shlex
from typing import Iterator, List, Sequence, Tuple

from pydantic import Field, model_validator

from cbt_plugins.faults import service_managers
from cbt_plugins.faults.cluster_facts import osd_names
from cbt_plugins.faults.kind import Kind, Names, ServiceOptions
from cbt_plugins.faults.node_shell import FOLDER, script_text
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.step import Check, Command, FaultError, Step

#: prints an ID of the node's present boot: the boot ID of the kernel and the start time of the first process, since
#: nodes of the lab share a kernel
BOOT = "echo $(cat /proc/sys/kernel/random/boot_id) $(sed 's/.*) //' /proc/1/stat | cut -d' ' -f20)"
_SHOWN = (
    "{} is in the arguments of a command, and every user of this machine can read the arguments with ps "
    "while the command runs: let the command take the value from the environment (ipmitool -E) or from a file"
)
#: builtin commands of the shell
_NO_PROCESS = ("echo", "printf", "export", "test", "[", ":", "read", "unset")
_ENVIRONMENT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")

def shown_secrets(commands: Sequence[str], secrets: Sequence[str]) -> List[str]:
    """Return the environment variables whose values would be visible in the process list."""
    shown = []
    for command in commands:
        words = shlex.shlex(command, posix=False, punctuation_chars=True)
        words.whitespace_split, words.commenters = True, ""
        program = ""
        try:
            for word in words:
                if set(word) <= set("();<>|&"):
                    program = "" if set(word) & set("();|&") else program
                elif program or not _ASSIGNED.match(word):
                    program = program or word
                    variables = re.findall(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)", word)
                    shown += [name for name in variables if name in secrets and program not in _NO_PROCESS]
        except ValueError:
            continue  # an unclosed quote: the shell will report it
    return list(dict.fromkeys(shown))


class _WholeNode(Kind):
    takes = "node"
    restarts = True
    changes_in_kubernetes = None
    options: ServiceOptions

    def _back(
        self, scene: Scene, osds: Sequence[int], osd_services: Sequence[service_managers.Service]
    ) -> Tuple[Command, ...]:
        """Return the commands that start the OSDs of a node that has booted, and mark them in."""
        return (*service_managers.start(scene, osd_services), *scene.mark_in(osds))

    def _services(self, scene: Scene, node: str) -> Tuple[Tuple[int, ...], List[service_managers.Service]]:
        """Return the OSDs of a node with their services."""
        osds = scene.on_node(node)
        manager = self.options.service_manager or ""
        of_nodes = service_managers.find_services(scene, osd_names(osds), manager, on_node=True)
        return osds, of_nodes.get(node, [])


class Reboot(_WholeNode):
    """Reboots nodes. Their OSDs must come up by themselves; the undo starts OSDs that do not come up.

    If the boot ID of a node is unchanged after 15 minutes, the fault had no effect.
    """

    lasts = False

    class Options(ServiceOptions):
        """The command that reboots a node."""

        command: str = Field("systemctl reboot", min_length=1, description="Command that reboots the node.")

    options: Options

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        return [self._step(scene, node, f"{scene.name}-{i}") for i, node in enumerate(targets.nodes, 1)]

    def _step(self, scene: Scene, node: str, name: str) -> Step:
        limits = scene.limits
        osds, osd_services = self._services(scene, node)
        boot = scene.ask(node, BOOT, root=True).strip()  # as root, like the check: other users may see less of /proc
        # the command ends our connection, so a process of its own runs it
        program = shlex.quote(script_text("reboot", command=self.options.command))
        text = f'{FOLDER}; setsid sh -c {program} sh "$d/{name}" $$ </dev/null >/dev/null 2>&1 & sleep 0.2'
        settled = (
            f'{FOLDER}; b=$({BOOT}); [ "$b" = {shlex.quote(boot)} ] && [ -e "$d/{name}.rebooting" ] '
            '&& echo "in boot $b" || echo settled'
        )
        return Step(
            what=f"reboot {node}",
            node=node,
            inject=(Command(node, text, limits.quick, root=True),),
            undo=(
                Command(node, f'{FOLDER}; : > "$d/{name}.undone"', limits.quick, root=True),
                *self._back(scene, osds, osd_services),
            ),
            checks=(
                Check(node, settled, (((), "settled"),), limits.boot, root=True, lapses=limits.boot),
                *((scene.osds_back(osds, limits.boot),) if osds else ()),
            ),
            took=(scene.osds_went_down(osds),) if osds else (),  # a fast reboot may be over before the first check
            former={"boot": boot, **scene.former(osds)},
            daemons=tuple(map(str, osd_names(osds))),
            side_by_side=True,
        )


class Power(_WholeNode):
    """Switches nodes off and on by two commands of yours, which run on the leading machine.

    Quote the keys `off` and `on` in YAML. `ps` shows arguments: let the commands take passwords from the environment
    (`ipmitool -E`), and list these variables in `secrets`.
    """

    class Options(ServiceOptions):
        """The two commands. Values of secrets are written to no file."""

        off: str = Field("", description="Command that switches the node off; `{node}` is the name of the node.")
        on: str = Field("", description="Command that switches the node on.")
        secrets: Names = Field(
            [],
            description="Environment variables that the two commands need, besides each `${NAME}` in their text.",
        )

        @model_validator(mode="after")
        def _complete(self) -> Power.Options:
            for name, command in (("off", self.off), ("on", self.on)):
                if not command:
                    raise ValueError(f"power needs the option {name}: a command, in which {{node}} is the node's name")
            return self

        @property
        def needed(self) -> Tuple[str, ...]:
            """Return all environment variables that must be set."""
            variables = _ENVIRONMENT.findall(f"{self.off} {self.on}")
            return tuple(dict.fromkeys([*self.secrets, *variables]))

    options: Options

    def warnings(self) -> Iterator[str]:
        shown = shown_secrets((self.options.off, self.options.on), self.options.needed)
        if shown:
            yield _SHOWN.format(", ".join(shown))

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        absent = [name for name in self.options.needed if not os.environ.get(name)]
        if absent:
            raise FaultError(f"power: not set in the environment: {', '.join(absent)}")
        return [self._step(scene, node) for node in targets.nodes]

    def _step(self, scene: Scene, node: str) -> Step:
        limits, options = scene.limits, self.options
        osds, osd_services = self._services(scene, node)
        boot = scene.ask(node, BOOT).strip()
        off, on = (text.replace("{node}", node) for text in (options.off, options.on))
        return Step(
            what=f"power off {node}",
            node=node,
            inject=(Command("", off, limits.slow, secrets=options.needed),),
            undo=(Command("", on, limits.slow, secrets=options.needed), *self._back(scene, osds, osd_services)),
            checks=(
                Check(node, "echo there", (((), "there"),), limits.boot),
                # A node with an unchanged boot ID may still go down: it is shutting down in an orderly way, or the
                # power controller has carried out a command that it reported as failed.
                Check(node, BOOT, (((), {"not": boot}),), limits.boot, lapses=limits.boot, refused=limits.down),
                *((scene.osds_back(osds, limits.boot),) if osds else ()),
            ),
            took=(scene.osds_down(osds),) if osds else (),
            former={"boot": boot, **scene.former(osds)},
            daemons=tuple(map(str, osd_names(osds))),
            side_by_side=True,
        )
