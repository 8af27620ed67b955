#!/bin/sh
# Stop or start daemons through cephadm's orchestrator, and wait until that has happened.
#   in: action, ceph (its command line), daemons="osd.3 ...", d (folder on this node), name (of the fault), pause,
#   host (of the daemons: without it, each look would make every host of the cluster list its daemons)
#   action=stop, action=start; action=settled: print "settled" when no order of a stop is pending;
#   action=count: print the number of daemons that run
#
# `ceph orch daemon stop` and `start` leave an order ("Scheduled to ...") that is carried out seconds or minutes later.
# While a stop is pending, a start is dropped with the same words; a daemon that is reconfigured loses its order. So an
# order is repeated until its effect is seen. A stop whose effect was not seen is completed before a start: a file on
# this node says which.
action=${action:?} ceph=${ceph:?} daemons=${daemons:?} d=${d:?} name=${name:?} pause=${pause:?} host=${host:-}
run_ceph() { eval "$ceph \"\$@\""; }
# status 2: Ceph did not reply
is() {
  case $1 in
    osd.*) reply=$(run_ceph osd dump --format plain 2>/dev/null) || return 2
      printf '%s\n' "$reply" | grep -q "^osd\.${1#osd.} $2 " ;;
    *) reply=$(run_ceph orch ps ${host:+"$host"} --daemon_type "${1%%.*}" --daemon_id "${1#*.}" --refresh \
           --format json 2>/dev/null) || return 2
      printf '%s\n' "$reply" | grep -Eq "\"status_desc\": *\"($3)\"" ;;
  esac
}
# error: its unit has failed, for example because the daemon did not end in time and was killed
down() { is "$1" down 'stopped|error'; }
up() { is "$1" up running; }
order() { run_ceph orch daemon "$1" "$2" >/dev/null; }
stopped() { n=0; until down "$1"; do n=$((n + 1)); [ $((n % 10)) != 0 ] || order stop "$1"; sleep "$pause"; done; }
status=0 ordered=''
case $action in
  stop)
    for o in $daemons; do
      : > "$d/$name.$o.stopping"
      order stop "$o" || { status=$?; rm -f "$d/$name.$o.stopping"; exit "$status"; }; done
    for o in $daemons; do stopped "$o"; rm -f "$d/$name.$o.stopping"; done ;;
  start)
    # first those that no stop is pending for: one that does not stop keeps no other from its start
    first='' last=''
    for o in $daemons; do if [ -e "$d/$name.$o.stopping" ]; then last="$last $o"; else first="$first $o"; fi; done
    for o in $first; do if order start "$o"; then ordered="$ordered $o"; else status=$?; fi; done
    for o in $last; do
      if order stop "$o"; then stopped "$o" && rm -f "$d/$name.$o.stopping"; fi
      if order start "$o"; then ordered="$ordered $o"; else status=$?; fi; done
    n=0
    while [ -n "$ordered" ]; do
      left=''; for o in $ordered; do up "$o" || left="$left $o"; done
      ordered=$left n=$((n + 1))
      if [ $((n % 5)) = 0 ]; then for o in $ordered; do order start "$o"; done; fi
      [ -z "$ordered" ] || sleep "$pause"; done ;;
  settled)
    for o in $daemons; do [ ! -e "$d/$name.$o.stopping" ] || exit 0; done
    echo settled ;;
  count)
    n=0
    for o in $daemons; do
      up "$o"; case $? in 0) n=$((n + 1)) ;; 2) echo "ceph does not reply" >&2; exit 1 ;; esac; done
    echo "$n" ;;
esac
exit "$status"
