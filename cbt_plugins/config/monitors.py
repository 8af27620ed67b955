"""The keys of our `monitoring_profiles:`; other names' keys are their own affair."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Type, TypeVar, Union

from pydantic import Field

from cbt_plugins.config.validate import FieldError, Strict, validate


class RecoveryProfile(Strict):
    """`recovery:` -- the cluster's state, over and over, while a benchmark runs."""

    # plain numbers as in CBT's own profiles
    interval: float = Field(1.0, ge=0.1, le=60, description="Seconds from one sample to the next.")
    nodes: Union[str, List[str]] = Field("head", description="Where to ask from: the first node of these keys.")
    librados: bool = Field(True, description="False: ask through the ceph command even where librados is.")


class ResourcesProfile(Strict):
    """`resources:` -- what daemons, disks and interfaces do on the nodes while a benchmark runs."""

    interval: float = Field(1.0, ge=0.1, le=60, description="Seconds from one sample to the next.")
    nodes: Union[str, List[str]] = Field(
        ["clients", "osds", "mons", "rgws", "mgrs", "head"], description="Keys of `cluster:` that name the nodes."
    )


class FaultsProfile(Strict):
    """`faults:` -- faults beside a benchmark, CBT's own included."""

    file: str = Field(min_length=1, description="A fault file: `events:` and `settings:`.")


PROFILES: Dict[str, Type[Strict]] = {
    "faults": FaultsProfile,
    "recovery": RecoveryProfile,
    "resources": ResourcesProfile,
}


_Profile = TypeVar("_Profile", bound=Strict)


def values_of(model: Type[_Profile], name: str, profile: Mapping[str, Any]) -> _Profile:
    """The values of a profile as CBT hands it over. Raises ValueError that names all that is wrong with it."""
    values, errors = validate(model, dict(profile))
    if values is None:
        texts = (": ".join([".".join(map(str, error.path)), error.text]) for error in errors)
        raise ValueError(f"monitoring_profiles: {name}: " + "; ".join(texts))
    return values


def errors_of(name: str, profile: Mapping[str, Any]) -> Sequence[FieldError]:
    """What is wrong with a profile of ours; nothing is known of the others."""
    return validate(PROFILES[name], profile)[1] if name in PROFILES else ()
