#!/bin/sh
# Signal, start, restart or count bare processes of Ceph.
#   action=signal: signal=TERM processes="PID:START ...": signal exactly these, and wait until they are gone; exit 3
#                  without a signal when one of them has ended
#   action=start:  programs, pattern (of its command line), line, folder, files (its limit of open files), foreground:
#                  run the line unless the program runs already
#   action=restart: the same as start, after what runs of it has ended in good order
#   action=count:  programs, pattern: print the number of processes
action=${action:?}
# shellcheck source=/dev/null
. ./ceph_processes.sh
daemon_program=
list_processes() {
  for p in /proc/[0-9]*; do
    daemon_program "${p##*/}"
    case " ${programs:?} " in *" $daemon_program "*) ;; *) continue ;; esac
    if tr '\0' ' ' < "$p/cmdline" 2>/dev/null | grep -Eq -e "${pattern:?}" && is_ours "${p##*/}"; then
      s=$(started "${p##*/}"); [ -z "$s" ] || echo "${p##*/}:$s"; fi
  done
}
running() { list_processes | grep -c .; }
check_processes() {
  for p in ${processes?}; do
    [ "$(started "${p%:*}")" = "${p#*:}" ] || { echo "process ${p%:*} has ended since it was looked up" >&2; exit 3; }
  done
}
signalled() {
  for p in ${processes?}; do
    [ "$(started "${p%:*}")" != "${p#*:}" ] || kill "-${signal:?}" "${p%:*}"; done
  for p in $processes; do
    while [ "$(started "${p%:*}")" = "${p#*:}" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/${p%:*}/status" 2>/dev/null
    do sleep 0.1; done
  done
}
launch() {
  cd "${folder:?}" 2>/dev/null || cd / || exit
  # shellcheck disable=SC3045 # where a shell does not know -n, the limit stays as it is
  [ "${files:-0}" = 0 ] || ulimit -n "$files" 2>/dev/null
  if [ -n "${foreground:-}" ]; then eval "setsid ${line:?} </dev/null >/dev/null 2>&1 &"; else eval "${line:?}"; fi
}
case $action in
  signal) check_processes; signalled ;;
  restart) signal=TERM processes=$(list_processes); signalled; ( launch ) ;;
  start) [ "$(running)" != 0 ] || ( launch ) ;;
  count) running ;;
esac
