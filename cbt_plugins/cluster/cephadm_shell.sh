#!/bin/sh
# Run a program of Ceph in the container of `cephadm shell` that this node keeps open; open it where there is none.
#   $1: a ceph.conf, - for the one that cephadm finds; then the program and its arguments; standard input is for it
# The container has a name. It ends by itself five minutes after the last program. Programs enter its namespaces, so a
# signal reaches them. Status 69: there is no such container, and the message says why.
# No single quotes: each level of quoting would make five characters of one.
conf=${1#-}
shift
node=$(uname -n) user=$(id -un) PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
fail() { echo "$*" >&2; exit 69; }
command -v cephadm >/dev/null || fail "cephadm is not installed on $node: install it there, or remove ceph: of cluster:"
engines=$(command -v podman; command -v docker)
[ "$engines" ] || fail "neither podman nor docker is installed on $node"
root=""
[ "$(id -u)" = 0 ] || root="sudo -n"
# a host may have several clusters, and another one under the same name later
fsid=$(sed -n "s/^[[:space:]]*fsid[[:space:]]*=[[:space:]]*//p" "${conf:-/etc/ceph/ceph.conf}" 2>/dev/null | head -n 1)
name=cbt-plugins-shell-$(printf "%s %s" "$conf" "$fsid" | cksum | cut -d" " -f1)
main_process() {
  for engine in $engines; do $root "$engine" inspect -f "{{.State.Pid}}" "$name" 2>/dev/null && return; done
}
has_cluster() { $root "$1" ps --format "{{.Names}}" | grep -q "^ceph-${fsid:-[0-9a-f]*}-"; } 2>/dev/null
open_shell() {
  $root true 2>/dev/null || fail "cephadm shell needs root on $node: let $user run sudo without a password"
  engine=$1 option=
  # of two engines cephadm takes podman, whichever runs the cluster; docker may be another name of podman
  [ "$2" ] && has_cluster "$2" && ! has_cluster "$1" && engine=$2 option=--docker
  token=$name-$$-$(date +%s)
  # ends when for 30 looks there was no other process, and nobody has come in between
  wait="set -- /proc/[0-9]*; b=\$#; echo $token is open; n=0; while [ \$n -lt 30 ]; do sleep 10; n=\$((n + 1));"
  wait="$wait set -- /proc/[0-9]*; if [ \$# -gt \$b ] || [ -e /tmp/used ]; then n=0; rm -f /tmp/used; fi; done"
  # shellcheck disable=SC2086 # root is two words, or none; the option is one, or none
  output=$({ setsid $root cephadm $option shell ${fsid:+--fsid "$fsid"} ${conf:+-c "$conf"} -- sh -c "$wait" "$token" </dev/null 2>&1 & } |
    sed "/^$token is open/q")
  case $output in
    *"$token is open"*) ;;
    *) fail "cephadm shell on $node: $(printf "%s\n" "$output" | grep -i error | tail -n 1 | grep . ||
         printf "%s\n" "${output:-it has ended}" | tail -n 1)" ;;
  esac
  id=$($root "$engine" ps --no-trunc --format "{{.ID}} {{.Command}}" | sed -n "s/ .*$token.*//p")
  # another program was faster
  $root "$engine" rename "$id" "$name" 2>/dev/null || $root "$engine" rm -f "$id" >/dev/null 2>&1
}
# shellcheck disable=SC2086 # one word for each engine
pid=$(main_process) && [ "$pid" != 0 ] || { open_shell $engines; pid=$(main_process); } ||
  fail "$engine on $node: the container of cephadm shell is gone"
exec $root nsenter -t "$pid" -m -p -- env -u LC_ALL PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  sh -c ": > /tmp/used; exec \"\$@\"" sh "$@"
