"""A whole node: started anew, or without power."""

from __future__ import annotations

import logging
import os
import re
import shlex
from typing import Any, List, Mapping, Sequence

from cbt_plugins.faults.fence import FOLDER
from cbt_plugins.faults.harm import Harm
from cbt_plugins.faults.kinds.daemon import checked_way, started
from cbt_plugins.faults.scene import Kind, Scene, Targets
from cbt_plugins.faults.step import Check, Command, FaultError, Step

#: which boot of a node this is: the kernel's id, and the start of its first process for a node that shares its kernel
BOOT = "echo $(cat /proc/sys/kernel/random/boot_id) $(sed 's/.*) //' /proc/1/stat | cut -d' ' -f20)"


#: said of secrets that a command gets as arguments
SHOWN = (
    "{} stands in a command's arguments, which everybody on this machine can read while it runs (ps): let the command "
    "take it from the environment (ipmitool -E) or from a file"
)
#: commands that a shell carries out itself
_NO_PROCESS = ("echo", "printf", "export", "test", "[", ":", "read", "unset")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")

log = logging.getLogger(__name__)


def shown_secrets(commands: Sequence[str], secrets: Sequence[str]) -> List[str]:
    """Those of the names whose values a command line would show to all who look at the list of processes."""
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
                    found = re.findall(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)", word)
                    shown += [name for name in found if name in secrets and program not in _NO_PROCESS]
        except ValueError:
            continue  # quotes that do not close: the shell will say so
    return list(dict.fromkeys(shown))


class Reboot(Kind):
    """The node starts anew; its OSDs must come back. `command` is what reboots it."""

    unit = "node"
    options: Mapping[str, Any] = {"command": "systemctl reboot", "daemons": ""}

    def harm(self, targets: Targets, options: Mapping[str, Any]) -> Harm:
        return Harm(osds=targets.osds, nodes=targets.nodes)

    def steps(self, scene: Scene, targets: Targets, options: Mapping[str, Any]) -> List[Step]:
        steps = []
        for number, node in enumerate(targets.nodes, 1):
            name = f"{scene.name}-{number}"
            osds = scene.on_node(node)
            daemons = scene.daemons(osds, checked_way(options)).get(node, [])
            boot = scene.ask(node, BOOT, root=True).strip()  # as it is compared: others may see less of /proc
            # The command ends our connection, so a process of its own sends it, when the shell behind the connection
            # has ended and its status had time to arrive; unless it was undone meanwhile. The file is gone with /run
            # when the node has booted, and taken away where the order was not given, or refused: the boot goes on then.
            go = (
                '[ ! -e "$1.undone" ] || exit; : > "$1.rebooting"; '
                'i=0; while [ -d "/proc/$2" ] && [ $i -lt 50 ]; do sleep 0.1; i=$((i + 1)); done; sleep 0.5; '
                f'[ ! -e "$1.undone" ] && {options["command"]} || rm -f "$1.rebooting"'
            )
            text = f'{FOLDER}; setsid sh -c {shlex.quote(go)} sh "$d/{name}" $$ </dev/null >/dev/null 2>&1 & sleep 0.2'
            settled = (
                f'{FOLDER}; b=$({BOOT}); [ "$b" = {shlex.quote(boot)} ] && [ -e "$d/{name}.rebooting" ] '
                '&& echo "in boot $b" || echo settled'
            )
            limits = scene.limits
            steps.append(
                Step(
                    what=f"reboot {node}",
                    node=node,
                    inject=(Command(node, text, limits.quick, root=True),),
                    undo=(
                        Command(node, f'{FOLDER}; : > "$d/{name}.undone"', limits.quick, root=True),
                        *(started(scene, node, daemons) if daemons else ()),
                        *scene.mark_in(osds),
                    ),
                    checks=(
                        Check(node, settled, (((), "settled"),), limits.boot, root=True, lapses=limits.boot),
                        *((scene.back(osds, limits.boot),) if osds else ()),
                    ),
                    took=(scene.gone(osds),) if osds else (),
                    former={"boot": boot, **scene.former(osds)},
                    osds=osds,
                )
            )
        return steps


class Power(Kind):
    """A command of the user's takes the power away, another gives it back; both run on the machine that leads the run.

    {node} in them is the node's name. What is in `secrets` are names in the environment, whose
    values are in no file.
    """

    unit = "node"
    options: Mapping[str, Any] = {"off": "", "on": "", "secrets": (), "daemons": ""}

    def harm(self, targets: Targets, options: Mapping[str, Any]) -> Harm:
        return Harm(osds=targets.osds, nodes=targets.nodes)

    def steps(self, scene: Scene, targets: Targets, options: Mapping[str, Any]) -> List[Step]:
        off, on = str(options["off"]), str(options["on"])
        if not off or not on:
            raise FaultError("power needs both commands, off and on: nothing is switched off that cannot be put back")
        given = options["secrets"]
        secrets = (given,) if isinstance(given, str) else tuple(map(str, given))
        absent = [name for name in secrets if not os.environ.get(name)]
        if absent:
            raise FaultError(f"power: the environment has no {', '.join(absent)}")
        shown = shown_secrets((off, on), secrets)
        if shown:
            log.warning("power: %s", SHOWN.format(", ".join(shown)))
        steps = []
        for node in targets.nodes:
            osds = scene.on_node(node)
            daemons = scene.daemons(osds, checked_way(options)).get(node, [])
            boot = scene.ask(node, BOOT).strip()
            limits = scene.limits
            steps.append(
                Step(
                    what=f"power off {node}",
                    node=node,
                    inject=(Command("", off.replace("{node}", node), limits.slow, secrets=secrets),),
                    undo=(
                        Command("", on.replace("{node}", node), limits.slow, secrets=secrets),
                        *(started(scene, node, daemons) if daemons else ()),
                        *scene.mark_in(osds),
                    ),
                    checks=(
                        Check(node, "echo there", (((), "there"),), limits.boot),
                        # A node that is there in the boot of before may be about to go: its power went off in good
                        # order, or a controller did what it had said to have failed.
                        Check(node, BOOT, (((), {"not": boot}),), limits.boot, lapses=limits.boot, refused=limits.down),
                        *((scene.back(osds, limits.boot),) if osds else ()),
                    ),
                    took=(scene.gone(osds),) if osds else (),
                    former={"boot": boot, **scene.former(osds)},
                    osds=osds,
                )
            )
        return steps
