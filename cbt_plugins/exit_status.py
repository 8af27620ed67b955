"""Exit statuses of the programs of this project: `python -m cbt_plugins` and the verbs of `cbt-tools`."""

from __future__ import annotations

from typing import Mapping

OK, FAILED, USAGE, INCONCLUSIVE, UNUSABLE, ANOTHER_CLUSTER = 0, 1, 2, 3, 4, 5
CANNOT, INTERRUPTED, UNREAD = 125, 130, 141
#: of `cbt-tools bisect step`: `git bisect run` stops; it takes 1 to 127, but for 125, for a bad commit
ABORT = 128
#: exit statuses of all verbs; the help of a verb lists the statuses that it may return
STATUSES: Mapping[int, str] = {
    OK: "done",
    FAILED: "the verb failed, or a check was not passed",
    USAGE: "an error in the command line or in a file that it names; or a path that is missing or cannot be opened",
    INCONCLUSIVE: "inconclusive",
    UNUSABLE: "a run is incomplete, unusable or unreadable; the result has the other runs",
    ANOTHER_CLUSTER: "the cluster was recreated after the run",
    CANNOT: "this program failed, or its output cannot be written, as on a full disk; or a side of a pull request "
    "could not be tested",
    INTERRUPTED: "interrupted",
    UNREAD: "the reader of the output ended early, such as `head`",
}
