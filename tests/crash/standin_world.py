"""What the cluster that is not there answers and changes: its state is one JSON object."""

import json
import time

FLAGS = ["pglog_hardlimit", "purged_snapdirs", "recovery_deletes", "sortbitwise"]
FSID = "35488bad-fc53-478d-bd88-f0c5b5e8aaa0"


def new_state(hosts=4, per_host=1):
    """A healthy cluster: node0 leads, the OSDs are units of systemd on node1, node2, ..."""
    osds = {}
    for host in range(hosts):
        for i in range(per_host):
            number = host * per_host + i
            osds[str(number)] = {"host": f"node{host + 1}", "up": 1, "in": 1, "weight": 1.0, "unit": "active"}
    return {
        "osds": osds,
        "flags": list(FLAGS),
        "config": [["mon", "", "mon_osd_down_out_interval", "600"], ["osd", "", "osd_max_backfills", "4"]],
        "keys": {},
        "balancer": True,
        "pools": [
            {"pool": 1, "pool_name": "rbd", "type": 1, "size": 3, "min_size": 2, "crush_rule": 0, "pg_num": 8},
            {"pool": 2, "pool_name": "data", "type": 3, "size": 3, "min_size": 2, "crush_rule": 1, "pg_num": 8},
        ],
        "autoscale": {"rbd": "on", "data": "warn"},
        "rules": ["rule0", "rule1"],
        "profiles": ["ec"],
        "links": {f"node{h + 1}": True for h in range(hosts)},
        "buckets": {},
        "scrubbed": {},
        "gateways": {"rgw1": "active"},
        "gids": {"rgw1": 4114},
        "users": {"cbt": ""},
        "zone": {},
        "zonegroup": [],
    }


