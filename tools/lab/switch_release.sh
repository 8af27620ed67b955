#!/bin/sh
# Restart a daemon of this node with the programs of a root folder: switch_release.sh ROOT osd.3
# The store, the keys and the node stay; the daemon sees the root folder in a mount namespace of its own.
set -eu
root=$1 daemon=$2
type=${daemon%%.*} id=${daemon#*.}
case $type in
    mon | mgr | osd) program=ceph-$type name=$daemon option=-i ;;
    rgw) program=radosgw name=client.$id option=-n id=client.$id ;;
    *) echo "$daemon: no daemon of a lab" >&2 && exit 2 ;;
esac
# shellcheck disable=SC2016  # expanded by the inner shell
chroot "$root" sh -c 'command -v "$1"' sh "$program" > /dev/null ||
    { echo "$root: no $program there: name the root folder of a release that this node sees" >&2 && exit 2; }
pid_file=/run/ceph/$name.pid
if [ -s "$pid_file" ] && kill "$(cat "$pid_file")" 2>/dev/null; then
    timeout 60 tail --pid="$(cat "$pid_file")" -f /dev/null || { echo "$daemon does not end" >&2 && exit 1; }
fi
[ -e "$root/etc/hosts" ] || : > "$root/etc/hosts"
# shellcheck disable=SC2016  # expanded by the inner shell
exec unshare --mount --propagation private sh -ec '
    root=$1 && shift
    for place in proc sys dev run var/lib/ceph var/log/ceph etc/ceph etc/hosts; do
        [ -e "$root/$place" ] || mkdir -p "$root/$place"
        mount --rbind "/$place" "$root/$place"
    done
    module=$root/usr/share/ceph/mgr/mgr_util.py
    if grep -qs "^import bcrypt\$" "$module"; then # see pid1.py
        sed "s/^import bcrypt\$/try:\n    import bcrypt\nexcept ImportError:\n    bcrypt = None/" "$module" > /run/ceph/mgr_util.py
        mount --bind /run/ceph/mgr_util.py "$module"
    fi
    ulimit -n 16384
    exec chroot "$root" "$@"' switch "$root" "$program" "$option" "$id" --pid-file "$pid_file"
