#!/bin/sh
# Arm or disarm a dead man's switch on this node.
#   in: action, d (folder on this node), name
#   action=arm:    program (text), seconds: run the program after so long, by a timer of systemd or a process;
#                  prints "armed systemd UNIT" or "armed process PID START"
#   action=disarm: take the switch away; prints "fired WHEN NOW" when it has run the program; no switch is no error
action=${action:?} d=${d:?} name=${name:?}
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
f="$d/$name" unit="cbt-plugins-$name"
case $action in
  arm)
    printf %s "${program:?}" > "$f.recover"
    rm -f "$f.fired" "$f.armed"
    if [ -d /run/systemd/system ]; then
      # a switch that has given up leaves a failed unit; one that is armed already counts
      systemctl reset-failed "$unit.service" 2>/dev/null
      { systemctl is-active --quiet "$unit.timer" ||
        systemd-run --quiet --unit="$unit" --on-active="${seconds:?}" --timer-property=AccuracySec=1s \
          /bin/sh "$f.recover" "$f"; } && echo "systemd $unit" > "$f.armed"
    else
      # shellcheck disable=SC2016 # the inner shell expands them
      setsid sh -c 'sleep "$1"; exec sh "$2.recover" "$2"' sh "${seconds:?}" "$f" </dev/null >/dev/null 2>&1 &
      # only the leader of its own process group can be ended as a whole
      p=$! g='' n=0
      until [ "$g" = "$p" ] || [ "$n" -ge 100 ]; do
        n=$((n + 1)); sleep 0.02; g=$(sed 's/.*) //' "/proc/$p/stat" 2>/dev/null | cut -d' ' -f3); done
      s=$(started "$p")
      [ "$g" = "$p" ] && [ -n "$s" ] && echo "process $p $s" > "$f.armed"
    fi
    read -r a < "$f.armed" && echo "armed $a" ;;
  disarm)
    [ ! -e "$f.fired" ] || echo "fired $(cat "$f.fired") $(date +%s.%N)"
    if read -r how a b 2>/dev/null < "$f.armed"; then
      # a service that is at work is left to its end; the timer alone is stopped
      if [ "$how" = systemd ]; then systemctl stop "$a.timer" 2>/dev/null
      elif [ "$(started "$a")" = "$b" ]; then kill -TERM "-$a"; fi
    fi
    rm -f "$f.armed" "$f.recover" "$f.fired"
    true ;;
esac