class World:
    """The cluster's answers and changes."""

    def __init__(self, state):
        self.state = state

    # ---- ceph ----

    def ceph(self, words):
        """(stdout, stderr, status) of `ceph WORDS`, JSON."""
        for length in range(min(4, len(words)), 0, -1):
            play = getattr(self, "ceph_" + "_".join(words[:length]).replace("-", "_"), None)
            if play is not None:
                answer = play(*words[length:])
                if isinstance(answer, tuple):
                    return answer
                return ("" if answer is None else json.dumps(answer) + "\n"), "", 0
        return "", "Error EINVAL: invalid command: " + " ".join(words), 22

    def _alive(self, osd):
        return osd["up"] and self.state["links"][osd["host"]]

    def pgs(self):
        """PGs whose members are three OSDs of three hosts, in turn."""
        numbers = sorted(map(int, self.state["osds"]))
        for pool in self.state["pools"]:
            for seed in range(pool["pg_num"]):
                members = [numbers[(seed + i) % len(numbers)] for i in range(pool["size"])]
                left = [m if self._alive(self.state["osds"][str(m)]) else None for m in members]
                up = [m for m in left if m is not None]
                word = "active" if len(up) >= pool["min_size"] else "incomplete"
                state = word + ("+clean" if len(up) == len(members) else "+undersized+degraded")
                acting = up if pool["type"] == 1 else [2147483647 if m is None else m for m in left]
                yield {"pgid": f"{pool['pool']}.{seed:x}", "state": state, "up": acting, "acting": acting}

    def ceph_fsid(self):
        return (self.state.get("fsid", FSID) + "\n", "", 0)

    def ceph_osd_dump(self, *_):
        entries = []
        for number, osd in sorted(self.state["osds"].items(), key=lambda i: int(i[0])):
            entry = {"osd": int(number), "uuid": "uuid-" + number, "up": int(bool(self._alive(osd)))}
            entry.update({"in": osd["in"], "weight": osd["weight"] if osd["in"] else 0, "up_from": 1})
            entry["down_at"] = osd.get("down_at", 0)
            entries.append(entry)
        pools = [
            {"erasure_code_profile": "ec", **p, "pg_autoscale_mode": self.state["autoscale"][p["pool_name"]]}
            for p in self.state["pools"]
        ]
        for pool in pools:
            pool.setdefault("pg_num_target", pool["pg_num"])
        return {
            "fsid": FSID,
            "epoch": 1,
            "modified": "2026-11-21T10:00:00.000000+0000",
            "flags_set": sorted(self.state["flags"]),
            "full_ratio": 0.95,
            "backfillfull_ratio": 0.9,
            "nearfull_ratio": 0.85,
            "pools": pools,
            "osds": entries,
            "erasure_code_profiles": {"ec": {"k": "2", "m": "1"}},
        }

    def ceph_osd_tree(self):
        hosts = sorted({o["host"] for o in self.state["osds"].values()})
        ids = {host: -2 - i for i, host in enumerate(hosts)}
        nodes = [{"id": -1, "name": "default", "type": "root", "children": list(ids.values())}]
        for host in hosts:
            below = [int(n) for n, o in self.state["osds"].items() if o["host"] == host]
            nodes.append({"id": ids[host], "name": host, "type": "host", "children": below})
            nodes += [{"id": n, "name": f"osd.{n}", "type": "osd", "device_class": "hdd"} for n in below]
        return {"nodes": nodes, "stray": []}

    def ceph_osd_crush_rule_dump(self):
        def rule(number, op):
            steps = [{"op": "take", "item": -1, "item_name": "default"}, {"op": op, "num": 0, "type": "host"}]
            return {"rule_id": number, "rule_name": f"rule{number}", "steps": [*steps, {"op": "emit"}]}

        return [rule(0, "chooseleaf_firstn"), rule(1, "chooseleaf_indep")]

    def ceph_pg_dump(self, what, *_):
        # the epoch since which it is up, and the number of its last report: one comes every tenth of a second
        seq = (1 << 32) + int(time.time() * 10) % (1 << 32)
        stats = [{"osd": int(n), "seq": seq, "up_from": 1} for n in self.state["osds"]]
        recovered = {f"num_{kind}_recovered": 0 for kind in ("objects", "bytes", "keys")}
        return {
            "pgs_brief": {"pg_ready": True, "pg_stats": list(self.pgs())},
            "sum": {"pg_map": {"pg_stats_sum": {"stat_sum": recovered}}},
            "osds": {"pg_map": {"osd_stats": stats}},
        }[what]

    def ceph_osd_df(self):
        return {"nodes": [{"id": int(n), "kb": 1000000, "kb_used": 100000} for n in self.state["osds"]], "stray": []}

    def ceph_quorum_status(self):
        return {"quorum_names": ["node0"], "monmap": {"mons": [{"name": "node0"}]}}

    def ceph_mon_metadata(self):
        return [{"name": "node0", "hostname": "node0"}]

    def ceph_osd_metadata(self):
        return [{"id": int(n), "hostname": o["host"]} for n, o in self.state["osds"].items()]

    def ceph_config_get(self, who, name):
        return 0.75 if name == "mon_osd_min_in_ratio" else 0

    def ceph_config_show(self, who, name):
        if name in ("osd_op_queue", "mgr_stats_period"):
            return ({"osd_op_queue": "wpq\n", "mgr_stats_period": "0.2\n"}[name], "", 0)
        values = {row[0]: row[3] for row in self.state["config"] if row[2] == name and not row[1]}
        return (values.get(who, values.get(who.split(".")[0], "0")) + "\n", "", 0)

    def ceph_config_ls(self):
        sleeps = ["osd_recovery_sleep" + kind for kind in ("", "_degraded_hdd", "_hdd", "_hybrid", "_ssd")]
        return ["osd_max_backfills", "osd_recovery_max_active", *sleeps]

    def ceph_config_help(self, name):
        return {"name": name, "can_update_at_runtime": name != "osd_op_num_shards"}

    def ceph_mds_metadata(self):
        return []

    def ceph_mgr_metadata(self):
        return [{"name": "node0", "hostname": "node0"}]

    def ceph_mgr_dump(self):
        return {"available": True, "active_name": "node0", "standbys": []}

    def ceph_mgr_stat(self):
        return {"epoch": 5, "available": True, "active_name": "node0", "num_standby": 0}

    def ceph_service_dump(self):
        gateways = {"summary": ""}
        for name, unit in self.state["gateways"].items():
            gid = self.state["gids"][name]
            if unit == "active":
                gateways[str(gid)] = {"gid": gid, "metadata": {"id": name, "hostname": name}}
        return {"services": {"rgw": {"daemons": gateways}}}

    def ceph_config_dump(self):
        keys = ("section", "mask", "name", "value")
        return [dict(zip(keys, row), level="advanced") for row in sorted(self.state["config"])]

    def ceph_config_set(self, who, name, value):
        self.ceph_config_rm(who, name)
        section, _, mask = who.partition("/")
        self.state["config"] = sorted([*self.state["config"], [section, mask, name, value]])

    def ceph_config_rm(self, who, name):
        section, _, mask = who.partition("/")
        self.state["config"] = [r for r in self.state["config"] if r[:3] != [section, mask, name]]

    def ceph_config_key_dump(self, prefix=""):
        return {k: v for k, v in self.state["keys"].items() if k.startswith(prefix)}

    def ceph_config_key_set(self, key, value):
        self.state["keys"][key] = value

    def ceph_config_key_rm(self, key):
        self.state["keys"].pop(key, None)

    def ceph_balancer_status(self):
        return {"active": self.state["balancer"], "mode": "upmap"}

    def ceph_balancer_on(self):
        self.state["balancer"] = True
        self.ceph_config_set("mgr", "mgr/balancer/active", "true")

    def ceph_balancer_off(self):
        self.state["balancer"] = False
        self.ceph_config_set("mgr", "mgr/balancer/active", "false")

    def ceph_osd_set(self, flag):
        self.state["flags"] = sorted({*self.state["flags"], flag})

    def ceph_osd_unset(self, flag):
        self.state["flags"] = [f for f in self.state["flags"] if f != flag]
        if flag == "noup":  # what runs has been waiting for that
            for osd in self.state["osds"].values():
                osd["up"] = int(osd["unit"] == "active")

    def ceph_osd_down(self, *numbers):
        for number in numbers if "noup" in self.state["flags"] else ():  # else it reports back at once
            self.state["osds"][number]["up"] = 0

    def ceph_osd_in(self, *numbers):
        for number in numbers:
            self.state["osds"][number]["in"] = 1

    def ceph_osd_out(self, *numbers):
        for number in numbers:
            self.state["osds"][number]["in"] = 0

    def ceph_osd_reweight(self, number, weight):
        self.state["osds"][number]["weight"] = float(weight)

    def ceph_osd_ok_to_stop(self, *numbers):
        gone = set(map(int, numbers))
        least = {p["pool"]: p["min_size"] for p in self.state["pools"]}
        bad = sum(len(set(pg["acting"]) - gone - {2147483647}) < least[int(pg["pgid"][0])] for pg in self.pgs())
        answer = {"ok_to_stop": not bad, "osds": sorted(gone), "num_not_ok_pgs": bad}
        return json.dumps(answer) + "\n", "unsafe to stop" if bad else "", 16 if bad else 0

    def ceph_osd_safe_to_destroy(self, *numbers):
        holding = {osd for pg in self.pgs() for osd in pg["acting"]} & set(map(int, numbers))
        safe = sorted(set(map(int, numbers)) - holding)
        answer = {"safe_to_destroy": safe, "active": sorted(holding), "missing_stats": [], "stored_pgs": []}
        return json.dumps(answer) + "\n", "are not safe to destroy" if holding else "", 16 if holding else 0

    def ceph_osd_pool_deep_scrub(self, *pools):
        for pool in pools:
            self.state["scrubbed"][pool] = self.state["scrubbed"].get(pool, 0) + 1

    def ceph_pg_ls_by_pool(self, pool):
        stamp = f"2026-11-21T10:00:{self.state['scrubbed'].get(pool, 0):02}.000000+0000"
        about = {"last_deep_scrub_stamp": stamp, "state": "active+clean"}
        return {"pg_stats": [{"pgid": f"{pool}.{seed:x}", **about} for seed in range(4)]}

    def ceph_osd_pool_set(self, pool, name, value, *_):
        if name == "pg_autoscale_mode":
            self.state["autoscale"][pool] = value
            return
        (entry,) = (entry for entry in self.state["pools"] if entry["pool_name"] == pool)
        if name in ("size", "pg_num"):
            entry[name] = int(value)
        elif value == "unset":
            entry["options"] = {key: its for key, its in entry["options"].items() if key != name}
            if not entry["options"]:
                del entry["options"]
        else:
            entry.setdefault("options", {})[name] = value

    def ceph_osd_pool_get(self, pool, name):
        (entry,) = (entry for entry in self.state["pools"] if entry["pool_name"] == pool)
        return {name: entry["crush_rule"]}

    def ceph_osd_pool_create(self, name, pg_num, pgp_num, kind, *rest):
        words = [word for word in rest if not word.startswith("--")]
        entry = {"pool": 1 + max(p["pool"] for p in self.state["pools"]), "pool_name": name, "pg_num": int(pg_num)}
        entry.update(pg_placement_num=int(pgp_num), type=3 if kind == "erasure" else 1, size=3, min_size=2, options={})
        entry.update(erasure_code_profile=words[0] if kind == "erasure" else "", crush_rule=(words or [0])[-1])
        self.state["pools"].append(entry)
        self.state["autoscale"][name] = "off"

    def ceph_osd_pool_rm(self, name, again, sure):
        if ["mon", "", "mon_allow_pool_delete", "true"] not in self.state["config"]:
            return "", "Error EPERM: pool deletion is disabled", 1
        self.state["pools"] = [entry for entry in self.state["pools"] if entry["pool_name"] != name]
        self.state["autoscale"].pop(name, None)

    def ceph_osd_pool_application_enable(self, pool, name):
        (entry,) = (entry for entry in self.state["pools"] if entry["pool_name"] == pool)
        entry["application_metadata"] = {name: {}}

    def ceph_osd_crush_rule_ls(self):
        return self.state["rules"]

    def ceph_osd_crush_rule_create_replicated(self, name, *_):
        self.state["rules"] = [*self.state["rules"], name]

    ceph_osd_crush_rule_create_erasure = ceph_osd_crush_rule_create_replicated

    def ceph_osd_crush_rule_rm(self, name):
        if any(entry["crush_rule"] == name for entry in self.state["pools"]):
            return "", f"Error EBUSY: crush rule {name} is in use", 16
        self.state["rules"] = [rule for rule in self.state["rules"] if rule != name]

    def ceph_osd_erasure_code_profile_set(self, name, *_):
        self.state["profiles"] = [*self.state["profiles"], name]

    def ceph_osd_erasure_code_profile_rm(self, name):
        self.state["profiles"] = [profile for profile in self.state["profiles"] if profile != name]

    def ceph_osd_pool_ls_detail(self):
        return self.ceph_osd_dump()["pools"]

    def ceph_osd_erasure_code_profile_ls(self):
        return self.state["profiles"]

    def ceph_osd_erasure_code_profile_get(self, name):
        return {"k": "2", "m": "1"}

    def ceph_orch_daemon_start(self, name):
        self.state["osds"][name[4:]].update(up=1, unit="active")

    def ceph_orch_daemon_stop(self, name):
        self.state["osds"][name[4:]].update(up=0, unit="inactive")

    def ceph_versions(self):
        version = "ceph version 16.2.15 (618f440892089921c3e944a991122ddc44e60516) pacific (stable)"
        return {"mon": {version: 1}, "osd": {version: len(self.state["osds"])}, "overall": {version: 1}}

    def ceph_status(self):
        states = {}
        for pg in self.pgs():
            states[pg["state"]] = states.get(pg["state"], 0) + 1
        osds = list(self.state["osds"].values())
        up, inside = sum(bool(self._alive(o)) for o in osds), sum(o["in"] for o in osds)
        osdmap = {"epoch": 1, "num_osds": len(osds), "num_up_osds": up, "num_in_osds": inside}
        by_state = [{"state_name": s, "count": n} for s, n in states.items()]
        health = {"status": "HEALTH_OK" if up == len(osds) else "HEALTH_WARN", "checks": {}}
        pgmap = {"num_pgs": sum(states.values()), "pgs_by_state": by_state, "num_objects": 0, "data_bytes": 0}
        return {"fsid": FSID, "health": health, "osdmap": osdmap, "pgmap": pgmap}

    def ceph_df(self, *_):
        total = 1000000 * 1024 * len(self.state["osds"])
        stats = {"total_bytes": total, "total_used_raw_bytes": total // 10, "total_used_raw_ratio": 0.1}
        stats["total_avail_bytes"] = total - total // 10
        pool = {"stored": 0, "bytes_used": 0, "objects": 0, "max_avail": total // 4}
        pools = [{"name": p["pool_name"], "id": p["pool"], "stats": pool} for p in self.state["pools"]]
        return {"stats": stats, "pools": pools}

    # ---- what else there is ----

    def systemctl(self, node, words):
        """(stdout, stderr, status) of `systemctl WORDS` on a node."""
        mine = {f"ceph-osd@{n}.service": o for n, o in self.state["osds"].items() if o["host"] == node}
        verb, names = words[0], [w for w in words[1:] if not w.startswith("-")]
        gateway = f"ceph-radosgw@rgw.{node}.service" if node in self.state["gateways"] else ""
        if verb == "list-units":
            rows = [f"{u} loaded {o['unit']} running Ceph" for u, o in mine.items() if u in names]
            rows += [f"{u} loaded {self.state['gateways'][node]} running Ceph" for u in names if u == gateway]
            return "".join(row + "\n" for row in rows), "", 0
        if verb == "is-active" and names == [gateway]:
            return self.state["gateways"][node] + "\n", "", 0 if self.state["gateways"][node] == "active" else 3
        for name in names:
            if name == gateway and verb in ("start", "stop"):
                starts = verb == "start" and self.state["gateways"][node] != "active"
                self.state["gids"][node] += int(starts)  # another process, which the cluster knows by another number
                self.state["gateways"][node] = "active" if verb == "start" else "inactive"
            elif name not in mine:
                return "", f"Unit {name} not found.", 5
            elif verb in ("start", "stop"):
                mine[name].update(up=int(verb == "start"), unit="active" if verb == "start" else "inactive")
        return "", "", 0

    def radosgw_admin(self, words):
        """What preflight, buckets and snapshots ask."""
        given = dict(w[2:].split("=", 1) for w in words if w.startswith("--") and "=" in w)
        if words[0] == "user" or words == ["metadata", "list", "user"]:
            return self._user(words[1], given)
        if words[0] in ("zone", "zonegroup"):
            return self._placement(words[0], words[1:], given)
        name = next((w.partition("=")[2] for w in words if w.startswith("--bucket=")), "")
        if words[:2] == ["bucket", "stats"]:
            if name not in self.state["buckets"]:
                return "", "failure: (2002) Unknown error 2002", 2
            usage = {"rgw.main": {"num_objects": self.state["buckets"][name], "size": 0}}
            return json.dumps({"id": name + ".1", "num_shards": 4, "usage": usage}), "", 0
        if words[:2] == ["bucket", "rm"]:
            self.state["buckets"].pop(name, None)
        if words[:2] == ["bucket", "list"]:
            return json.dumps(sorted(self.state["buckets"])), "", 0
        return "", "", 0

    def _user(self, verb, given):
        """Users, and with `--purge-data` the buckets of a run: those of a run's own user are all that it has."""
        users, name = self.state["users"], given.get("uid", "")
        if verb == "list":
            return json.dumps(sorted(users)), "", 0
        if verb == "create":
            users[name] = given["display-name"]
        elif name not in users:
            return "", f"could not fetch user info: no user info saved: {name}", 22
        elif verb == "rm":
            del users[name]
            self.state["buckets"] = {b: n for b, n in self.state["buckets"].items() if not b.startswith("cbtp-")}
            return "", "", 0
        keys = [{"access_key": "A", "secret_key": "S"}]
        return json.dumps({"user_id": name, "display_name": users[name], "keys": keys}), "", 0

    def _placement(self, of, words, given):
        """Placement targets of the zone, with their pools, and of its group."""
        added, id = self.state[of], given.get("placement-id", "")
        if words[:2] == ["placement", "add"]:
            self.state[of] = {**added, id: given} if of == "zone" else sorted({*added, id})
        elif words[:2] == ["placement", "rm"]:
            self.state[of] = type(added)(x for x in (added.items() if of == "zone" else added) if id not in (x, x[0]))
        if of == "zonegroup":
            targets = [{"name": name} for name in ("default-placement", *self.state[of])]
            return json.dumps({"name": "default", "zones": [{"name": "default"}], "placement_targets": targets}), "", 0
        pools = {"default-placement": {"index-pool": "index", "data-pool": "data"}, **self.state[of]}
        placements = []
        for key, named in pools.items():
            classes = {"STANDARD": {"data_pool": named["data-pool"]}}
            placements.append({"key": key, "val": {"index_pool": named["index-pool"], "storage_classes": classes}})
        about = {"name": "default", "log_pool": "log", "gc_pool": "log:gc", "placement_pools": placements}
        return json.dumps(about), "", 0
