"""Rights of service accounts in the API server of the tests: what Roles and their bindings allow (RBAC)."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, NamedTuple, Tuple

_ACCOUNT = "system:serviceaccount:"
_Objects = Mapping[str, Dict[Tuple[str, str], Any]]
_Resources = Mapping[Tuple[str, str], Mapping[str, str]]


class Right(NamedTuple):
    """One request: `resource` as in pods/exec, `name` "" where a list or a new object is asked for."""

    user: str
    namespace: str
    verb: str
    resource: str
    name: str = ""


def user_of(namespace: str, account: str) -> str:
    """Return the name of a service account as a user."""
    return f"{_ACCOUNT}{namespace}:{account}"


def is_allowed(objects: _Objects, resources: _Resources, right: Right) -> bool:
    """Return whether a user may do this; all but service accounts may do anything."""
    if not right.user.startswith(_ACCOUNT):
        return True
    group = next(of[0] for of, kinds in resources.items() if right.resource.partition("/")[0] in kinds)
    return any(
        namespace in ("", right.namespace)
        and group in rule["apiGroups"]
        and right.resource in rule["resources"]
        and right.verb in rule["verbs"]
        and (not rule.get("resourceNames") or right.name in rule["resourceNames"])
        for namespace, rule in _rules(objects, right.user)
    )


def _rules(objects: _Objects, user: str) -> Iterator[Tuple[str, Mapping[str, Any]]]:
    """Yield each rule that a user has, with its namespace, "" for all of them."""
    for resource in ("rolebindings", "clusterrolebindings"):
        for (namespace, _), binding in objects.get(resource, {}).items():
            if user in [f"{_ACCOUNT}{s.get('namespace')}:{s['name']}" for s in binding["subjects"]]:
                kind, name = binding["roleRef"]["kind"], binding["roleRef"]["name"]
                at = (namespace, name) if kind == "Role" else ("", name)
                yield from ((namespace, rule) for rule in objects[f"{kind.lower()}s"][at]["rules"])


def granted(objects: _Objects, user: str) -> Iterator[Right]:
    """Yield each single right that roles give to a user; `namespace` is "" for all, `name` is "*" for any object."""
    for namespace, rule in _rules(objects, user):
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or ["*"]:
                    yield Right(user, namespace, verb, resource, name)
