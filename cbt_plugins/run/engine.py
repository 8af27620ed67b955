"""Runs a plan: phase after phase, each whole or not at all, from wherever an earlier invocation was broken off."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import List

from cbt_plugins import signals as interrupts
from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.result import RemoteError
from cbt_plugins.config.source import mask_secrets
from cbt_plugins.faults import FaultError, Injector
from cbt_plugins.host import HostRun, RunFailed
from cbt_plugins.journal import Journal, JournalInUse, write_json, write_whole
from cbt_plugins.load.session import LoadError
from cbt_plugins.plan import Plan
from cbt_plugins.run.afterwards import follow
from cbt_plugins.run.archive import RunArchive
from cbt_plugins.run.buckets import Buckets
from cbt_plugins.run.load_phase import Loader
from cbt_plugins.run.phases import Phasing
from cbt_plugins.run.preflight import PreflightError, Ready, all_nodes, check
from cbt_plugins.run.rescue import rescue

log = logging.getLogger(__name__)


class Engine:
    """One run. `execute` may be called again, in another process, after any end of this one."""

    def __init__(self, host: HostRun, plan: Plan) -> None:
        self._host = host
        self._plan = plan
        self._remote = Remote.from_host(host.cluster, host.common)
        self._ceph = Ceph(self._remote, host.cluster)
        self._archive = RunArchive(host.archive_dir)

    def execute(self) -> None:
        """Run what is not done yet. Raises RunFailed; KeyboardInterrupt after a Ctrl-C, SIGTERM or SIGHUP."""
        with interrupts.ending():
            try:
                journal, events = Journal(self._archive.journal), Journal(self._archive.events)
            except JournalInUse as error:
                raise RunFailed(str(error)) from error
            try:
                self._execute(journal, events)
            except (CephError, RemoteError, LoadError, PreflightError, FaultError, JournalInUse) as error:
                events.write("run-failed", why=str(error))
                raise RunFailed(str(error)) from error
            except KeyboardInterrupt:
                events.write("run-interrupted")
                log.warning("interrupted; the same command goes on from here")
                with interrupts.allowed():
                    summarize(self._archive.folder)
                raise
            finally:
                journal.close()
                events.close()

    def _execute(self, journal: Journal, events: Journal) -> None:
        run_id = self._identify(journal)
        with contextlib.closing(self._injector(run_id, events)) as injector:
            # what an invocation that was killed has left: first the cluster, then what it has measured
            _put_back(injector)
            nodes = all_nodes(self._host.cluster, self._clients)
            rescue(self._host, self._plan, self._remote, self._archive, journal, events, nodes)
            journal.write("invocation", pid=os.getpid(), run_dir=self._host.run_dir, clients=self._clients)
            ready = check(self._host, self._plan, self._remote, self._ceph)
            self._describe(run_id, ready, journal)
            try:
                with injector.holding():
                    degraded = self._run(run_id, ready, injector, journal, events)
            finally:
                with interrupts.allowed():
                    self._clean_nodes()
        events.write("run-done", degraded=degraded)
        write_json(self._archive.complete, {"t": time.time(), "run_id": run_id, "degraded": degraded})
        summarize(self._archive.folder)
        if degraded:
            raise RunFailed(f"complete, but not to be trusted: {', '.join(degraded)} (see the warnings of the report)")

    def _injector(self, run_id: str, events: Journal) -> Injector:
        return Injector(
            self._archive.folder,
            self._remote,
            self._ceph,
            self._host.cluster,
            events.write,
            run_id=run_id,
            settings=self._plan.settings,
            common=self._host.common,
        )

    def _run(self, run_id: str, ready: Ready, injector: Injector, journal: Journal, events: Journal) -> List[str]:
        """Everything between the two snapshots of the cluster; returns the phases that are not to be trusted."""
        phases = self._plan.phases
        if not self._archive.cluster("before").exists():
            self._snapshot("before")
        buckets = Buckets(self._plan, run_id, self._ceph, journal)
        buckets.claim()
        injector.apply()
        events.write("run-begun", run_id=run_id, phases=[p.name for p in phases])
        loader = Loader(
            host=self._host,
            plan=self._plan,
            remote=self._remote,
            ceph=self._ceph,
            ready=ready,
            buckets=buckets,
            archive=self._archive,
            run_id=run_id,
            injector=injector,
            event=events.write,
        )
        phasing = Phasing(self._host, self._plan, self._ceph, self._archive, journal, events, injector, loader)
        trusted = [phasing.run(i, phase) for i, phase in enumerate(phases, 1)]
        _put_back(injector)
        offset = ready.offsets[self._ceph.head].seconds
        follow(self._plan, self._host, self._ceph, self._archive.afterwards, offset, events.write)
        self._snapshot("after")
        if not self._plan.keep_data:
            buckets.remove()
        return [phase.name for phase, ok in zip(phases, trusted) if not ok]

    @property
    def _clients(self) -> List[str]:
        return list(dict.fromkeys(d.node for d in self._plan.drivers))

    def _identify(self, journal: Journal) -> str:
        """The run's id, made once; an archive that another plan began is refused."""
        plan = json.loads(json.dumps(dataclasses.asdict(self._plan)))
        begun = journal.last("run")
        if not begun:
            write_json(self._archive.plan, plan)
            run_id = secrets.token_hex(4)
            journal.write("run", run_id=run_id, benchmark=self._plan.benchmark)
            return run_id
        if json.loads(self._archive.plan.read_text()) != plan:
            raise RunFailed(f"{self._archive.folder} was begun with another plan: use another archive directory")
        return str(begun["run_id"])

    def _describe(self, run_id: str, ready: Ready, journal: Journal) -> None:
        manifest = {**ready.manifest, "run_id": run_id, "invocations": len(journal.all("invocation"))}
        write_json(self._archive.manifest, manifest)
        if self._host.config_file:
            write_whole(self._archive.folder / "config.yaml", mask_secrets(self._host.config_file.read_text()))

    def _snapshot(self, when: str) -> None:
        draft, folder = self._archive.cluster(f"{when}.tmp"), self._archive.cluster(when)
        self._ceph.snapshot(draft)
        if folder.exists():  # of an invocation that was killed while it removed the buckets
            shutil.rmtree(folder)
        draft.rename(folder)

    def _clean_nodes(self) -> None:
        """Remove our scratch folder, but for rows that could not be brought in: the next invocation may.

        A node that is gone must not hide why the run ended.
        """
        nodes = all_nodes(self._host.cluster, self._clients)
        command = (
            f"cd {shlex.quote(self._host.run_dir)} 2>/dev/null || exit 0; rm -rf -- bin probe watch_agent.py; "
            "find . -depth -type d -empty -delete 2>/dev/null; cd / && rmdir -- "
            f"{shlex.quote(self._host.run_dir)} 2>/dev/null || true"
        )
        with contextlib.suppress(RemoteError):
            self._remote.run(nodes, command, timeout=300.0)


def _put_back(injector: Injector) -> None:
    """Undo whatever is open. Raises RunFailed when something stays so."""
    left = injector.undo_all()
    if left:
        raise RunFailed("not put back: " + "; ".join(map(str, left)) + " (cbt-tools undo says how to do it by hand)")


def summarize(folder: Path) -> None:
    """Make summary and report in a process of their own: analysis is no part of a run, and may need much memory."""
    root = str(Path(__file__).resolve().parents[2])
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(p for p in (root, environment.get("PYTHONPATH")) if p)
    line = [sys.executable, "-m", "cbt_plugins.tools", "report", str(folder)]
    status = subprocess.run(line, env=environment, check=False).returncode
    if status:
        log.error("the report was not made (exit status %d); again: cbt-tools report %s", status, folder)
