"""Thread groups: what the threads of Ceph's daemons do, by their names; and the CPU time of each group.

The names of 16.2, 18.2 and 20.2, as their daemons have them: tests/data/resources/threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Dict, Mapping, Tuple

import numpy as np

_ALL = ("osd", "rgw", "mon", "mgr", "mds")
_Table = Tuple[Tuple[str, Tuple[str, ...], Tuple[str, ...]], ...]
# fmt: off
#: group, classes of daemons, patterns of names (a name has at most 15 characters); the first row that fits counts
TABLE: _Table = (
    ("messenger", _ALL, ("msgr-worker-*", "ms_dispatch", "ms_local", "ms_reaper", "ms_accepter", "rdma-*")),
    # where RocksDB's writes run: BlueStore's commits, and those of the monitor's store
    ("rocksdb", _ALL, ("rocksdb:*", "bstore_kv_*", "fn_monstore")),
    ("log", _ALL, ("log",)),
    ("op-queue", ("osd",), ("tp_osd_tp*", "tp_osd_*", "tp_peering")),
    ("bluestore", ("osd",), ("bstore_*", "cfin", "dfin", "fn_anonymous")),
    # 16.2: radosgw; 18.2: notif-worker0; 20.2: io_context_pool, which runs coroutines in all of them
    ("frontend", ("rgw",), ("radosgw", "notif-worker0", "io_context_pool", "civetweb-*")),
    ("background", ("rgw",), ("rgw_gc", "rgw_lc_*", "lifecycle_thr_*", "wp_thrd:*", "rgw_obj_expirer", "rgw_restore",
                              "rgw_dt_lg_renew", "rados_async", "http_manager", "rgw_curl", "data-*", "meta-*",
                              "sync-*", "dedup_bg", "lua_background", "notif-worker*", "amqp_manager", "kafka_manager",
                              "rgw_reshard*", "reshard_thread")),
)
# fmt: on
#: of threads whose names are in no row
OTHER_THREADS = "other"
#: what a process used and no thread that was seen: of threads that ended between two looks
ENDED = "ended"
GROUPS: Tuple[str, ...] = (*(group for group, _, _ in TABLE), OTHER_THREADS, ENDED)


@cache
def group_of(daemon_class: str, name: str) -> str:
    """Return the group of a thread of a class of daemons."""
    for group, classes, patterns in TABLE:
        if daemon_class in classes and any(fnmatchcase(name, pattern) for pattern in patterns):
            return group
    return OTHER_THREADS


def name_of(line: Mapping[str, Any]) -> str:
    """Return the operation under which a line of the summary is compared: "osd" or "osd:messenger"."""
    return f"{line['class']}:{line['group']}" if line["group"] else str(line["class"])


@dataclass(frozen=True)
class Looks:
    """What looks at the threads of one daemon found: `at` are the numbers of the samples with a look, in order.

    `look`, `name` and `used` are the columns of what was found: index into `at`, index into `names`, seconds.
    """

    at: np.ndarray
    look: np.ndarray
    name: np.ndarray
    used: np.ndarray
    names: Dict[int, str]

    def shares(self, daemon_class: str, samples: np.ndarray, used: np.ndarray) -> np.ndarray:
        """Return the share of each of GROUPS in what a daemon used up to each of its samples: (samples, groups).

        Those of a look hold for all samples since the look before. `samples` are their numbers, `used` their seconds.
        """
        looks = len(self.at)
        of = np.searchsorted(self.at, samples)  # == looks: after the last one
        parts = np.zeros((looks + 1, len(GROUPS)))
        groups = {number: GROUPS.index(group_of(daemon_class, name)) for number, name in self.names.items()}
        column = np.array([groups.get(int(number), GROUPS.index(OTHER_THREADS)) for number in self.name], int)
        np.add.at(parts, (self.look, column), self.used)
        # one is counted in ticks, and they are not read at one instant
        total_used = np.maximum(np.bincount(of, weights=used, minlength=looks + 1), parts.sum(axis=1))
        parts[:, GROUPS.index(ENDED)] = total_used - parts.sum(axis=1)
        total_used[total_used == 0] = 1.0
        shares: np.ndarray = (parts / total_used[:, None])[of]
        return shares
