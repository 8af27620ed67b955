"""The nodes of a run, however the `cluster:` section names them."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import pytest

from cbt_plugins.inventory import (
    NodeName,
    check_node_name,
    find_host,
    head_of,
    names_of,
    nodes_of,
    same_host,
    short_name,
)


@pytest.mark.parametrize(
    ("value", "nodes"),
    [
        ("a", ("a",)),
        ("a,b", ("a", "b")),
        ("root@a, b ,", ("a", "b")),
        (["a", "b", "a"], ("a", "b")),
        (["a,b", "c"], ("a", "b", "c")),
        ({"a": {}, "b": None}, ("a", "b")),
        ({"u@a:2222": None, "a": None}, ("a",)),
        (["a.lab.example", "10.0.0.1"], ("a.lab.example", "10.0.0.1")),
        (None, ()),
    ],
)
def test_every_form(value: Any, nodes: Sequence[str]) -> None:
    assert nodes_of({"clients": value}, "clients", "osds") == nodes
    assert nodes_of({"clients": value}) == nodes


def test_every_role_counts() -> None:
    cluster = {"user": "u", "head": "root@h", "clients": ["c,d"], "osds": {"h": None}, "mdss": "m", "mgrs": ["g"]}
    assert nodes_of(cluster) == ("h", "c", "d", "g", "m")
    assert nodes_of(cluster, "mgrs", "head") == ("g", "h")
    assert head_of(cluster) == "h"
    assert head_of({}) == ""


def test_users_and_ports_are_kept_for_who_connects() -> None:
    cluster = {"head": "a", "osds": ["ceph@a:2022", "b"]}
    assert names_of(cluster) == (NodeName("a", "ceph", "2022"), NodeName("b"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("node1", "node1", True),
        ("node1", "node1.lab.example", True),
        ("root@node1", "node1.lab.example:22", True),
        ("node1.public", "node1.storage", True),
        ("CEPH01.lab", "ceph01", True),
        ("node1", "node10", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "root@10.0.0.1", True),
        ("10", "10.0.0.1", False),
    ],
)
def test_names_of_one_host(one: str, other: str, same: bool) -> None:
    assert same_host(one, other) is same
    assert same_host(other, one) is same


@pytest.mark.parametrize(
    ("name", "nodes", "found"),
    [
        ("node1", ["root@node1.example", "node2"], "node1.example"),
        ("node1.example", ["node1"], "node1"),
        ("node1", ["node1.a", "node1.b"], None),
        ("node1", ["node1", "node1.b"], "node1"),
        ("node3", ["node1"], None),
        ("ceph01", ["CEPH01", "node1"], "CEPH01"),
    ],
)
def test_the_node_that_a_name_means(name: str, nodes: Sequence[str], found: Optional[str]) -> None:
    assert find_host(name, nodes) == found


@pytest.mark.parametrize(
    ("host", "short"),
    [
        ("a.example.com", "a"),
        ("a", "a"),
        ("10.1.2.3", "10.1.2.3"),
        ("fe80::1", "fe80::1"),
        ("root@a.b:22", "a"),
    ],
)
def test_short_names(host: str, short: str) -> None:
    assert short_name(host) == short


@pytest.mark.parametrize("wrong", [7, "fe80::1", "a b", "-a", "a,b", ""])
def test_names_that_cannot_be_reached(wrong: Any) -> None:
    with pytest.raises(ValueError, match="host name"):
        check_node_name(wrong)
