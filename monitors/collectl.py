"""CBT's `collectl` profile for the built-in loop: the same keys, ended by pid instead of by name."""

from __future__ import annotations

import logging
import shlex
from typing import Any, Mapping

from cbt_plugins.cluster.remote import Remote
from cbt_plugins.host import Monitor

from .lifecycle import stop_by_pid_files

logger = logging.getLogger(__name__)

#: CBT's default: cpu, disk, memory, network and more each second, processes every ten
DEFAULT_ARGS = (
    "-s+mYZ -i 1:10 -F0 -f {collectl_dir} --rawdskfilt "
    r"'+cciss/c\d+d\d+ |hd[ab] | sd[a-z]+ |dm-\d+ |xvd[a-z] |fio[a-z]+ | vd[a-z]+ |emcpower[a-z]+ |psv\d+ "
    r"|nvme[0-9]n[0-9]+p[0-9]+ '"
)

# The command gets a session of its own, so that one signal reaches all that `args` may start. Its pid file is
# what `stop_by_pid_files` ends it by, also when the run that started it was killed.
_START = """\
command -v collectl >/dev/null || {{ echo missing; exit 0; }}
mkdir -p -m 0755 -- {directory}/collectl || exit 1
setsid sh -c {command} </dev/null >{directory}/collectl/output.txt 2>&1 &
echo $! $(sed 's/.*) //' /proc/$!/stat | cut -d' ' -f20) >{directory}/collectl.pid
echo started
"""


class Collectl(Monitor):
    """Keys: `nodes` (default clients, osds, mons, rgws) and `args`, with {collectl_dir} for the directory."""

    def __init__(
        self, config: Mapping[str, Any], cluster: Mapping[str, Any], common: Mapping[str, Any]
    ) -> None:
        super().__init__(config, cluster, common)
        self._remote = Remote.from_host(cluster, common)

    def start(self, directory: str) -> None:
        args = self.config.get("args", DEFAULT_ARGS).format(collectl_dir=f"{directory}/collectl")
        script = _START.format(directory=shlex.quote(directory), command=shlex.quote(f"exec collectl {args}"))
        missing = []
        for node, result in self._remote.run(self.nodes, script, 60).items():
            if result.stdout.split() != ["started"]:
                missing.append(node)
        if missing:
            logger.warning("collectl is not installed on %s: no samples of these nodes", ", ".join(missing))

    def stop(self, directory: str) -> None:
        stop_by_pid_files(self._remote, self.nodes, directory)
