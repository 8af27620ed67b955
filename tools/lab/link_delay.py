"""Delay of a node's link: a relay takes the place of the cable between the node and the switch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import List

from .namespaces import Spaces
from .process import LabProcess, by_namespace, wait_for
from .requirements import LabError

RELAY = str(Path(__file__).resolve().with_name("link_relay.py"))


class LinkDelay:
    """The delay of the link of one node. The cable is v-NODE; with a delay, the switch has b-NODE, whose end is d-NODE.
    """

    def __init__(self, spaces: Spaces, node: str) -> None:
        self._spaces, self._node = spaces, node

    def set(self, out: float, back: float) -> None:
        """Delay packets that leave the node and packets that come back, by seconds. Raises LabError."""
        self.remove()
        cable, switch, end = (f"{side}-{self._node}" for side in "vbd")
        try:
            self._spaces.ip([f"link add {end} type veth peer name {switch}"])
            # an address of IPv6 would send packets of its own; a kernel without IPv6 refuses this
            quiet = [f"link set {name} addrgenmode none" for name in (cable, switch, end)]
            self._spaces.ip(quiet, force=True)
            self._spaces.ip([f"link set {switch} master br0 up", f"link set {end} up", f"link set {cable} nomaster"])
            self._start(cable, end, out, back)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """End the delay, if there is one: the cable is plugged into the switch again."""
        for relay in self._relays():
            relay.kill()
        wait_for(lambda: not self._relays(), f"end of the relay of {self._node}", 30)
        if f"d-{self._node}" in self._spaces.interfaces():
            # the cable first: what is cut short here is mended by the next call
            self._spaces.ip([f"link set v-{self._node} master br0", f"link del d-{self._node}"])

    def _start(self, cable: str, end: str, out: float, back: float) -> None:
        words = [sys.executable, "-E", "-S", RELAY, cable, end, f"{out:g}", f"{back:g}"]
        argv = [*self._spaces.enter("lab"), "setsid", "--fork", *words]
        done = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.stdout
        with done.stdout:
            answer = done.stdout.readline()
            errors = b"" if answer == b"ready\n" else answer + done.stdout.read()
        done.wait()
        if answer != b"ready\n":
            reason = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise LabError(f"the relay of {self._node} did not start: {reason or 'the relay died'}")

    def _relays(self) -> List[LabProcess]:
        """Return the relay, known by its arguments among the processes of the lab; [] without a delay."""
        first = self._spaces.first("lab")
        inside = by_namespace().get(first.namespace, []) if first else []
        return [process for process in inside if {RELAY, f"v-{self._node}"} <= set(process.command())]
