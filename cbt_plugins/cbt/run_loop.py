"""The built-in run loop: CBT's command line, permutations and archive, without a CBT checkout."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence

from cbt_plugins import __version__, exit_status
from cbt_plugins.cbt import archive_layout, cbt_session, checkout
from cbt_plugins.cbt.archive_layout import refuse
from cbt_plugins.cbt.execution import FAILED, Ledger, cause_of, execute_unless_complete
from cbt_plugins.cbt_run import CbtRun, NotTrusted, RunFailed
from cbt_plugins.config import plugins
from cbt_plugins.config.cluster import DEFAULT_CONF
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load_file
from cbt_plugins.config.top_level import unknown_monitors
from cbt_plugins.config.yaml_source import masked_text, read
from cbt_plugins.formatting.screen import lost_output, printable_output
from cbt_plugins.monitor import Monitor
from cbt_plugins.monitors import lifecycle

logger = logging.getLogger(__name__)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors look like those of `cbt-tools`."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(exit_status.USAGE, f"Error: {message}\n")

    def exit(self, status: int = exit_status.OK, message: Optional[str] = None) -> NoReturn:
        loss = lost_output()  # --help or --version
        super().exit(exit_status.CANNOT if loss else status, f"Error: {loss}\n" if loss else message)


def arguments() -> argparse.ArgumentParser:
    """Return the parser of CBT's own command line."""
    parser = _Parser(
        prog="python -m cbt_plugins", description="Run the benchmarks of a CBT file without a CBT checkout."
    )
    parser.add_argument("-V", "--version", action="version", version=f"cbt-plugins {__version__}")
    parser.add_argument("-a", "--archive", required=True, help="directory where the results are archived")
    parser.add_argument("-c", "--conf", help="the ceph.conf file of the cluster")
    parser.add_argument(
        "--live", action="store_true", help="serve the page of the run while it goes on, as the profile `live` does"
    )
    parser.add_argument("config_file", help="YAML file")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run a file; exit status 0: all planned runs have a result, 1: a run failed, 2: wrong use.

    125: the output of --help or --version cannot be written. A run goes on without an output.
    """
    with printable_output(endures=True):
        args = arguments().parse_args(argv)
        _log_to_stderr()
        try:
            config = load_file(args.config_file)
        except ConfigError as error:
            return refuse(str(error).splitlines())
        of_cbt = sorted(set(config.data["benchmarks"]) - set(plugins.names(plugins.BENCHMARKS)), key=str)
        if not of_cbt:
            unknown = list(unknown_monitors(read(Path(args.config_file)), set(_monitors())))
            if unknown:
                return refuse(list(map(str, unknown)))
            return RunLoop(args.archive, config.data, args.conf, Path(args.config_file).resolve(), args.live).run()
        if args.live:
            return refuse([f"--live: {', '.join(map(str, of_cbt))}: only benchmarks of cbt-plugins have a live page"])
        try:
            tree = checkout.find()
        except ValueError as error:
            return refuse([str(error)])
        if not tree:
            return refuse([_no_checkout(str(name)) for name in of_cbt])
    return _hand_over(tree, list(map(str, of_cbt)), args)


def _monitors() -> Dict[str, Callable[[], Any]]:
    return {"collectl": _collectl, **plugins.loaders(plugins.MONITORS)}


def _no_checkout(name: str) -> str:
    names = ", ".join(plugins.names(plugins.BENCHMARKS))
    return (
        f"benchmarks: {name}: no plug-in ({names}), and there is no CBT checkout: "
        f"set CBT_HOME=/path/to/cbt, or git clone https://github.com/ceph/cbt {checkout.cache_path()}"
    )


def _hand_over(tree: Path, of_cbt: Sequence[str], args: argparse.Namespace) -> int:
    """Run the checkout's cbt.py in this process, with the import hook. Raises SystemExit when that ends."""
    import runpy

    from cbt_plugins import autoload

    print(
        f"{', '.join(of_cbt)}: CBT's own; running {tree}/cbt.py ({checkout.describe(tree).describe})",
        file=sys.stderr,
        flush=True,
    )
    autoload.install()
    cbt_session.count_every_file()
    sys.path[0] = str(tree)
    sys.argv = [
        str(tree / "cbt.py"),
        "-a",
        args.archive,
        *(["-c", args.conf] if args.conf else []),
        args.config_file,
    ]
    for handler in list(logging.getLogger("cbt_plugins").handlers):
        logging.getLogger("cbt_plugins").removeHandler(handler)  # cbt.py sets up its own
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


