"""The `collectl` profile of the built-in run loop: CBT's keys; it is ended by pid, not by name as CBT does it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Mapping

from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.shell_programs import script_command
from cbt_plugins.monitor import Monitor

from .lifecycle import stop_by_pid_files

_START = Path(__file__).parent / "collectl.sh"
logger = logging.getLogger(__name__)

#: CBT's default: cpu, disk, memory, network and more each second, processes every ten
DEFAULT_ARGS = (
    "-s+mYZ -i 1:10 -F0 -f {collectl_dir} --rawdskfilt "
    r"'+cciss/c\d+d\d+ |hd[ab] | sd[a-z]+ |dm-\d+ |xvd[a-z] |fio[a-z]+ | vd[a-z]+ |emcpower[a-z]+ |psv\d+ "
    r"|nvme[0-9]n[0-9]+p[0-9]+ '"
)


class Collectl(Monitor):
    """Runs collectl on `nodes`, with `args`, in which {collectl_dir} is the directory."""

    def __init__(self, config: Mapping[str, Any], cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        super().__init__(config, cluster, common)
        self._remote = Remote.of_cluster(cluster, common)

    def start(self, directory: str) -> None:
        folder = f"{directory}/collectl"
        args = self.config.get("args", DEFAULT_ARGS).format(collectl_dir=folder)
        results = self._remote.run(self.nodes, script_command(_START, folder, f"exec collectl {args}"), 60)
        missing = [node for node, result in results.items() if result.stdout.split() != ["started"]]
        if missing:
            logger.warning("collectl is not installed on %s: no samples of these nodes", ", ".join(missing))

    def stop(self, directory: str) -> None:
        stop_by_pid_files(self._remote, self.nodes, f"{directory}/collectl")
