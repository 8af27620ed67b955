"""`cbt-tools VERB`: the table of verbs and nothing else."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Optional, Sequence

#: verb -> (module with add_arguments and run, one line of help)
VERBS = {
    "build": ("cbt_plugins.tools.build", "the load generators' binaries, from pinned sources"),
    "lab": ("cbt_plugins.tools.lab", "a real multi-node Ceph cluster on this machine"),
    "plan": ("cbt_plugins.tools.plan", "what a YAML file will do, without doing it"),
    "size": ("cbt_plugins.tools.size", "how many objects, PGs and workers, and how fast at most: the models"),
    "inject": ("cbt_plugins.tools.inject", "the events of a fault file, beside any load"),
    "undo": ("cbt_plugins.tools.undo", "put back what a run has changed on the cluster and not put back itself"),
    "sql": ("cbt_plugins.tools.sql", "free questions to an archive, in SQL"),
    "report": ("cbt_plugins.tools.report", "summary, table and HTML page from an archive"),
    "export": ("cbt_plugins.tools.export", "results in the forms of other programs"),
    "compare": ("cbt_plugins.tools.compare", "what changed between archives, and what chance may have done"),
    "gate": ("cbt_plugins.tools.gate", "limits for what may become worse, with an exit status for pipelines"),
    "history": ("cbt_plugins.tools.history", "metrics through many runs, and where their level changed"),
}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one verb; only that verb's module is imported."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="cbt-tools")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, (module_name, text) in VERBS.items():
        verb = verbs.add_parser(name, help=text, description=text, add_help=name == (argv[0] if argv else ""))
        if argv and argv[0] == name:
            module = importlib.import_module(module_name)
            module.add_arguments(verb)
            verb.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