class RunLoop:
    """All runs of one file, one after the other."""

    def __init__(
        self,
        archive: str,
        config: Mapping[str, Any],
        conf: Optional[str],
        config_file: Path,
        live: bool = False,
    ) -> None:
        self._archive = Path(archive)
        self._config_file = config_file
        self._config_text = masked_text(config_file)  # now: whoever edits the file later plans the next invocation
        self._benchmarks: Mapping[str, Any] = config["benchmarks"]
        self._common: Mapping[str, Any] = config.get("common") or {}
        self._endpoints: Mapping[str, Any] = config.get("client_endpoints") or {}
        # CBT runs collectl even when the file does not ask for it.
        self.profiles: Dict[str, Any] = {"collectl": {}, **(config.get("monitoring_profiles") or {})}
        self._cluster: Dict[str, Any] = {**config["cluster"], "archive_dir": archive}
        self.saved = {
            "cluster": dict(self._cluster),
            "benchmarks": dict(self._benchmarks),
            "monitoring_profiles": dict(self.profiles),
        }
        if live:  # how a run is watched is no part of it
            self.profiles.setdefault("live", {})
        self._cluster.setdefault("tmp_dir", f"/tmp/cbt.{os.getpid()}")
        if conf:
            self._cluster["conf_file"] = conf
        self._cluster.setdefault("conf_file", DEFAULT_CONF)
        self._load = plugins.loaders(plugins.BENCHMARKS)
        self._monitors = _monitors()

    def run(self) -> int:
        runs = list(archive_layout.planned(self._benchmarks, self._cluster.get("iterations", 0)))
        ledger = Ledger(runs)
        saved = self._archive / "results" / "cbt_config.yaml"
        begun = not archive_layout.write_once(saved, self.saved)
        if begun and _placeless(archive_layout.saved_file(saved)) != _placeless(self.saved):
            logger.warning("%s: this archive was started with another file", saved)
        status = exit_status.FAILED
        try:
            for run in runs:
                try:
                    ledger.set(run, execute_unless_complete(self._cbt_run(run), self._load[run.benchmark]))
                except BaseException as error:
                    ledger.set(run, FAILED, cause_of(error))
                    if isinstance(error, NotTrusted):
                        continue
                    if isinstance(error, RunFailed):
                        break
                    raise
            status = exit_status.OK if ledger.fulfilled else exit_status.FAILED
        except KeyboardInterrupt:
            status = exit_status.INTERRUPTED
        except Exception:
            logger.exception("internal error of a plug-in")
        if ledger.fulfilled:
            logger.info("%s", "\n".join(ledger.lines()))
        else:
            print("Error:", "\n".join(ledger.lines()), file=sys.stderr)
        return status

    def _cbt_run(self, run: archive_layout.RequestedRun) -> CbtRun:
        config = {key: value for key, value in run.config.items() if key != "acceptable"}
        directory = archive_layout.archive_dir(self._archive, config)
        directory.mkdir(parents=True, exist_ok=True)
        identity = archive_layout.begun_or_new(directory)
        run_dir = archive_layout.run_dir(self._cluster["tmp_dir"], run.benchmark, directory, identity)

        def monitors(
            local_dir: Path, *without: str, acting: Optional[bool] = None, reconnects: Optional[bool] = None
        ) -> AbstractContextManager[None]:
            make = partial(self._build_monitors, without, acting, reconnects)
            return lifecycle.watch(make, self._cluster, self._common, run_dir, local_dir)

        return CbtRun(
            benchmark=run.benchmark,
            config=config,
            iteration=run.iteration,
            archive_dir=directory,
            run_dir=run_dir,
            run_id=identity,
            cluster=self._cluster,
            common=self._common,
            endpoints=self._endpoints,
            config_file=self._config_file,
            checkout=None,
            monitors=monitors,
            profiles=self.profiles,
            config_text=self._config_text,
        )

    def _build_monitors(
        self, without: Sequence[str], acting: Optional[bool], reconnects: Optional[bool]
    ) -> List[Monitor]:
        profiles = {name: profile for name, profile in self.profiles.items() if name not in without}
        built = lifecycle.build(profiles, self._monitors, self._cluster, self._common)
        return lifecycle.select_monitors(built, acting, reconnects)


def _placeless(saved: Any) -> Any:
    """Return the sections of a file without where its archive is, which is written in several ways and may move."""
    if not isinstance(saved, dict) or not isinstance(saved.get("cluster"), dict):
        return saved
    return {**saved, "cluster": {key: value for key, value in saved["cluster"].items() if key != "archive_dir"}}


def _collectl() -> Any:
    from cbt_plugins.monitors.collectl import Collectl

    return Collectl


def _log_to_stderr() -> None:
    top = logging.getLogger("cbt_plugins")
    top.setLevel(logging.DEBUG)
    if not top.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s - %(levelname)-8s - %(name)s - %(message)s", "%H:%M:%S"))
        top.addHandler(handler)
