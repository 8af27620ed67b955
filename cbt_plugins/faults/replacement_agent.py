"""Creates an OSD again in the place of a destroyed one, through cephadm's orchestrator; on the head.

Standard library only (Python 3.6 and newer). CEPH is the command line of `ceph`; PLAN is a JSON object with `osd`,
`host` (of the orchestrator), `bucket` (of the host in CRUSH), `devices` and `service` (of the new OSD), and `weight`,
`location` and `device_class` (in CRUSH). Each verb may run any number of times, also after it was broken off, and does
nothing to an OSD that was not destroyed.

    remove CEPH PLAN    remove the daemon of the destroyed OSD from its host
    create CEPH PLAN    create the OSD on its devices, which are clear, under its number
"""

import json
import subprocess
import sys
import time
import uuid

#: seconds for an OSD under creation until its daemon shows, and for a new inventory of the host
LIMIT = 60.0
#: seconds between two looks
PAUSE = 2.0


class ReplacementError(Exception):
    """The OSD cannot be created; the text is for the user."""


def run_ceph(ceph, *words):
    """Return the output of a command of Ceph. Raises ReplacementError."""
    line = ["sh", "-c", ceph + ' "$@"', "ceph"]
    done = subprocess.run(line + list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        text = reason[0] if reason else "exit status %d" % done.returncode
        raise ReplacementError("ceph %s: %s" % (" ".join(words), text))
    return done.stdout.decode("utf-8", "replace")


def parse(reply):
    """Return a JSON reply; [] for the sentence with which the orchestrator says that there is nothing."""
    return json.loads(reply) if reply.lstrip()[:1] in ("[", "{") else []


def osd_entry(ceph, osd):
    """Return the entry of an OSD in the map; None if the map does not have it."""
    entries = json.loads(run_ceph(ceph, "osd", "dump", "--format", "json"))["osds"]
    return next((entry for entry in entries if entry["osd"] == osd), None)


def osd_state(ceph, osd):
    """Return the state of an OSD in the map, such as ["exists", "up"]; None if the map does not have it."""
    entry = osd_entry(ceph, osd)
    return entry and entry["state"]


def is_destroyed(ceph, osd):
    """Return whether an OSD is destroyed; the orchestrator gives its next OSD this number only then."""
    return "destroyed" in (osd_state(ceph, osd) or ())


def has_daemon(ceph, plan):
    """Return whether the orchestrator has a daemon of the OSD. Only its host looks again, not all of the cluster."""
    osd = plan["osd"]
    words = ("orch", "ps", plan["host"], "--daemon_type", "osd", "--daemon_id", str(osd), "--refresh")
    return any(str(row["daemon_id"]) == str(osd) for row in parse(run_ceph(ceph, *words, "--format", "json")))


def await_no_daemon(ceph, plan):
    """Wait until the orchestrator has no daemon of the OSD: it may still see the host as it was. False: too late."""
    end = time.monotonic() + LIMIT
    while has_daemon(ceph, plan):
        if time.monotonic() >= end:
            return False
        time.sleep(PAUSE)
    return True


def destroyed_tree(ceph):
    """Return the nodes of CRUSH that are destroyed OSDs or hold them."""
    return json.loads(run_ceph(ceph, "osd", "tree", "destroyed", "--format", "json"))["nodes"]


def destroyed_osds(nodes, bucket):
    """Return the destroyed OSDs of a host in CRUSH: the orchestrator uses their numbers for its next OSDs there."""
    return [osd for node in nodes if node["type"] == "host" and node["name"] == bucket for osd in node["children"]]


def inventory(ceph, host, *words):
    """Return path of each device of a host -> when the orchestrator has looked at it."""
    hosts = parse(run_ceph(ceph, "orch", "device", "ls", host, "--format", "json", *words))
    return {device["path"]: device["created"] for each in hosts for device in each["devices"]}


def renew_inventory(ceph, host):
    """Wait until the orchestrator has seen that devices are clear: without a change it creates no OSD of a service."""
    before = inventory(ceph, host, "--refresh")
    end = time.monotonic() + LIMIT
    while before and time.monotonic() < end:
        now = inventory(ceph, host)
        if all(now.get(path) != seen for path, seen in before.items()):
            return
        time.sleep(PAUSE)


def placeholder(osd):
    """Return the UUID of an OSD that is in the map only to be destroyed; ceph-volume has not seen it."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, "osd.%d.cbt-plugins" % osd))


def place(ceph, plan):
    """Put the destroyed OSD where it was in CRUSH; it is not there if ceph-volume has removed it from the map."""
    osd, device_class = plan["osd"], plan.get("device_class")  # a plan of an earlier version has no class
    if osd not in destroyed_osds(destroyed_tree(ceph), plan["bucket"]) and is_destroyed(ceph, osd):
        run_ceph(ceph, "osd", "crush", "add", "osd.%d" % osd, "%g" % plan["weight"], *plan["location"])
    if device_class and any(node["id"] == osd and not node.get("device_class") for node in destroyed_tree(ceph)):
        run_ceph(ceph, "osd", "crush", "set-device-class", device_class, "osd.%d" % osd)


def await_daemon(ceph, plan):
    """Wait until an OSD in the map has started before, or has a daemon. False: too late."""
    end = time.monotonic() + LIMIT
    while "new" in (osd_state(ceph, plan["osd"]) or ()) and not has_daemon(ceph, plan):
        if time.monotonic() >= end:
            return False
        time.sleep(PAUSE)
    return True


def finish(ceph, plan):
    """Start the daemon of an OSD that is in the map since its creation was cut short, when nobody else does.

    False: it has no daemon nevertheless.
    """
    if await_daemon(ceph, plan):
        return True
    run_ceph(ceph, "cephadm", "osd", "activate", plan["host"])
    return await_daemon(ceph, plan)


def must_be_created(ceph, plan):
    """Return whether the OSD is destroyed; an OSD that only the map has is destroyed first."""
    osd = plan["osd"]
    entry = osd_entry(ceph, osd)
    if entry is None:  # ceph-volume has removed it, because it could not create it
        run_ceph(ceph, "osd", "new", placeholder(osd), str(osd))
    elif "destroyed" in entry["state"]:
        return True
    elif entry.get("uuid") != placeholder(osd) and finish(ceph, plan):
        return False
    run_ceph(ceph, "osd", "destroy", str(osd), "--yes-i-really-mean-it")
    return True


def add(ceph, plan, service):
    """Return the reply to the order for a new OSD on the devices. `service`: the ID of its service, or ""."""
    values = ["%s=%s" % tuple(pair) for pair in plan["devices"]] + (["service_id=" + service] if service else [])
    argument = "%s:%s" % (plan["host"], ",".join(values))
    return run_ceph(ceph, "orch", "daemon", "add", "osd", argument).strip() or "created no osd(s)"


def create(ceph, plan):
    osd, service = plan["osd"], plan["service"]
    if not must_be_created(ceph, plan):
        return
    if not await_no_daemon(ceph, plan):
        raise ReplacementError("osd.%d: the orchestrator has not removed the daemon of the destroyed OSD yet" % osd)
    place(ceph, plan)
    destroyed = destroyed_osds(destroyed_tree(ceph), plan["bucket"])
    if destroyed != [osd] and is_destroyed(ceph, osd):
        text = "%s has the destroyed OSDs %s, and the orchestrator would use any of these numbers"
        raise ReplacementError(text % (plan["bucket"], ", ".join(map(str, destroyed)) or "none"))
    if service:
        renew_inventory(ceph, plan["host"])
    reply = ""
    for name in [service, ""] if service else [""]:
        # a service that the orchestrator manages may make the OSD at any time by itself
        if is_destroyed(ceph, osd):
            reply = add(ceph, plan, name)
    if "destroyed" in (osd_state(ceph, osd) or ["destroyed"]):  # ceph-volume removes an OSD that it could not create
        text = "ceph orch daemon add osd: " + reply.splitlines()[-1] if reply else "its service could not create it"
        raise ReplacementError("osd.%d: %s" % (osd, text))
    if not finish(ceph, plan):
        raise ReplacementError("osd.%d: no daemon after ceph cephadm osd activate %s" % (osd, plan["host"]))


def main(verb, ceph, text):
    plan = json.loads(text)
    if verb == "create":
        create(ceph, plan)
    elif verb == "remove" and is_destroyed(ceph, plan["osd"]) and has_daemon(ceph, plan):
        run_ceph(ceph, "orch", "daemon", "rm", "osd.%d" % plan["osd"], "--force")
        await_no_daemon(ceph, plan)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ReplacementError as error:
        sys.exit(str(error))
