#!/bin/sh
# Pause or resume processes of this node.
#   in: action, d (folder on this node), name (of the step), processes="PID:START ..."
#   action=pause:  agent (text of process_agent.py): SIGSTOP to exactly these, and wait until all of their threads have
#                  the state T and they reply to nobody; then the time is in the file NAME.paused. exit 3 without a
#                  signal when a process has ended
#   action=resume: SIGCONT to those that are still there
#   action=state:  print "recovered" when none of them is stopped
action=${action:?} d=${d:?} name=${name:?} processes=${processes?}
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
alive() { [ "$(started "${1%:*}")" = "${1#*:}" ]; }
# the states of the threads of a process that are not stopped, or that are
threads() { cat "/proc/$1/task/"*/stat 2>/dev/null | sed 's/.*) //' | cut -d' ' -f1 | grep "$2" T; }
case $action in
  pause)
    rm -f "$d/$name.paused"
    for p in $processes; do
      alive "$p" || { echo "process ${p%:*} has ended since it was looked up" >&2; exit 3; }; done
    for p in $processes; do kill -STOP "${p%:*}"; done
    for p in $processes; do
      n=0
      while threads "${p%:*}" -qv; do
        n=$((n + 1)); [ "$n" -le 100 ] || { echo "process ${p%:*} is not stopped" >&2; exit 1; }
        sleep 0.05; done; done
    now=$(date +%s.%N)
    # shellcheck disable=SC2086 # each is a word
    [ "$(python3 -I -c "${agent:?}" silent $processes)" = silent ] || { echo "a process still replies" >&2; exit 1; }
    echo "$now" > "$d/$name.paused" ;;
  resume)
    for p in $processes; do ! alive "$p" || kill -CONT "${p%:*}"; done ;;
  state)
    for p in $processes; do ! alive "$p" || ! threads "${p%:*}" -q || exit 0; done
    echo recovered ;;
esac
