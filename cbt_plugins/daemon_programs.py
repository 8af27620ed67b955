"""The programs of Ceph's daemons: the names that their processes have, and the types of the daemons.

Standard library only, Python 3.6: monitors take it to the nodes.
"""

#: name of the process -> type of the daemon
TYPES = {"ceph-osd": "osd", "radosgw": "rgw", "ceph-mon": "mon", "ceph-mgr": "mgr", "ceph-mds": "mds"}
#: begin of the name of a process that has the name of one of its threads -> program: Ceph 18 renames radosgw so
RENAMED = {"notif-worker": "radosgw"}


def program_of(process_name: str) -> str:
    """Return the program that a process may be by the name in /proc/PID/comm; its command line must name it, too."""
    return next((program for begin, program in RENAMED.items() if process_name.startswith(begin)), process_name)
