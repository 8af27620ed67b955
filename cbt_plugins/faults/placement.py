"""Where CRUSH puts the data of pools, and in what shape: read off the rules and the tree."""

from __future__ import annotations

from typing import Any, Collection, Dict, FrozenSet, Iterator, List, Mapping, Optional, Tuple

from cbt_plugins.faults.cluster_facts import Facts


def taken_from(facts: Facts, pool: Mapping[str, Any]) -> Iterator[Tuple[str, FrozenSet[int]]]:
    """What a pool's CRUSH rule takes its OSDs from, in words, with the OSDs of the device class that it wants."""
    for step in _steps(facts, pool):
        if step["op"] == "take":
            root, device = _root(facts, step)
            if root is not None:
                name = f"{facts.tree[root]['name']}{f', class {device}' if device else ''}"
                yield name, frozenset(o for o in facts.below(root) if _is_of(facts, o, device))


def _steps(facts: Facts, pool: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    rules = facts.answers["osd crush rule dump"]
    return [step for rule in rules if rule["rule_id"] == pool["crush_rule"] for step in rule["steps"]]


def _root(facts: Facts, take: Mapping[str, Any]) -> Tuple[Optional[int], str]:
    name, _, device = str(take["item_name"]).partition("~")  # "default~ssd": one class of devices
    return next((i for i, n in facts.tree.items() if n["name"] == name), None), device


def _is_of(facts: Facts, osd: int, device: str) -> bool:
    return not device or facts.tree[osd].get("device_class") == device


def domains(
    facts: Facts, gone: Collection[int], taken_now: Collection[int]
) -> Iterator[Tuple[Mapping[str, Any], str, Dict[str, float]]]:
    """Each pool with its failure domain and the share of each such domain that is gone.

    What is out already takes part in nothing, but for what is `taken_now`. Pools whose CRUSH rule makes more than one
    choice are left out: only their real PGs can tell.
    """
    osds, tree = facts.osds, facts.tree
    for pool in facts.pools:
        steps = _steps(facts, pool)
        choices = [s for s in steps if s["op"].startswith("choose")]
        taken = [s for s in steps if s["op"] == "take"]
        if len(choices) != 1 or len(taken) != 1:
            continue
        root, device = _root(facts, taken[0])
        kind = choices[0]["type"]
        shares = {}
        for item in _of_type(facts, root, kind) if root is not None else []:
            members = [
                o
                for o in facts.below(item)
                if o in osds and (osds[o]["weight"] > 0 or o in taken_now) and _is_of(facts, o, device)
            ]
            if members:
                shares[str(tree[item]["name"])] = sum(o in gone for o in members) / len(members)
        if shares:
            yield pool, kind, shares


def _of_type(facts: Facts, item: int, kind: str) -> List[int]:
    node = facts.tree[item]
    if node["type"] == kind:
        return [item]
    return [found for child in node.get("children", []) for found in _of_type(facts, child, kind)]


def needed(facts: Facts, pool: Mapping[str, Any]) -> int:
    """Members without which there is no data: one copy, or k chunks."""
    profiles = facts.answers["osd dump"].get("erasure_code_profiles", {})
    return int(profiles.get(pool.get("erasure_code_profile") or "", {}).get("k", 1)) if pool["type"] == 3 else 1


def shape_of(facts: Facts, pool: Mapping[str, Any]) -> str:
    k = needed(facts, pool)
    return f"EC {k}+{pool['size'] - k}" if pool["type"] == 3 else f"{pool['size']} copies"
