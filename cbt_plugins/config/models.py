"""The parts of the YAML that both benchmarks share."""

from __future__ import annotations

import re
from typing import Annotated, Any, Dict, List, Literal, Mapping, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from cbt_plugins.config import plan
from cbt_plugins.config.faults import did_you_mean
from cbt_plugins.config.units import Duration, Percent
from cbt_plugins.config.validate import AbsolutePath, Problem, Problems, Strict

_ENVIRONMENT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+")


def _secret_source(value: Any) -> str:
    # No message of this function may show the value.
    if isinstance(value, str):
        match = _ENVIRONMENT.fullmatch(value)
        if match:
            return f"env:{match.group(1)}"
        if value.startswith("file:/"):
            return value
        if value.startswith("file:"):
            raise ValueError("file: needs an absolute path, as in file:/root/secret-key")
    raise ValueError("secrets come from ${ENV}, file:/path, or user:, and never stand in the YAML themselves")


def _url(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a URL such as http://rgw1:7480")
    try:
        parts = urlsplit(value)
        port_is_fine, host = parts.port != 0, parts.hostname or ""
    except ValueError:
        port_is_fine, host = False, ""
    if "@" in value:
        raise ValueError("no user or key in a URL; use user:, or access_key: and secret_key:")
    if not port_is_fine or not _is_bare(value, host):
        raise ValueError("must be http://host[:port] or https://host[:port], without a path")
    return value.rstrip("/")


def _is_bare(url: str, host: str) -> bool:
    """Tell whether a URL is a scheme, a host and perhaps a port."""
    scheme, _, rest = url.partition("://")
    plain = not re.search(r"[/?#\s\\]", rest.rstrip("/"))
    return scheme in ("http", "https") and plain and _HOST.fullmatch(host) is not None


def exactly_one(names: Sequence[str]) -> Dict[str, Any]:
    """Return the JSON Schema of a mapping that has one of these keys."""
    return {"oneOf": [{"required": [name]} for name in names]}


_Secret = Annotated[
    str,
    BeforeValidator(_secret_source),
    WithJsonSchema({"type": "string", "pattern": r"^(\$\{[A-Za-z_][A-Za-z0-9_]*\}|file:/.+)$"}),
]
#: more drivers, buckets or workers per driver than this are a typing error
MANY = 10_000
_Url = Annotated[
    str, BeforeValidator(_url), WithJsonSchema({"type": "string", "pattern": r"^https?://[^/?#@\s]+/*$"})
]
Workers = Annotated[
    int, Field(ge=1, le=MANY, description="Requests under way at any time, per driver (closed loop).")
]


class S3Section(Strict):
    """Where the load goes, and where its keys come from."""

    model_config = ConfigDict(json_schema_extra=exactly_one(("urls", "endpoints")))

    urls: Optional[Annotated[List[_Url], Field(min_length=1)]] = Field(
        None, description="RGW endpoints, `http://host:port` each. Required unless `endpoints` is given."
    )
    endpoints: Optional[str] = Field(
        None, description="Name of a section under `client_endpoints:` whose `urls` (and `user`) are used."
    )
    user: Optional[str] = Field(
        None,
        min_length=1,
        description="RGW user; its keys come from `radosgw-admin user info` on the head node.",
    )
    access_key: Optional[_Secret] = Field(
        None, description="`${NAME}` (environment of the head node) or `file:/path`."
    )
    secret_key: Optional[_Secret] = Field(
        None, description="`${NAME}` (environment of the head node) or `file:/path`."
    )
    region: str = Field("us-east-1", min_length=1, description="Region that requests are signed for.")
    host_select: Literal["weighed", "roundrobin"] = Field(
        "weighed",
        description="How a driver chooses among the URLs: the least busy one, or one after the other.",
    )
    lookup: Literal["path", "dns"] = Field("path", description="Bucket in the path, or in the host name.")
    verify_tls: bool = Field(True, description="Check the certificates of https URLs.")
    payload: Literal["signed", "unsigned"] = Field(
        "signed", description="`unsigned` leaves the payload out of the signature (UNSIGNED-PAYLOAD)."
    )

    @field_validator("urls")
    @classmethod
    def _one_scheme(cls, urls: Optional[List[str]]) -> Optional[List[str]]:
        problems = [
            Problem((index,), "this URL is in the list twice")
            for index, url in enumerate(urls or ())
            if url in (urls or ())[:index]
        ]
        if urls and len({urlsplit(url).scheme for url in urls}) > 1:
            problems.append(Problem((), "http and https cannot be mixed: a driver speaks either"))
        if problems:
            raise Problems(problems)
        return urls

    @field_validator("endpoints")
    @classmethod
    def _known_endpoints(cls, name: Optional[str], info: ValidationInfo) -> Optional[str]:
        known: Mapping[str, Any] = (info.context or {}).get("endpoints") or {}
        if name is None:
            return name
        if name not in known:
            listed = ", ".join(map(str, known)) or "none"
            hint = did_you_mean(name, map(str, known)) or f"; there are: {listed}"
            raise ValueError(f"no section {name!r} under client_endpoints{hint}")
        section = known[name]
        if (
            not isinstance(section, Mapping)
            or not isinstance(section.get("urls"), list)
            or not section["urls"]
        ):
            raise ValueError(
                f"client_endpoints.{name} has no list of urls: on an existing cluster CBT finds none itself"
            )
        for url in section["urls"]:
            _url(url)
        return name

    @model_validator(mode="after")
    def _whole(self, info: ValidationInfo) -> S3Section:
        problems = []
        if self.urls is None and self.endpoints is None:
            problems.append(Problem((), "needs urls: [http://rgw1:7480, ...] or endpoints: NAME"))
        if self.urls is not None and self.endpoints is not None:
            problems.append(Problem(("endpoints",), "either urls or endpoints, not both", of_key=True))
        keys = {"access_key": self.access_key, "secret_key": self.secret_key}
        given = [name for name, value in keys.items() if value is not None]
        if len(given) == 1:
            missing = next(name for name in keys if name not in given)
            problems.append(
                Problem((given[0],), f"{given[0]} alone does not help: {missing} is missing", of_key=True)
            )
        if given and self.user is not None:
            problems.append(
                Problem(("user",), "either user or access_key + secret_key, not both", of_key=True)
            )
        if not given and self.user is None and not self._endpoint(info.context).get("user"):
            problems.append(
                Problem((), "needs user: (keys from radosgw-admin), or access_key: and secret_key:")
            )
        if problems:
            raise Problems(problems)
        return self

    def _endpoint(self, context: Optional[Mapping[str, Any]]) -> Mapping[str, Any]:
        section = ((context or {}).get("endpoints") or {}).get(self.endpoints) if self.endpoints else None
        return section if isinstance(section, Mapping) else {}

    def to_plan(self, endpoints: Mapping[str, Any]) -> plan.S3:
        """Return the plan's S3; `endpoints` is the file's client_endpoints section."""
        shared = self._endpoint({"endpoints": endpoints})
        own_keys = self.access_key is not None
        return plan.S3(
            urls=tuple(self.urls) if self.urls else tuple(_url(url) for url in shared["urls"]),
            user=None if own_keys else self.user or str(shared["user"]),
            access_key_source=self.access_key,
            secret_key_source=self.secret_key,
            region=self.region,
            host_select=self.host_select,
            lookup=self.lookup,
            verify_tls=self.verify_tls,
            payload=self.payload,
        )


def _mix_part(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("must be a number: percent of the requests, without %")
    if not 0 <= value <= 100:
        raise ValueError("must be between 0 and 100 (percent of the requests)")
    return float(value)


_MixPart = Annotated[
    float, BeforeValidator(_mix_part), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 100})
]


