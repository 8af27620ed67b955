"""CBT's `collectl` profile for the built-in loop: the same keys, ended by pid instead of by name."""

from __future__ import annotations

import logging
import shlex
from typing import Any, Dict, Mapping, Sequence

from cbt_plugins.host.monitoring import Monitor, make_remote

logger = logging.getLogger(__name__)

#: CBT's default: cpu, disk, memory, network and more each second, processes every ten
DEFAULT_ARGS = (
    "-s+mYZ -i 1:10 -F0 -f {collectl_dir} --rawdskfilt "
    r"'+cciss/c\d+d\d+ |hd[ab] | sd[a-z]+ |dm-\d+ |xvd[a-z] |fio[a-z]+ | vd[a-z]+ |emcpower[a-z]+ |psv\d+ "
    r"|nvme[0-9]n[0-9]+p[0-9]+ '"
)

# The command gets a session of its own, so that one signal reaches all that `args` may start. Its first
# process is known by pid and start time (field 22 of stat): a pid that the kernel has given to somebody else
# is never signalled.
_START = """\
command -v collectl >/dev/null || {{ echo missing; exit 0; }}
mkdir -p -m 0755 -- {directory}/collectl || exit 1
setsid sh -c {command} </dev/null >{directory}/collectl/output.txt 2>&1 &
echo started $! $(sed 's/.*) //' /proc/$!/stat | cut -d' ' -f20)
"""
_STOP = """\
alive() {{ set -- $(sed 's/.*) //' /proc/{pid}/stat 2>/dev/null); [ "${{20}}" = {since} ] && [ "$1" != Z ]; }}
for signal in INT TERM KILL; do
  alive || exit 0
  kill -s $signal -- -{pid}
  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do alive || exit 0; sleep 0.25; done
done
exit 1
"""


class Collectl(Monitor):
    """Keys: `nodes` (default clients, osds, mons, rgws) and `args`, with {collectl_dir} for the directory."""

    def __init__(
        self, config: Mapping[str, Any], cluster: Mapping[str, Any], common: Mapping[str, Any]
    ) -> None:
        super().__init__(config, cluster, common)
        self._remote = make_remote(cluster, common)
        self._running: Dict[str, Sequence[str]] = {}

    def start(self, directory: str) -> None:
        args = self.config.get("args", DEFAULT_ARGS).format(collectl_dir=f"{directory}/collectl")
        script = _START.format(directory=shlex.quote(directory), command=shlex.quote(f"exec collectl {args}"))
        missing = []
        for node, result in self._remote.run(self.nodes, script, 60).items():
            words = result.stdout.split()
            if words[:1] == ["started"]:
                self._running[node] = words[1:3]
            else:
                missing.append(node)
        if missing:
            logger.warning("collectl is not installed on %s: no samples of these nodes", ", ".join(missing))

    def stop(self, directory: str) -> None:
        for node, (pid, since) in self._running.items():
            result = self._remote.run([node], _STOP.format(pid=pid, since=since), 60, check=False)[node]
            if result.status != 0:
                logger.error("collectl (pid %s) on %s does not end", pid, node)
        self._running = {}
