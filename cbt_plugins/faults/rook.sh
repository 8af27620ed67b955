#!/bin/sh
# Stop or start daemons that Rook runs, by the number of replicas of their deployments.
#   in: kubectl, kubectl_operator (command lines with the namespace of the daemons, and of the operator), operator,
#       deployments="NAME:REPLICAS:SELECTOR ..." (the number before the fault, the labels of the pods), pause
#   action=stop: the operator first, which would scale a daemon back; action=start: the operator last
#   action=settled: print "settled" when the daemons, and the operator, are as before
#   action=count:   print the number of daemons that are available
#
# A deployment has the label cbt-plugins=stopping, then =stopped, from before its change to after its undo. While any
# deployment has it, the operator stays at 0; the operator's own number before is in its annotation.
action=${action:?} pause=${pause:?}
# command lines are quoted for a shell
k() { eval "${kubectl:?} --request-timeout=30s \"\$@\""; }
ko() { eval "${kubectl_operator:?} --request-timeout=30s \"\$@\""; }
operator=${operator:?}
field() { k get deployment "$1" -o "jsonpath={.$2}"; }
operator_field() { ko get deployment "$operator" -o "jsonpath={.$1}"; }
marked() { k get deployments -l cbt-plugins -o name; }
unpacked() { name=${1%%:*} selector=${1##*:} replicas=${1%:*} replicas=${replicas##*:}; }
available() { [ "$(field "$1" status.availableReplicas)" = "$2" ]; }
# wait for the end of the pods of a deployment: command, name, selector
until_gone() {
  while n=$("$1" get deployment "$2" -o 'jsonpath={.spec.replicas}') || return; do
    [ "$n" = 0 ] || { echo "deployment $2 was scaled back to $n: does OLM, Helm or Argo CD manage $2?" >&2; return 1; }
    p=$("$1" get pods -l "$3" -o name) || return
    [ "$p" ] || return 0
    sleep "$pause"; done
}
kept_by_operator() { operator_field metadata.annotations.cbt-plugins-replicas; }
case $action in
  stop)
    for d in ${deployments:?}; do
      unpacked "$d"
      k label deployment "$name" cbt-plugins=stopping --overwrite >/dev/null || exit; done
    n=$(operator_field spec.replicas) && kept=$(kept_by_operator) || exit
    [ "$kept" ] || ko annotate deployment "$operator" "cbt-plugins-replicas=${n:-1}" >/dev/null || exit
    ko scale deployment "$operator" --replicas=0 >/dev/null || exit
    # shellcheck disable=SC2016 # the variables are of the template
    until_gone ko "$operator" "$(ko get deployment "$operator" \
      -o 'go-template={{range $k, $v := .spec.selector.matchLabels}}{{$k}}={{$v}},{{end}}' | sed 's/,$//')" || exit
    for d in $deployments; do unpacked "$d"; k scale deployment "$name" --replicas=0 >/dev/null || exit; done
    for d in $deployments; do
      unpacked "$d"
      until_gone k "$name" "$selector" || exit
      k label deployment "$name" cbt-plugins=stopped --overwrite >/dev/null || exit; done
    # while a daemon ends somebody may have started the operator
    until_gone ko "$operator" cbt-plugins=none ;;
  start)
    status=0
    for d in ${deployments:?}; do
      unpacked "$d"
      mark=$(field "$name" metadata.labels.cbt-plugins) n=$(field "$name" spec.replicas) || { status=1; continue; }
      if [ "$mark" = stopped ] && [ "$n" != 0 ]; then
        t=$(k get pods -l "$selector" -o 'jsonpath={.items[0].metadata.creationTimestamp}')
        echo "deployment $name was scaled back to $n during the fault" >&2
        [ -z "$t" ] || echo "fired $(date -d "$t" +%s.0) $(date +%s.0)"; fi
      k scale deployment "$name" "--replicas=$replicas" >/dev/null || status=1; done
    [ "$status" = 0 ] || exit 1
    for d in $deployments; do
      unpacked "$d"
      until available "$name" "$replicas"; do sleep "$pause"; done
      k label deployment "$name" cbt-plugins- >/dev/null || exit; done
    others=$(marked) && kept=$(kept_by_operator) || exit
    [ -n "$others" ] || [ -z "$kept" ] || {
      ko scale deployment "$operator" "--replicas=$kept" >/dev/null &&
        ko annotate deployment "$operator" cbt-plugins-replicas- >/dev/null; } ;;
  settled)
    for d in ${deployments:?}; do
      unpacked "$d"
      [ "$(field "$name" spec.replicas)" = "$replicas" ] && available "$name" "$replicas" || exit
      mark=$(field "$name" metadata.labels.cbt-plugins) && [ -z "$mark" ] || exit; done
    others=$(marked) && kept=$(kept_by_operator) || exit
    [ -z "$others" ] && [ -n "$kept" ] || echo settled ;;
  count)
    n=0
    for d in ${deployments:?}; do
      unpacked "$d"
      a=$(field "$name" status.availableReplicas) || exit
      [ "${a:-0}" = 0 ] || n=$((n + 1)); done
    echo "$n" ;;
esac
