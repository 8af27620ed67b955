#!/bin/sh
# Read the option tables of a cluster: one daemon of each kind, every option with its value and the source of the value.
#   sh default_options.sh tables FOLDER CEPH...          writes FOLDER/{mon,mgr,osd,client}.json
#   sh default_options.sh help FOLDER CEPH...            reads FOLDER/names, writes FOLDER/help.jsonl
#   sh default_options.sh set FOLDER CEPH...             reads FOLDER/all and FOLDER/set: lines of "WHO OPTION [VALUE]"
set -eu
verb=$1 folder=$2
shift 2
ceph() { command "$@" </dev/null; } # a command that reads its input, such as ssh, would take the lines of a loop

table() { # KIND DAEMON CEPH...
    kind=$1 daemon=$2
    shift 2
    if [ -n "$daemon" ]; then
        ceph "$@" config show-with-defaults "$daemon" -f json >"$folder/$kind.json.new"
        mv "$folder/$kind.json.new" "$folder/$kind.json"
    fi
}

newest() { # the gateway that started last: the instance before a restart is listed for a minute more
    python3 -c '
import json, sys
daemons = json.load(sys.stdin).get("services", {}).get("rgw", {}).get("daemons", {})
daemons = {name: row for name, row in daemons.items() if isinstance(row, dict)}
print(max(daemons, key=lambda name: int(daemons[name].get("gid") or 0), default=""))'
}

case $verb in
tables)
    mkdir -p "$folder"
    quorum=$(ceph "$@" quorum_status -f json) # a command that fails ends the script; in a pipe it would not
    stat=$(ceph "$@" mgr stat -f json)
    osds=$(ceph "$@" osd ls)
    services=$(ceph "$@" service dump -f json)
    leader=$(echo "$quorum" | sed -n 's/.*"quorum_leader_name":"\([^"]*\)".*/\1/p')
    active=$(echo "$stat" | tr -d ' \n' | sed -n 's/.*"active_name":"\([^"]*\)".*/\1/p')
    gateway=$(printf '%s' "$services" | newest)
    table mon "${leader:+mon.$leader}" "$@"
    table mgr "${active:+mgr.$active}" "$@"
    table osd "osd.$(echo "$osds" | head -n 1)" "$@"
    table client "${gateway:+rgw.$gateway}" "$@"
    ;;
help)
    while read -r name; do
        about=$(ceph "$@" config help "$name" -f json | tr -d '\n')
        printf '%s\n' "${about:?no help of the option $name}"
    done <"$folder/names" >"$folder/help.jsonl"
    ;;
set)
    while read -r who name; do
        ceph "$@" config rm "$who" "$name"
    done <"$folder/all"
    while read -r who name value; do
        ceph "$@" config set "$who" "$name" "$value"
    done <"$folder/set"
    ;;
esac
