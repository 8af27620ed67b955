#!/bin/sh
# Let processes take processor time or memory of this node. They end by themselves, and are the first that a node
# without memory ends.
#   in: action, d (folder on this node), name, cpus (busy processes), bytes (of memory, 0: none), seconds (their life),
#       cpu_before, memory_before (percent; "": not of interest), proc (where the kernel has its pressure)
#   action=look:    print "cpus N" and "available BYTES"; where the kernel has pressure (PSI), also "cpu_some PERCENT" and
#                   "memory_some PERCENT": the time in which tasks waited, of the last ten seconds
#   action=start:   start them; their PID and start time are in a file of the folder
#   action=stop:    end them; none there is no error
#   action=stopped: print "recovered" when none is left
#   action=ended:   print "ended" when one of them has ended
#   action=effect:  print "in effect" when each has used processor time within a second, and the memory is in use;
#                   the pressure of this second is in a file of the folder
#   action=reading: print that pressure and the one before as JSON, with a warning where it has not risen
action=${action:?} d=${d:?} name=${name:?} cpus=${cpus:-0} bytes=${bytes:-0} seconds=${seconds:-0}
cpu_before=${cpu_before:-} memory_before=${memory_before:-} proc=${proc:-/proc/pressure}
list="$d/$name.hogs"
field() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f"$2"; }
# microseconds in which tasks waited for a processor (cpu), or for memory; nothing without PSI
waited() { sed -n 's/^some .*total=//p' "$proc/$1" 2>/dev/null; }
percent() { [ -z "$2" ] || [ -z "$3" ] || echo "$1 $((($3 - $2) / ticks / 100))"; }
uptime() { read -r u _ < /proc/uptime; echo "${u%.*}${u#*.}"; }
# without a new process: one that cannot be started, for lack of memory, must not make the others look gone
alive() {
  [ ! -e "$list" ] || while read -r p s hog; do
    { read -r stat < "/proc/$p/stat"; } 2>/dev/null || continue
    # shellcheck disable=SC2086 # words
    set -- ${stat##*) }
    [ "${20}" != "$s" ] || echo "$p $hog"; done < "$list"
}
launch() {
  hog=$1; shift
  # shellcheck disable=SC2016 # the inner shell expands them
  setsid sh -c 'echo 1000 > /proc/self/oom_score_adj; exec "$@"' sh "$@" </dev/null >/dev/null 2>&1 &
  echo "$! $(field $! 20) $hog" >> "$list"
}
# shellcheck disable=SC2016
busy='while read -r u _ < /proc/uptime && [ "${u%.*}" -lt "$1" ]; do
  i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; done'
full='import sys, time
held = bytearray(int(sys.argv[1]))
for page in range(0, len(held), 4096):
    held[page] = 1
time.sleep(float(sys.argv[2]))'
case $action in
  look)
    echo "cpus $(grep -c '^processor' /proc/cpuinfo)"
    echo "available $(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) * 1024))"
    for kind in cpu memory; do
      sed -n "s/^some avg10=\([0-9.]*\) .*/${kind}_some \1/p" "$proc/$kind" 2>/dev/null || :; done ;;
  start)
    read -r u _ < /proc/uptime
    n=0; while [ "$n" -lt "$cpus" ]; do launch busy sh -c "$busy" sh $((${u%.*} + seconds)); n=$((n + 1)); done
    [ "$bytes" = 0 ] || launch full python3 -I -c "$full" "$bytes" "$seconds" ;;
  stop)
    alive | while read -r p _; do kill -KILL "$p"; done
    n=0; until [ -z "$(alive)" ] || [ "$n" -ge 50 ]; do n=$((n + 1)); sleep 0.1; done
    [ -z "$(alive)" ] && rm -f "$list" "$d/$name.psi" ;;
  ended)
    # one that cannot be read, for lack of memory, has not ended
    [ ! -e "$list" ] || while read -r p s _; do
      stat=
      [ ! -d "/proc/$p" ] || { read -r stat < "/proc/$p/stat"; } 2>/dev/null || continue
      # shellcheck disable=SC2086 # words
      set -- ${stat##*) }
      [ "${20:-}" = "$s" ] || { echo ended; break; }; done < "$list" ;;
  stopped) [ -n "$(alive)" ] || echo recovered ;;
  effect)
    before=$(alive | while read -r p hog; do echo "$p $(field "$p" 12)"; done)
    cpu=$(waited cpu) memory=$(waited memory) ticks=$(uptime)
    sleep 1
    ticks=$(($(uptime) - ticks)); [ "$ticks" -gt 0 ] || ticks=1
    [ ! -e "$list" ] ||
      { percent cpu "$cpu" "$(waited cpu)"; percent memory "$memory" "$(waited memory)"; } > "$d/$name.psi"
    echo "$before" | while read -r p was; do
      case $(alive | sed -n "s/^$p //p") in
        busy) [ "$(field "$p" 12)" -gt "$was" ] || echo "process $p waits for a processor" ;;
        full) [ "$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$p/status")" -ge $((bytes / 1024)) ] ||
          echo "process $p has not all of its memory yet" ;;
        *) echo "process $p has ended" ;;
      esac
    done | grep . || echo 'in effect' ;;
  reading)
    psi='' warnings=''
    while read -r kind now; do
      case $kind in cpu) was=$cpu_before ;; *) was=$memory_before ;; esac
      [ -n "$was" ] || continue
      psi="$psi${psi:+, }\"$kind\": {\"before\": $was, \"in force\": $now}"
      [ "$now" -gt "${was%.*}" ] || warnings="$warnings${warnings:+, }\"the pressure on $kind has not risen (PSI):\
 tasks waited for $now % of a second, and for $was % of the time before the fault\""; done < "$d/$name.psi"
    echo "{\"psi\": {$psi}, \"warnings\": [$warnings]}" ;;
esac
