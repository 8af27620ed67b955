"""Profile `faults`: injects a fault file beside a benchmark of CBT, or beside a run of a single phase.

It is a monitor because CBT starts and stops its monitors with the load of each run. The faults are injected by
`cbt-tools inject`, a process of its own on the machine of cbt.py, which undoes everything when the process of cbt.py
ends for any reason.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
import selectors
import shutil
import subprocess
import time
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Mapping, Optional, Sequence

from pydantic import AfterValidator, Field

from cbt_plugins import cbt_run
from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.config.errors import ConfigError, ErrorAt
from cbt_plugins.config.events import load_fault_file
from cbt_plugins.config.key_errors import Strict
from cbt_plugins.config.shell_values import check_option_value
from cbt_plugins.faults import cluster_access
from cbt_plugins.monitor import Monitor
from cbt_plugins.programs import own_tool

logger = logging.getLogger(__name__)

#: most seconds for the undo of everything
UNDO_TIMEOUT = 1800.0
#: most seconds until the settings are in force and the first fault is ready; then the load begins
READY_TIMEOUT = 300.0
#: directories of CBT's monitors outside measurements: an idle cluster, or the creation of pools and images
_BEFORE = ("idle_monitoring", "pool_monitoring", "recovery_pool_monitoring", "creation", "initial_health_check")
_INJECT, _UNDO = "`cbt-tools inject`", "`cbt-tools undo` on the archive"


class FaultsProfile(Strict):
    """A fault file beside a benchmark of CBT, or beside a run of a single phase."""

    #: why it is refused beside runs of several phases
    REFUSED_BESIDE_CYCLES: ClassVar[str] = (
        "the times of the fault file would begin again in each phase of the cycle: name the fault file in a phase of "
        "warp:, as events: {file: PATH}"
    )

    file: Annotated[str, AfterValidator(check_option_value)] = Field(
        min_length=1, description="A fault file."
    )

    @staticmethod
    def errors_of_file(profile: Mapping[str, Any], osd_nodes: Sequence[str]) -> Sequence[ErrorAt]:
        """Return the errors of the fault file; otherwise they would appear only after the load has begun."""
        path = profile.get("file")
        if not path or not isinstance(path, str) or path.startswith("-"):
            return ()
        try:
            load_fault_file(path, osd_nodes or None)
        except ConfigError as error:
            return error.errors
        return ()


class Faults(Monitor):
    """Injects the faults of a file beside the load; faults/<time>/ in the archive has the file and the journals."""

    Section = FaultsProfile
    INNERMOST = True

    def __init__(self, config: Mapping[str, Any], cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        super().__init__({"nodes": "head", **config}, cluster, common)  # it runs nothing on a node
        if not config.get("file"):
            raise ValueError("monitoring_profiles: faults: needs file: PATH, the path of a fault file")
        self._process: Optional[subprocess.Popen[bytes]] = None

    def start(self, directory: str) -> None:
        if PurePosixPath(directory).name in _BEFORE:
            return
        folder = _new_folder(Path(self.cluster["archive_dir"]) / "faults")
        with contextlib.suppress(OSError):  # the program reports why the file cannot be read
            shutil.copyfile(self.config["file"], folder / "faults.yaml")
        # a unique ID, which marks our files on nodes and our keys in the cluster
        remote = Remote.of_cluster(self.cluster, self.common)
        ceph, id = Ceph(remote, self.cluster), f"inject-{secrets.token_hex(4)}"
        cluster_access.write(folder, cluster_access.ClusterAccess(remote, ceph, self.cluster, self.common, id))
        line = own_tool("inject", str(self.config["file"]), "--tied")
        if cbt_run.current:
            line += ["--beside", "/".join(cbt_run.current.archive_dir.parts[-2:])]
        with open(folder / "log.txt", "wb") as log:
            self._process = subprocess.Popen(
                [*line, "--cluster", str(folder / cluster_access.FILE), "--archive", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        # this only starts the clock of the events; the load begins when this returns
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            heard = selector.select(READY_TIMEOUT)
        if not heard:
            self._say(f"{_INJECT} was not ready within {READY_TIMEOUT:.0f} s before the load: see {folder / 'log.txt'}")
        elif not self._process.stdout.readline():
            status = self._process.wait()
            self._say(f"{_INJECT} ended with exit status {status} before the load: see {folder / 'log.txt'}")

    def stop(self, directory: str) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(UNDO_TIMEOUT)
        except subprocess.TimeoutExpired:
            process = f"process {self._process.pid} still tries to undo"
            then = f"when this process has ended, run {_UNDO}"
            self._say(f"changes were not undone within {UNDO_TIMEOUT:.0f} s; {process}; {then}")
        else:
            if status and not self.failure:
                self._say(f"{_INJECT} ended with exit status {status}: see faults/*/log.txt, and run {_UNDO}")
        self._process.stdout.close()
        self._process = None

    def _say(self, text: str) -> None:
        """Fail the run, because not all of its faults were injected."""
        self.failure = f"faults: {text}"
        logger.error("%s", self.failure)
        if cbt_run.current:
            cbt_run.current.failure = self.failure


def _new_folder(parent: Path) -> Path:
    """Return a new folder named by the time, with a number if several begin in one second."""
    parent.mkdir(parents=True, exist_ok=True)
    begun = time.strftime("%Y%m%dT%H%M%S")
    names = itertools.chain([begun], (f"{begun}-{number}" for number in itertools.count(2)))
    for folder in (parent / name for name in names):
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("names do not end")