class MixSection(Strict):
    """Percent of the requests by operation; the sum is 100."""

    get: _MixPart = Field(0, description="Whole objects read.")
    put: _MixPart = Field(0, description="Objects written.")
    stat: _MixPart = Field(0, description="HEAD requests.")
    delete: _MixPart = Field(0, description="Objects deleted; never more than put.")

    @model_validator(mode="after")
    def _whole(self) -> MixSection:
        problems = []
        total = self.get + self.put + self.stat + self.delete
        if abs(total - 100) > 1e-6:
            problems.append(Problem((), f"the sum of the mix is {total:g}, not 100"))
        if self.delete > self.put:
            text = (
                f"delete ({self.delete:g}) is more than put ({self.put:g}): objects run out (warp refuses it)"
            )
            problems.append(Problem(("delete",), text))
        if problems:
            raise Problems(problems)
        return self

    def to_plan(self) -> Dict[str, float]:
        """Return percent by upper-case operation, without those that never happen."""
        return {name.upper(): value for name, value in self if value}


#: the mix of the Reef study
DEFAULT_MIX = MixSection(get=45, put=35, stat=15, delete=5)
DEFAULT_MIX_TEXT: Dict[str, Any] = {"get": 45, "put": 35, "stat": 15, "delete": 5}


def only_one(section: Strict, names: Tuple[str, ...]) -> str:
    """Return which of the optional keys is given; ValueError unless it is exactly one."""
    given = [name for name in names if getattr(section, name) is not None]
    if len(given) == 1:
        return given[0]
    if not given:
        raise ValueError(f"needs one of {', '.join(names)}")
    raise ValueError(f"{' and '.join(given)} exclude each other: keep one")


