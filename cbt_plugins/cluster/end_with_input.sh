#!/bin/sh
# Run a command that nobody needs any more when the connection ends: end_with_input.sh COMMAND...
#
# Standard input says nothing, and ends with the connection, or with the process at its other end, however that ended.
# The command leads a session: it may be a script, and what it started ends with it, also at a timeout.
# shellcheck disable=SC2329 # by the trap below
left() {
  sed -n "$pattern" /proc/[0-9]*/stat
  [ -r /proc/1/stat ] && return
  # hidepid: /proc hides the processes of others, as root started by sudo
  if kill -0 "$target" || sudo -n kill -s 0 -- "$target"; then echo "$target"; fi
}
# shellcheck disable=SC2329
end() {
  trap '' TERM
  # the second is for what takes signals from root alone, as root started by sudo: the first may have ended the rest
  for signal in TERM TERM KILL; do
    for process in $(left); do
      # -- as /bin/kill of procps wants it before a group; with it BusyBox sends the signal, but says that it failed
      kill "-$signal" "$process" || sudo -n kill -s "$signal" -- "$process"
    done
    for _ in 1 2 3 4 5 6 7 8; do
      sleep 0.2
      [ "$(left)" ] || return
    done
  done
} >/dev/null 2>&1

exec 3<&0
# the processes that are left of it, but no zombies: their files begin "pid (name) state parent group session"
if command -v setsid >/dev/null; then
  setsid env "$@" </dev/null 3<&- &
  pid=$! target=-$!
  pattern="s/^\([0-9]*\) (.*) [^Z] [0-9]* [0-9]* $pid .*/\1/p"
else
  env "$@" </dev/null 3<&- &
  pid=$! target=$!
  pattern="s/^\($pid\) (.*) [^Z] .*/\1/p"
fi
trap end TERM
{
  while read -r _; do :; done
  kill -s TERM "$$"
} <&3 >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait "$pid"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
