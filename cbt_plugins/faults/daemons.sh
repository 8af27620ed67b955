#!/bin/sh
# Print how the daemons of this node are run.
#   in:  daemons="osd.3 rgw.a"
#   out: "unit DAEMON NAME STATE" for each unit that systemd has loaded,
#        "process PROGRAM PID START FILES ARGV AROUND" for each process of Ceph that belongs to root, Ceph's
#        user or this user; ARGV and AROUND (user, group, folder, environment) in base64
daemons=${daemons:?}
# shellcheck source=/dev/null
. ./ceph_processes.sh
daemon_program=
for n in $daemons; do
  type=${n%%.*} id=${n#*.}
  # of a gateway client.ID or client.rgw.ID: the unit runs it with `--name client.INSTANCE`
  if [ "$type" = rgw ]; then
    set -- "ceph-radosgw@rgw.$id.service" "ceph-radosgw@$id.service"
  else
    set -- "ceph-$type@$id.service"
  fi
  systemctl list-units --all --plain --no-legend "$@" "ceph-*@$n.service" 2>/dev/null |
    while read -r u load active _; do [ "$load" != loaded ] || echo "unit $n $u $active"; done
done
for p in /proc/[0-9]*; do
  daemon_program "${p#/proc/}"
  [ -n "$daemon_program" ] || continue
  is_ours "${p#/proc/}" || continue
  files=$(sed -n 's/^Max open files *\([0-9]*\).*/\1/p' "$p/limits" 2>/dev/null)
  around=$({ owner "${p#/proc/}"; echo; readlink "$p/cwd"
             tr '\0' '\n' < "$p/environ" | grep -E '^(LD|TCMALLOC)_[A-Z0-9_]*='; } 2>/dev/null | base64 -w0)
  echo "process $daemon_program ${p#/proc/} $(started "${p#/proc/}") ${files:-0} $(base64 -w0 < "$p/cmdline" 2>/dev/null) $around"
done
true