_GOALS = ("duration", "objects", "max_avail", "raw")


class FillSection(Strict):
    """When a fill is done: exactly one of these keys."""

    model_config = ConfigDict(json_schema_extra=exactly_one(_GOALS))

    duration: Optional[Duration] = Field(None, description="Write for this long.")
    objects: Optional[int] = Field(None, ge=1, description="Write so many objects into each bucket.")
    max_avail: Optional[Percent] = Field(
        None, description="Write this share of the data pool's MAX AVAIL, as it is when the fill starts."
    )
    raw: Optional[Percent] = Field(
        None, description="Write until this share of the cluster's raw capacity is used, by whatever data."
    )

    @model_validator(mode="after")
    def _whole(self) -> FillSection:
        only_one(self, _GOALS)
        return self

    def to_plan(self, scale: float) -> plan.Goal:
        """Return the goal; percentages are absolute, so `scale` leaves them alone."""
        return plan.Goal(
            duration=scaled_duration(self.duration, scale),
            objects=scaled_objects(self.objects, scale),
            max_avail=self.max_avail,
            raw=self.raw,
        )


def scaled_duration(seconds: Optional[float], scale: float) -> Optional[float]:
    """Return the scaled duration, at least 1 s unless less was asked for."""
    return None if seconds is None else max(seconds * scale, min(seconds, 1.0))


def scaled_objects(number: Optional[int], scale: float) -> Optional[int]:
    """Return the scaled number of objects, at least 1."""
    return None if number is None else max(round(number * scale), 1)


class BenchmarkSection(Strict):
    """Keys that every benchmark of ours has. A list at this level is a sweep: CBT runs each element."""

    s3: S3Section = Field(description="Where the load goes.")
    workers: Workers = 8
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)] = Field(
        1.0,
        description="Multiplies every duration and number of objects of the cycle (at least 1 s, 1 object).",
    )
    full_guard: Percent = Field(
        0.8,
        description="Share of the raw capacity in use at which any phase is stopped.",
        json_schema_extra={"default": "80%"},
    )
    keep_data: bool = Field(
        False, description="Leave the buckets that the run made; otherwise its end removes them."
    )
    warp_path: Optional[AbsolutePath] = Field(
        None, description="warp on the client nodes (absolute path); without it, ours is copied there."
    )
    read_objects: int = Field(
        1_000_000, ge=1, description="At most so many existing objects are listed for get and stat."
    )

    @field_validator("scale", mode="before")
    @classmethod
    def _scale_is_a_number(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError("must be a number such as 0.01")
        return value


def check_raw_goal(goal: Optional[FillSection], full_guard: Optional[float]) -> None:
    """Raise ValueError for a fill that the full guard stops before it is done."""
    if goal and goal.raw and full_guard and goal.raw > full_guard:
        raise Problems(
            [Problem(("raw",), "is above full_guard: the guard would stop the fill before it is done")]
        )
