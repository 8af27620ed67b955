"""What cephadm is told to do with OSDs, and that it has done it.

`ceph orch daemon stop` and `start` leave an order ("Scheduled to ...") that is carried out seconds or minutes later.
While a stop waits, a start is dropped, with the same words; a daemon that is to be configured anew loses its order.
Thus an order is given until its effect is seen, and a stop whose effect nobody has seen is brought to its end before
a start.
"""

from __future__ import annotations

from typing import Sequence

from cbt_plugins.faults.fence import FOLDER

_ASK = r"""
down() { CEPH osd dump --format plain 2>/dev/null | grep -q "^osd\.$1 down "; }
up() { CEPH osd dump --format plain 2>/dev/null | grep -q "^osd\.$1 up "; }
order() { CEPH orch daemon "$1" "osd.$2" >/dev/null; }
stopped() { n=0; until down "$1"; do n=$((n + 1)); [ $((n % 10)) != 0 ] || order stop "$1"; sleep 1; done; }
"""
_STOP = r"""
for o in OSDS; do : > "$d/NAME.$o.stopping"; order stop $o || { s=$?; rm -f "$d/NAME.$o.stopping"; exit $s; }; done
for o in OSDS; do stopped $o; rm -f "$d/NAME.$o.stopping"; done
"""
_START = r"""
s=0; w=
for o in OSDS; do
  if [ -e "$d/NAME.$o.stopping" ]; then order stop $o && stopped $o && rm -f "$d/NAME.$o.stopping"; fi; done
for o in OSDS; do if order start $o; then w="$w $o"; else s=$?; fi; done
for o in $w; do n=0; until up $o; do n=$((n + 1)); [ $((n % 5)) != 0 ] || order start $o; sleep 1; done; done
exit $s
"""


def stop(ceph: str, name: str, osds: Sequence[int]) -> str:
    """Shell text that ends when the cluster has seen that these are down. `ceph` is the command, `name` the fault's.

    What it has ordered and not seen is in a file on the node.
    """
    return _text(_STOP, ceph, name, osds)


def start(ceph: str, name: str, osds: Sequence[int]) -> str:
    """Shell text that ends when they are up, also where a `stop` of the same name was cut short."""
    return _text(_START, ceph, name, osds)


def is_settled(ceph: str, name: str, osds: Sequence[int]) -> str:
    """Shell text that prints "settled" when no order of `stop` is left whose effect nobody has seen."""
    return _text('for o in OSDS; do [ ! -e "$d/NAME.$o.stopping" ] || exit 0; done; echo settled', ceph, name, osds)


def _text(script: str, ceph: str, name: str, osds: Sequence[int]) -> str:
    numbers = " ".join(map(str, osds))
    script = (_ASK + script).replace("OSDS", numbers).replace("NAME", name).replace("CEPH", ceph)
    return f"( {FOLDER}; {script.strip()} )"
