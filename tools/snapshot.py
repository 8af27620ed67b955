"""Check that a cluster restored from a snapshot holds the same objects."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any, Dict

import yaml

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.object_sample import OBJECTS, ObjectSample, Shell
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.exit_status import FAILED, OK
from cbt_plugins.formatting import several
from cbt_plugins.journal import write_json

from .command import CommandError, explain, warn

#: seconds for one script: some hundred commands on a slow cluster
_LIMIT = 1800.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    examples = ("cbt-tools snapshot record my.yaml aged.json", "cbt-tools snapshot check my.yaml aged.json")
    explain(parser, examples, {FAILED: "the cluster has other objects, or did not answer"})
    parser.add_argument(
        "action", choices=("record", "check"),
        help="record: before the snapshot, write a sample; check: after a restore, compare with it",
    )
    parser.add_argument("file", type=Path, help="a CBT YAML file, for its `cluster:` section")
    parser.add_argument("sample", type=Path, help="file of the sample: fsid, names and hashes of objects")
    parser.add_argument("--seed", type=int, default=0, help="seed that chooses the objects (default %(default)s)")
    parser.add_argument("--objects", type=int, default=OBJECTS, help="number of objects (default %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Return 0: recorded, or fsid and objects are the same; 1: they differ; 2: an error in a file."""
    try:
        document: Dict[str, Any] = yaml.safe_load(args.file.read_text(encoding="utf-8")) or {}
        cluster, common = document["cluster"], document.get("common") or {}
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CommandError(f"{args.file}: cannot read a `cluster:` section: {why}") from error
    shell = shell_of(Ceph(Remote.of_cluster(cluster, common), cluster), str(cluster.get("rados_cmd") or "rados"))
    try:
        if args.action == "record":
            sample = ObjectSample.take(shell, args.seed, args.objects)
            if not sample.objects:
                warn("no pool with data of clients has an object: a check will compare no data")
            write_json(args.sample, sample.as_json())
            print(f"{args.sample}: fsid {sample.fsid}, {several(len(sample.objects), 'object')}")
            return OK
        sample = ObjectSample.of_json(json.loads(args.sample.read_text(encoding="utf-8")))
        different = sample.differences(shell)
        if not sample.objects and not different:
            present = ObjectSample.take(shell, sample.seed).objects[:1]
            text = "the sample has no object, the cluster has"
            different = [f"{text} {sampled.name} in pool {sampled.pool}" for sampled in present]
    except RemoteError as error:
        raise CommandError(str(error), FAILED) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{args.sample}: {error.strerror if isinstance(error, OSError) else error}") from error
    if different:
        raise CommandError("differs from the recorded sample: " + "; ".join(different), FAILED)
    if not sample.objects:
        print(f"fsid is the same as in {args.sample}; both have no objects of clients, so no object was compared")
        return OK
    print(f"fsid and {several(len(sample.objects), 'object')} are the same as in {args.sample}")
    return OK


def shell_of(ceph: Ceph, rados: str) -> Shell:
    """Return the function that runs a bash script on the head node, with the `ceph` and `rados` of the file."""
    programs, conf = ceph.programs, shlex.quote(ceph.programs.conf)
    rados = f"{programs.prefix}{rados} -c {conf}"
    names = f'ceph() {{ command {ceph.command} "$@"; }}; rados() {{ command {rados} "$@"; }}; '

    def shell(script: str) -> str:
        return ceph.run(f"bash -c {shlex.quote(names + script)}", _LIMIT, check=True).stdout

    return shell
