#!/bin/sh
# For other programs, whose text gets it from shell_programs.py, with a function `daemon_program PID` that sets the
# variable of this name: when a process has begun, who owns it, and whether that is root, Ceph or this user.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
# the real user and group; the folder below /proc belongs to root when the process does not want to be dumped
owner() { sed -n 's/^[UG]id:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$1/status" 2>/dev/null | tr '\n' ' '; }
# any user can give a process the name of a daemon; only root can make the user `ceph`, or a folder in /var/lib
trusted=" 0 $(id -u) ${SUDO_UID:-0} $({ id -u ceph; stat -c %u /var/lib/ceph /var/lib/ceph/*; } 2>/dev/null | tr '\n' ' ')"
is_ours() { o=$(owner "$1"); case $trusted in *" ${o%% *} "*) [ -n "$o" ] ;; *) false ;; esac; }
