"""Relay between two network interfaces: passes each frame on after a delay, where the kernel has no netem.

Run by path with nothing but the standard library, in the network namespace of the lab. It ends with its interfaces.
    link_relay.py NEAR FAR OUT IN    NEAR: the cable of the node; OUT, IN: seconds for frames that leave, or arrive
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import socket
import sys
import time
from typing import Deque, List, Optional, Sequence, Tuple

#: linux/if_packet.h, linux/if_ether.h
SOL_PACKET, PACKET_VNET_HDR, PACKET_OUTGOING, ETH_P_ALL = 263, 15, 4, 3
#: asm-generic/socket.h; SO_SNDBUF and SO_RCVBUF without their limits
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
#: bytes of a socket's buffer, of a frame with its header at most, and of the frames that wait in one direction
BUFFER, LARGEST, MOST = 64 << 20, 70_000, 256 << 20
#: frames that are read from one side before the other side has its turn
AT_ONCE = 64
#: seconds without a frame after which the interfaces are looked for
QUIET = 1.0


class End:
    """One interface, and the frames that will leave through it: those of the other interface, each with its time."""

    def __init__(self, name: str) -> None:
        self.name, self._index = name, socket.if_nametoindex(name)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        for option, forced in ((socket.SO_SNDBUF, SO_SNDBUFFORCE), (socket.SO_RCVBUF, SO_RCVBUFFORCE)):
            try:
                self.socket.setsockopt(socket.SOL_SOCKET, forced, BUFFER)
            except PermissionError:  # root of a user namespace
                self.socket.setsockopt(socket.SOL_SOCKET, option, BUFFER)
        # each frame has a header with what the sender has left to its interface: segments, checksums
        self.socket.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        self.socket.bind((name, ETH_P_ALL))
        self.socket.setblocking(False)
        self._waiting: Deque[Tuple[float, bytes]] = collections.deque()
        self._bytes = 0

    @property
    def is_gone(self) -> bool:
        """True when the interface was removed, also if another one has its name now."""
        try:
            return socket.if_nametoindex(self.name) != self._index
        except OSError:
            return True

    @property
    def due(self) -> Optional[float]:
        """Return when the next frame leaves."""
        return self._waiting[0][0] if self._waiting else None

    def frames(self) -> List[bytes]:
        """Return the frames that have arrived, the oldest first. An interface that is down has none."""
        frames: List[bytes] = []
        with contextlib.suppress(OSError):
            for _ in range(AT_ONCE):
                frame, address = self.socket.recvfrom(LARGEST)
                if address[2] != PACKET_OUTGOING:  # those that we have sent ourselves are shown, too
                    frames.append(frame)
        return frames

    def put(self, frames: Sequence[bytes], at: float) -> None:
        """Keep frames until their time. Where too many wait they are lost, as in the queue of a switch."""
        for frame in frames:
            if self._bytes + len(frame) <= MOST:
                self._waiting.append((at, frame))
                self._bytes += len(frame)

    def send_due(self) -> None:
        """Send the frames whose time has come. What the interface does not take is lost."""
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, frame = self._waiting.popleft()
            self._bytes -= len(frame)
            with contextlib.suppress(OSError):
                self.socket.send(frame)


def relay(near: End, far: End, out: float, back: float) -> None:
    """Pass frames on until an interface is gone."""
    directions = {near.socket: (near, far, out), far.socket: (far, near, back)}
    while True:
        times = [end.due for end in (near, far) if end.due is not None]
        pause = max(0.0, min(times) - time.monotonic()) if times else QUIET
        readable, _, _ = select.select(list(directions), [], [], pause)
        if not (readable or times) and (near.is_gone or far.is_gone):
            return
        for each in readable:
            source, target, delay = directions[each]
            frames = source.frames()
            target.put(frames, time.monotonic() + delay)
        near.send_due()
        far.send_due()


def main(near: str, far: str, out: str, back: str) -> None:
    ends = End(near), End(far)
    print("ready", flush=True)
    for descriptor in (1, 2):  # the starter reads no more
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    relay(*ends, float(out), float(back))


if __name__ == "__main__":
    main(*sys.argv[1:])
