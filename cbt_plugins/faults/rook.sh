#!/bin/sh
# Stop or start daemons that Rook runs, by the number of replicas of their deployments.
#   in: kubectl, kubectl_operator (command lines with the namespace of the daemons, and of the operator),
#       namespace (of the daemons), operator, pause, wait (seconds that action=start waits for the daemons, at most),
#       deployments="NAME:REPLICAS:SELECTOR[:POD:COST] ..." (the number before the fault, the labels of the pods)
#   action=stop: the operator first, which would scale a daemon back; action=start: the operator last
#                with a POD, one of several, the deployment loses only this pod; COST: its deletion cost before, if any
#   action=settled: print "settled" when the daemons, and the operator, are as before
#   action=count:   print the number of daemons that are available
#
# A deployment has the label cbt-plugins=stopping, then =stopped, from before its change to its undo. While any
# deployment has it, the operator has an annotation for the namespace of these daemons: other clusters may share the
# operator. While it has any such annotation, it stays at 0; its own number before is in another annotation.
action=${action:?} pause=${pause:?} open=cbt-plugins-open/${namespace:?}
# command lines are quoted for a shell
k() { eval "${kubectl:?} --request-timeout=30s \"\$@\""; }
ko() { eval "${kubectl_operator:?} --request-timeout=30s \"\$@\""; }
operator=${operator:?}
field() { k get deployment "$1" -o "jsonpath={.$2}"; }
operator_field() { ko get deployment "$operator" -o "jsonpath={.$1}"; }
marked() { k get deployments -l cbt-plugins -o name; }
unpacked() {
  before=$IFS IFS=:
  # shellcheck disable=SC2086 # the parts are words
  set -- $1
  IFS=$before name=$1 replicas=$2 selector=$3 pod=$4 cost=$5 left=0
  [ -z "$pod" ] || left=$((replicas - 1))
}
available() { [ "$(field "$1" status.availableReplicas)" = "$2" ]; }
# without pods that Kubernetes keeps after their end, for example after an eviction
live='status.phase!=Failed,status.phase!=Succeeded'
# the pods whose end is awaited: command, selector, pod, format
awaited() { "$1" get pods -l "$2" "--field-selector=$live${3:+,metadata.name=$3}" -o "$4"; }
# wait for the end of the pods of a deployment, or of one of them: command, name, selector, replicas left, pod
until_gone() {
  while n=$("$1" get deployment "$2" -o 'jsonpath={.spec.replicas}') || return; do
    [ "$n" = "$4" ] ||
      { echo "deployment $2 was scaled back to $n: does OLM, Helm or Argo CD manage $2?" >&2; return 1; }
    p=$(awaited "$1" "$3" "$5" name) || return
    [ "$p" ] || return 0
    [ -z "$5" ] || may_end "$3" "$4" "$5" || return
    sleep "$pause"; done
}
# fail if Kubernetes has ended other pods instead: selector, replicas left, pod
may_end() {
  p=$(k get pods -l "$1" "--field-selector=$live" -o \
    'go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}} {{end}}{{end}}') || return
  case " $p" in *" $3 "*) ;; *) return 0 ;; esac
  # shellcheck disable=SC2086 # names
  set -- "$2" "$3" $p
  [ $(($# - 2)) -gt "$1" ] || { echo "Kubernetes has ended another pod than $2" >&2; return 1; }
}
# Kubernetes ends the pod with the lowest cost first, if all pods are ready
deletion_cost=controller.kubernetes.io/pod-deletion-cost
lowest_cost=-2147483648
# give a pod that is left its own deletion cost again
restore_cost() {
  p=$(awaited k "$selector" "$pod" name) || return
  [ "$p" ] || return 0
  own=$deletion_cost-
  [ -z "$cost" ] || own=$deletion_cost=$cost
  k annotate pod "$pod" "$own" --overwrite >/dev/null || { p=$(awaited k "$selector" "$pod" name) && [ -z "$p" ]; }
}
has_own_cost() {
  c=$(awaited k "$selector" "$pod" \
    'jsonpath={range .items[*]}is {.metadata.annotations.controller\.kubernetes\.io/pod-deletion-cost}{end}') &&
    { [ -z "$c" ] || [ "$c" = "is $cost" ]; }
}
# print the annotations for the namespaces of other clusters
open_elsewhere() {
  # shellcheck disable=SC2016 # the variables are of the template
  p=$(ko get deployment "$operator" -o 'go-template={{range $k, $v := .metadata.annotations}}{{$k}}{{"\n"}}{{end}}') &&
    printf '%s\n' "$p" | sed -n "\\|^$open\$|d; \\|^cbt-plugins-open/|p"
}
kept_by_operator() { operator_field metadata.annotations.cbt-plugins-replicas; }
case $action in
  stop)
    for d in ${deployments:?}; do
      unpacked "$d"
      k label deployment "$name" cbt-plugins=stopping --overwrite >/dev/null || exit; done
    n=$(operator_field spec.replicas) && kept=$(kept_by_operator) || exit
    ko annotate deployment "$operator" --overwrite "$open=true" "cbt-plugins-replicas=${kept:-${n:-1}}" >/dev/null ||
      exit
    ko scale deployment "$operator" --replicas=0 >/dev/null || exit
    # shellcheck disable=SC2016 # the variables are of the template
    until_gone ko "$operator" "$(ko get deployment "$operator" \
      -o 'go-template={{range $k, $v := .spec.selector.matchLabels}}{{$k}}={{$v}},{{end}}' | sed 's/,$//')" 0 || exit
    for d in $deployments; do
      unpacked "$d"
      if [ "$pod" ]; then
        available "$name" "$replicas" || {
          echo "deployment $name has fewer than $replicas available pods: Kubernetes would not end $pod first" >&2
          exit 1; }
        k annotate pod "$pod" "$deletion_cost=$lowest_cost" --overwrite >/dev/null || exit
        # Kubernetes might see the new number of replicas before the cost
        sleep "$pause"; fi
      k scale deployment "$name" "--replicas=$left" >/dev/null || exit; done
    for d in $deployments; do
      unpacked "$d"
      until_gone k "$name" "$selector" "$left" "$pod" || exit
      k label deployment "$name" cbt-plugins=stopped --overwrite >/dev/null || exit; done
    # while a daemon ends somebody may have started the operator
    until_gone ko "$operator" cbt-plugins=none 0 ;;
  start)
    status=0 present='' absent='' end=$(($(date +%s) + ${wait:?}))
    for d in ${deployments:?}; do
      unpacked "$d"
      p=$(k get deployment "$name" --ignore-not-found -o name) || { status=1; continue; }
      [ "$p" ] || { absent="$absent $name"; continue; }
      present="$present $d"
      mark=$(field "$name" metadata.labels.cbt-plugins) n=$(field "$name" spec.replicas) || { status=1; continue; }
      if [ "$mark" = stopped ] && [ "$n" != "$left" ]; then
        t=$(k get pods -l "$selector" --sort-by=.metadata.creationTimestamp \
          -o 'jsonpath={.items[-1:].metadata.creationTimestamp}')
        echo "deployment $name was scaled back to $n during the fault" >&2
        [ -z "$t" ] || echo "fired $(date -d "$t" +%s.0) $(date +%s.0)"; fi
      [ -z "$pod" ] || restore_cost || status=1
      # first: if this undo is cut short, the next one must not take its change for that of somebody else
      k label deployment "$name" cbt-plugins- >/dev/null &&
        k scale deployment "$name" "--replicas=$replicas" >/dev/null || status=1; done
    [ "$status" = 0 ] || exit 1
    for d in $present; do
      unpacked "$d"
      until available "$name" "$replicas"; do
        [ "$(date +%s)" -lt "$end" ] || { echo "deployment $name is not available" >&2; status=1; break; }
        sleep "$pause"; done; done
    # also without some of the daemons: only the operator can make them anew
    others=$(marked) && { [ "$others" ] || ko annotate deployment "$operator" "$open-" >/dev/null; } &&
      others=$others$(open_elsewhere) && kept=$(kept_by_operator) || exit
    [ -n "$others" ] || [ -z "$kept" ] || {
      ko scale deployment "$operator" "--replicas=$kept" >/dev/null &&
        ko annotate deployment "$operator" cbt-plugins-replicas- >/dev/null || status=1; }
    [ -z "$absent" ] || { echo "no longer in Kubernetes: deployment$absent" >&2; status=1; }
    exit "$status" ;;
  settled)
    for d in ${deployments:?}; do
      unpacked "$d"
      [ "$(field "$name" spec.replicas)" = "$replicas" ] && available "$name" "$replicas" || exit
      [ -z "$pod" ] || has_own_cost || exit
      mark=$(field "$name" metadata.labels.cbt-plugins) && [ -z "$mark" ] || exit; done
    others=$(marked && open_elsewhere) && kept=$(kept_by_operator) || exit
    [ -z "$others" ] && [ -n "$kept" ] || echo settled ;;
  count)
    n=0
    for d in ${deployments:?}; do
      unpacked "$d"
      a=$(field "$name" status.availableReplicas) || exit
      [ "${a:-0}" -le "$left" ] || n=$((n + 1)); done
    echo "$n" ;;
esac
