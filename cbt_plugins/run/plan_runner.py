"""Runs a plan: phase after phase, each whole or not at all, resumed from wherever an earlier invocation ended."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
import traceback
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Dict, Iterator, List, Mapping, Set, Tuple

from cbt_plugins import checksums, signals
from cbt_plugins.archive_files import PRIVATE, keep_from_others
from cbt_plugins.cbt_run import CbtRun, NotTrusted, RunFailed
from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.cluster.cluster_watch import NoWatch
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.cluster_conditions import CLEANUP
from cbt_plugins.faults import ClusterAccess, FaultError, Injector, undo_seal
from cbt_plugins.faults.cluster_access import RUN_ID
from cbt_plugins.journal import Journal, JournalError, archive_refusal, read_json, tell, write_json, write_whole
from cbt_plugins.load.load_session import Agents, LoadError
from cbt_plugins.monitors.lifecycle import LEFT, bring_noted
from cbt_plugins.monitors.live import open_page
from cbt_plugins.monitors.recovery import cluster_watch
from cbt_plugins.plan import Plan
from cbt_plugins.run import pools_and_rgw
from cbt_plugins.run.buckets import Buckets, BucketsByS3
from cbt_plugins.run.context import LOAD, RunContext
from cbt_plugins.run.generator_ceiling import GeneratorCeilings
from cbt_plugins.run.leftover_files import fetch_leftovers
from cbt_plugins.run.phase_outcome import DRIFT
from cbt_plugins.run.phase_runner import PhaseRunner, Watchers
from cbt_plugins.run.phase_start_state import lost_events
from cbt_plugins.run.preflight import UNKNOWN, PreflightError, Ready, check, programs_of
from cbt_plugins.run.reporting import EarlyReader, is_reported, summarize
from cbt_plugins.run.run_archive import RunArchive
from cbt_plugins.run.sampler_clock import SamplerClock
from cbt_plugins.run.scratch import ScratchFolder, scratch_folders
from cbt_plugins.run.wait_phase import after_phases

log = logging.getLogger(__name__)

#: errors whose text is for the user
_FAILURES = (CephError, RemoteError, LoadError, PreflightError, FaultError, JournalError)


class _Broken(Exception):
    """A run that a monitor or an undo has failed, in their words."""


class PlanRunner:
    """One run. `execute` may be called again, in another process, after any end of this one."""

    def __init__(self, cbt_run: CbtRun, plan: Plan) -> None:
        self._cbt_run = cbt_run
        self.plan = plan
        self._remote = Remote.of_cluster(cbt_run.cluster, cbt_run.common)
        self.ceph = Ceph(self._remote, cbt_run.cluster)
        self.archive = RunArchive(cbt_run.archive_dir)

    def execute(self) -> None:
        """Run what is not done yet. Raises RunFailed; KeyboardInterrupt after a Ctrl-C, SIGTERM or SIGHUP."""
        keep_from_others(self.archive.folder)
        with signals.handled(), self._journals() as (journal, events):
            try:
                with self.context(journal, events) as run:
                    open_page(self.archive.folder, self._cbt_run.profiles)
                    degraded = self.run_phases(run)
                self._complete(journal, events, degraded)
            except (*_FAILURES, _Broken) as error:
                if not self._is_sealed():
                    events.write("run-failed", why=str(error), traceback=traceback.format_exc())
                self._report_what_there_is()
                raise RunFailed(str(error)) from error
            except OSError as error:
                if not self._is_sealed():
                    tell(events.write, "run-failed", why=str(error), traceback=traceback.format_exc())
                with contextlib.suppress(OSError):
                    self._report_what_there_is()
                raise
            except KeyboardInterrupt:
                if self._is_sealed():
                    text = "interrupted, but the run is complete; if its report is missing, run the command again: %s"
                    log.warning(text, self.archive.folder)
                    raise
                events.write("run-interrupted")
                log.warning("interrupted; run the same command again to resume")
                self._report_what_there_is()
                raise

    def _is_sealed(self) -> bool:
        """Tell whether the files of the run have their sums: none of them is written any more."""
        return os.path.lexists(self.archive.folder / checksums.END)

    def _report_what_there_is(self) -> None:
        """Make a report of a run that has come to no end, once it has a phase."""
        if any((self.archive.folder / "phases").glob("*/*")):
            with signals.interruptible():
                summarize(self.archive.folder)

    def run_phases(self, run: RunContext) -> List[str]:
        """Resume what a killed invocation left, then run; returns the phases that are not to be trusted."""
        try:
            run.injector.undo_earlier()
        except FaultError as error:
            raise RunFailed(str(error)) from error
        held = False
        try:
            # the faults are undone before anybody waits for the monitors' files
            with contextlib.ExitStack() as monitors, run.injector.holding(has_data=run.has_data):
                held = True  # nothing on the nodes is touched before: they may be another run's
                checksums.reopen(self.archive.folder)
                fetch_leftovers(run)
                run.journal.write("invocation", pid=os.getpid(), run_dir=run.cbt_run.run_dir, clients=run.clients)
                ready = check(run)
                if run.watch.node in ready.offsets:
                    run.watch.offset = ready.offsets[run.watch.node].seconds
                ready = pools_and_rgw.set_up(run, ready)
                self.describe(run, ready)
                return self._run(run, ready, monitors)
        except RunFailed as error:
            raise _Broken(str(error)) from error
        finally:
            if held:
                with signals.interruptible():
                    clean_nodes(run)

    def _run(self, run: RunContext, ready: Ready, monitors: contextlib.ExitStack) -> List[str]:
        """Do everything between the two snapshots of the cluster."""
        self.snapshot("before")
        buckets = Buckets(run.plan, run.run_id, run.ceph, run.journal)
        if not run.plan.admin:
            buckets = BucketsByS3(run, ready)
        buckets.claim()
        run.injector.apply()
        run.events.write("run-begun", run_id=run.run_id, phases=[phase.name for phase in run.plan.phases])
        folder = str(PurePosixPath(run.cbt_run.run_dir) / LOAD)
        with contextlib.closing(EarlyReader(self.archive.folder)) as early:
            with contextlib.closing(Agents(run.remote, run.clients, folder)) as agents:
                GeneratorCeilings(run, ready, agents).measure()
                clock = SamplerClock.of(run, ready)
                runner = PhaseRunner(run, ready, buckets, Watchers(run, monitors), agents, clock)
                trusted = []
                for i, phase in enumerate(run.plan.phases, 1):
                    trusted.append(runner.run_unless_finished(i, phase))
                    early.phase_ended(phase.name, self.archive.phase(i, phase.name))
            _undo_all(run.injector)
            after_phases(run)
            monitors.close()
            self.snapshot("after")
            if not run.plan.keep_data:
                run.events.write(CLEANUP)
                buckets.remove()
            _undo_all(run.injector, prepared=True)
            early.wait()
        return [phase.name for phase, ok in zip(run.plan.phases, trusted) if not ok]

    def _complete(self, journal: Journal, events: Journal, degraded: List[str]) -> None:
        """Write the end marker and the summary. Raises NotTrusted."""
        events.write("run-done", degraded=degraded)
        run_id = journal.last("run")["run_id"]
        with signals.deferred(signals.ENDING):
            checksums.end_run(self.archive.folder, {"t": time.time(), "run_id": run_id, "degraded": degraded})
        summarize(self.archive.folder)
        if degraded:
            raise NotTrusted(
                f"complete, but not to be trusted: {', '.join(degraded)} (see the warnings of the report)"
            )

    @contextlib.contextmanager
    def _journals(self) -> Iterator[Tuple[Journal, Journal]]:
        with contextlib.ExitStack() as opened:
            try:
                journal = opened.enter_context(contextlib.closing(Journal(self.archive.journal, PRIVATE)))
                events = opened.enter_context(contextlib.closing(Journal(self.archive.events)))
            except JournalError as error:
                raise RunFailed(str(error)) from error
            yield journal, events

    @contextlib.contextmanager
    def context(self, journal: Journal, events: Journal) -> Iterator[RunContext]:
        """Open the parts that a run consists of; they are closed with the context."""
        cbt_run, plan, archive = self._cbt_run, self.plan, self.archive
        run_id = self.begin_or_resume(journal)
        journal.mark = partial(undo_seal.mark, run_id=run_id)
        access = ClusterAccess(self._remote, self.ceph, cbt_run.cluster, cbt_run.common, run_id, admin=plan.admin)
        injector = Injector(archive.folder, access, events.write, plan.settings)
        with contextlib.closing(injector):
            watch = cluster_watch(self.ceph, cbt_run.cluster, cbt_run.profiles.get("recovery") or {}, archive.monitors)
            if not plan.admin:
                watch = NoWatch(watch.ceph, watch.node, watch.file, watch.settings)
            run = RunContext(cbt_run, plan, run_id, self._remote, self.ceph, archive, journal, events, injector, watch)
            with watch:
                yield run

    def check_complete(self) -> None:
        """Raise RunFailed where the run that is complete had another plan.

        Fetch what its monitors left on nodes, and make the report that is missing or older than a file.
        """
        self.check_plan()
        cbt_run, name = self._cbt_run, PurePosixPath(self._cbt_run.run_dir).name
        keep = partial(checksums.add_sums, self.archive.folder)
        # two commands at once would each write the sums without the other's files
        alone = self._journals() if any(self.archive.monitors.glob(f"*/{LEFT}")) else contextlib.nullcontext()
        with alone:
            late = bring_noted(cbt_run.cluster, cbt_run.common, name, self.archive.monitors, keep)
        if late or not is_reported(self.archive.folder):
            summarize(self.archive.folder)

    def check_plan(self) -> None:
        """Raise RunFailed where the archive has a run, finished or not, that another plan began."""
        difference = self.archive.other_plan(self.plan)
        if difference:
            text = f"belongs to a run with another plan ({difference} differs): use another archive directory"
            raise RunFailed(f"{self.archive.folder} {text}")

    @property
    def _use_another(self) -> str:
        return f"use another archive directory (`cbt-tools undo {self.archive.folder}` undoes what this run has left)"

    def begin_or_resume(self, journal: Journal) -> str:
        """Return the run's id, made once.

        Raises RunFailed for an archive that another plan began, or without the files that say which run began it.
        """
        refusal = archive_refusal(self.archive.folder)
        if refusal:
            raise RunFailed(refusal)
        begun = journal.last("run")
        left = self.archive.files_of_begun_run()
        if left and not begun:
            why = f"the line `run` is missing or damaged, but a run has begun (its files: {', '.join(left)})"
            raise RunFailed(f"{self.archive.journal}: {why}: {self._use_another}")
        if begun and not self.archive.plan.exists():
            raise RunFailed(f"{self.archive.plan}: missing, but the run has begun: {self._use_another}")
        if not begun:
            write_json(self.archive.plan, dataclasses.asdict(self.plan))
            journal.write("run", run_id=self._cbt_run.run_id, benchmark=self.plan.benchmark)
            return self._cbt_run.run_id
        self.check_plan()
        if not RUN_ID.fullmatch(str(begun["run_id"])):
            raise RunFailed(f"{self.archive.journal}: {begun['run_id']!r} is not the id of a run")
        return str(begun["run_id"])

    def describe(self, run: RunContext, ready: Ready) -> None:
        """Write the manifest of the run and its file, without secrets; with what was replaced since its beginning."""
        manifest = {**ready.manifest, "run_id": run.run_id, "invocations": len(run.journal.all("invocation"))}
        earlier = _earlier_manifest(run.archive.manifest) or manifest
        new = _replaced(run.plan, earlier, manifest)
        replaced = [*earlier.get("replaced", ()), *new.values()]
        # a daemon that is down, and a program that could not be asked, have no version now
        kept = {*_versioned(run.plan), *(("ceph",) if run.plan.upgrades else ())}
        manifest.update({name: earlier[name] for name in earlier.keys() & kept - new.keys()})
        if any(run.archive.folder.glob("phases/*/phase.json")):  # else no sample was corrected by the earlier offsets
            moved = _moved_clocks(earlier, manifest, "" if isinstance(run.watch, NoWatch) else run.watch.node)
            manifest["clock_offsets"] = {**_clock_offsets(manifest), **_clock_offsets(earlier)}
            every = list(dict.fromkeys([*earlier.get("moved_clocks", ()), *moved]))
            manifest.update({"moved_clocks": every} if every else {})
            for text in moved:
                log.warning(text)
        lost = list(dict.fromkeys([*earlier.get("lost_events", ()), *lost_events(run)]))
        if lost:
            manifest["lost_events"] = lost
            log.warning("%s", "; ".join(lost))
        if replaced:
            manifest["replaced"] = replaced
            log.warning("replaced while the run was interrupted: %s", "; ".join(replaced))
        write_json(run.archive.manifest, manifest)
        config = run.archive.folder / "config.yaml"
        if run.cbt_run.config_text is not None and not config.exists():
            write_whole(config, run.cbt_run.config_text)

    def snapshot(self, when: str) -> None:
        """Write what describes the cluster "before" or "after" the run, once: a run that is resumed has changed it."""
        draft, folder = self.archive.cluster(f"{when}.tmp"), self.archive.cluster(when)
        if self.plan.admin and not folder.exists():
            self.ceph.snapshot(draft)
            draft.rename(folder)


def _earlier_manifest(path: Path) -> Dict[str, Any]:
    """Return the manifest that an earlier process has written; {} when there is none, or it is damaged."""
    try:
        manifest = read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        manifest = error
    if isinstance(manifest, dict):
        return manifest
    why = manifest if isinstance(manifest, Exception) else "not an object"
    log.warning("%s is written anew (%s): whether a program was replaced meanwhile is unknown", path, why)
    return {}


def _versioned(plan: Plan) -> Set[str]:
    """Return the names of programs that have a version in a manifest; Ceph not where the plan upgrades it."""
    return {*(() if plan.upgrades else ("ceph",)), "cbt", "cbt_plugins", *programs_of(plan)}


def _replaced(plan: Plan, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Dict[str, str]:
    """Return the programs of a manifest that have a version which they had not before, with both as text."""
    new: Dict[str, str] = {}
    for name in sorted(_versioned(plan)):
        before, after = (_versions_in(manifest.get(name)) for manifest in (earlier, now))
        if before and after - before:
            new[name] = f"{name}: {', '.join(sorted(before))} -> {', '.join(sorted(after))}"
    return new


#: what the text of a clock that moved has more, of the node that samples the cluster
_STEADY = " (a steady drift is corrected in its samples of the cluster)"


def _moved_clocks(earlier: Mapping[str, Any], now: Mapping[str, Any], sampler: str) -> List[str]:
    """Return for each clock that was set or drifted since the first invocation by how much; its offset is kept.

    `sampler`: the node that samples the cluster, whose clock is measured again and again (SamplerClock).
    """
    first, offsets = _clock_offsets(earlier), _clock_offsets(now)
    texts = []
    for node in first.keys() & offsets.keys():
        moved = offsets[node]["seconds"] - first[node]["seconds"]
        if abs(moved) > DRIFT + first[node]["error"] + offsets[node]["error"]:
            text = f"the clock of {node} moved by {moved:+.3f} s while the run was interrupted"
            texts.append(text + (_STEADY if node == sampler else ""))
    return sorted(texts)


def _clock_offsets(manifest: Mapping[str, Any]) -> Dict[str, Any]:
    offsets = manifest.get("clock_offsets")
    return {node: offset for node, offset in offsets.items() if isinstance(offset, dict)} if offsets else {}


def _versions_in(value: Any) -> Set[str]:
    """Return a version as text; of `ceph versions` all that daemons have, of a checkout its commit."""
    if isinstance(value, dict):
        overall = value.get("overall")
        return set(overall) if isinstance(overall, dict) else {str(value.get("commit") or "")} - {""}
    return {str(value or "")} - {"", UNKNOWN}


def _undo_all(injector: Injector, prepared: bool = False) -> None:
    """Undo what the run has changed on the cluster, and `prepared` for itself. Raises RunFailed for what stays."""
    left = injector.undo_all(prepared)
    if left:
        raise RunFailed("not undone: " + "; ".join(map(str, left)) + " (`cbt-tools undo` prints the commands)")


def clean_nodes(run: RunContext) -> None:
    """Clean our scratch folder, and those of earlier processes: rows that could not be collected stay, and the next
    invocation tries again.

    An unreachable node must not hide why the run ended.
    """
    own = ScratchFolder(run.cbt_run.run_dir, os.getpid())
    earlier = scratch_folders(run.journal.all("invocation"), run.run_id)
    for folder in (*(folder for folder in earlier if folder.path != own.path), own):
        with contextlib.suppress(RemoteError):
            folder.clean(run.remote, run.watched)
