"""`s3:` -- where the load goes, and where its keys come from."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated, Any, List, Mapping, Optional, Sequence
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from cbt_plugins import plan
from cbt_plugins.config import aws_profile
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict
from cbt_plugins.config.shell_values import AbsolutePath, AwsProfile, Encryption, Region, RgwUser
from cbt_plugins.config.yaml_source import KUBERNETES_KEY
from cbt_plugins.inventory import is_host

_USER, _REGION, _PROFILE = TypeAdapter(RgwUser), TypeAdapter(Region), TypeAdapter(AwsProfile)
#: where neither the file nor AWS's conventions name one
_DEFAULT_REGION = plan.S3.region
_PLACES: Any = [{"required": ["urls"]}, {"required": ["endpoints"]}]
_NO_PLACE_OR_USER: Any = {"not": {"anyOf": [*_PLACES, {"required": ["user"]}]}}
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
        if KUBERNETES_KEY.fullmatch(value):
            return value
        if value.startswith("secret:"):
            raise ValueError("secret: needs a secret of Kubernetes and its key, as in secret:NAME/AccessKey")
    raise ValueError("no secret in the YAML: use ${ENV}, file:/path, secret:NAME/KEY, or user:")


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
    scheme, _, address = url.partition("://")
    plain = not re.search(r"[/?#\s\\]", address.rstrip("/"))
    named = _HOST.fullmatch(host) is not None and (":" in host or is_host(host))
    return scheme in ("http", "https") and plain and named


def _repeated(urls: Sequence[str]) -> List[int]:
    """Return the places of URLs whose host and port are before them already."""
    ports = {"http": 80, "https": 443}
    ends = [(parts.hostname, parts.port or ports[parts.scheme]) for parts in map(urlsplit, urls)]
    return [index for index, end in enumerate(ends) if end in ends[:index]]


def _is_address(url: str) -> bool:
    try:
        return bool(ip_address(urlsplit(url).hostname or ""))
    except ValueError:
        return False


def _section_of_endpoints(context: Optional[Mapping[str, Any]], name: Optional[str]) -> Mapping[str, Any]:
    """Return a section of client_endpoints; {} without its name."""
    section = ((context or {}).get("endpoints") or {}).get(name) if name else None
    return section if isinstance(section, Mapping) else {}


_Secret = Annotated[
    str,
    BeforeValidator(_secret_source),
    WithJsonSchema({"type": "string", "pattern": r"^(\$\{[A-Za-z_][A-Za-z0-9_]*\}|file:/.+|secret:.+/.+)$"}),
]
_Url = Annotated[
    str, BeforeValidator(_url), WithJsonSchema({"type": "string", "pattern": r"^https?://[^/?#@\s]+/*$"})
]


class S3Section(Strict):
    """Where the load goes, and where its keys come from."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [*_PLACES, _NO_PLACE_OR_USER]})

    urls: Optional[Annotated[List[_Url], Field(min_length=1)]] = Field(
        None,
        description="Endpoints, `http://host:port`. Default with `profile` or keys: `AWS_ENDPOINT_URL_S3`, "
        "`AWS_ENDPOINT_URL`, or the `endpoint_url` of the profile.",
    )
    endpoints: Optional[str] = Field(
        None, description="Instead: a section of `client_endpoints:` with `urls` (and `user`)."
    )
    user: Optional[RgwUser] = Field(
        None,
        description="RGW user, or `TENANT$NAME`; the head asks `radosgw-admin` for keys.",
    )
    access_key: Optional[_Secret] = Field(
        None,
        description="`${NAME}` (environment of the leading machine), `file:/path`, `secret:NAME/KEY` (Kubernetes).",
    )
    secret_key: Optional[_Secret] = Field(
        None,
        description="`${NAME}` (environment of the leading machine), `file:/path`, `secret:NAME/KEY` (Kubernetes).",
    )
    session_token: Optional[_Secret] = Field(None, description="Token of a session, in the same forms.")
    profile: Optional[AwsProfile] = Field(
        None,
        validate_default=True,
        description="Instead: a profile of the leading machine's `~/.aws/credentials` and `~/.aws/config`. "
        "Default without `user` and keys: `AWS_PROFILE`.",
    )
    region: Optional[Region] = Field(
        None,
        description="Region in signatures. Default: with `profile` or without URLs `AWS_REGION`, `AWS_DEFAULT_REGION`, "
        "or the `region` of the profile; else us-east-1.",
    )
    host_select: plan.HostSelect = Field(
        plan.S3.host_select,
        description="URL of a request: the least busy, the next, or `one` for each driver, in turn.",
    )
    lookup: plan.Lookup = Field(
        plan.S3.lookup, description="Bucket in the path, or in the host name.")
    verify_tls: bool = Field(plan.S3.verify_tls, description="Check https certificates.")
    ca_file: Optional[AbsolutePath] = Field(
        None,
        description="PEM file, on the leading machine, with the authority of https URLs. Default: the clients' own.",
    )
    payload: plan.Payload = Field(
        plan.S3.payload,
        description="`unsigned`: UNSIGNED-PAYLOAD. With RGW 20 warp is always unsigned: RGW 20 refuses its signatures.",
    )

    sse: Optional[Encryption] = Field(
        None,
        description="cbt-load. Encryption: `c` (SSE-C, key made of the secret key; https), `s3`, or `kms:KEY`.",
    )

    @field_validator("urls")
    @classmethod
    def _one_scheme(cls, urls: Optional[List[str]]) -> Optional[List[str]]:
        errors = [
            FieldError((index,), "this endpoint is in the list twice") for index in _repeated(urls or ())
        ]
        if urls and len({urlsplit(url).scheme for url in urls}) > 1:
            errors.append(FieldError((), "http and https cannot be mixed"))
        if errors:
            raise FieldErrors(errors)
        return urls

    @field_validator("endpoints")
    @classmethod
    def _known_endpoints(cls, name: Optional[str], info: ValidationInfo) -> Optional[str]:
        sections: Mapping[str, Any] = (info.context or {}).get("endpoints") or {}
        if name is None:
            return name
        if name not in sections:
            listed = ", ".join(map(str, sections)) or "none"
            hint = did_you_mean(name, map(str, sections)) or f"; there are: {listed}"
            raise ValueError(f"no section {name!r} under client_endpoints{hint}")
        section = sections[name]
        if (
            not isinstance(section, Mapping)
            or not isinstance(section.get("urls"), list)
            or not section["urls"]
        ):
            raise ValueError(
                f"client_endpoints.{name} has no list of urls: on an existing cluster CBT finds none itself"
            )
        if len({urlsplit(_url(url)).scheme for url in section["urls"]}) > 1:
            raise ValueError(f"client_endpoints.{name}: http and https cannot be mixed")
        if _repeated([_url(url) for url in section["urls"]]):
            raise ValueError(f"client_endpoints.{name}: an endpoint is in the list twice")
        if section.get("user") is not None:
            try:
                _USER.validate_python(section["user"])
            except ValidationError as error:
                text = error.errors()[0]["msg"].partition("Value error, ")[2] or "must be text"
                raise ValueError(f"client_endpoints.{name}.user: {text}") from None
        return name

    @field_validator("profile", mode="before")
    @classmethod
    def _profile_of_environment(cls, name: Any, info: ValidationInfo) -> Any:
        """Return the profile of the environment for a section that names no source of keys."""
        others = ("user", "access_key", "secret_key", "session_token")
        endpoint = _section_of_endpoints(info.context, info.data.get("endpoints"))
        named = [*(info.data.get(key, "wrong") for key in others), endpoint.get("user")]
        of_environment = aws_profile.profile_of_environment()
        if name is not None or not of_environment or any(key is not None for key in named):
            return name
        try:
            return _PROFILE.validate_python(of_environment)
        except ValidationError:
            text = "AWS_DEFAULT_PROFILE or AWS_PROFILE is not the name of a profile"
            raise ValueError(f"{text}: letters, digits and . _ @ - only") from None

    @model_validator(mode="after")
    def _check_section(self, info: ValidationInfo) -> S3Section:
        errors = []
        try:
            urls = self._urls(info.context)
        except (aws_profile.AwsError, ValueError) as error:
            raise FieldErrors([FieldError(("profile",) if self.profile else (), str(error))]) from None
        plain = any(not url.startswith("https:") for url in urls)
        if not urls and self.endpoints is None:
            errors.append(FieldError((), "needs urls: [http://rgw1:7480, ...] or endpoints: NAME"))
        if self.ca_file and plain:
            errors.append(FieldError(("ca_file",), "goes with https URLs", of_key=True))
        if self.sse == "c" and plain:
            errors.append(FieldError(("sse",), "c goes with https URLs: every request brings the key", of_key=True))
        if self.sse == "c" and (self.session_token or (self.profile and aws_profile.has_token(self.profile))):
            text = "c makes its key of the secret key, which changes with a session token: use keys without a token"
            errors.append(FieldError(("sse",), text, of_key=True))
        if self.lookup == "dns" and any(map(_is_address, urls)):
            text = "dns puts the bucket before the host name, but a URL has an IP address: use names, or path"
            errors.append(FieldError(("lookup",), text))
        if self.ca_file and not self.verify_tls:
            text = "verify_tls: false checks no certificate: keep one of the two keys"
            errors.append(FieldError(("ca_file",), text, of_key=True))
        if self.urls is not None and self.endpoints is not None:
            errors.append(FieldError(("endpoints",), "either urls or endpoints, not both", of_key=True))
        keys = {"access_key": self.access_key, "secret_key": self.secret_key}
        given = [name for name, value in keys.items() if value is not None]
        if len(given) == 1:
            missing = next(name for name in keys if name not in given)
            errors.append(
                FieldError((given[0],), f"{missing} is missing: {given[0]} needs it", of_key=True)
            )
        if self.session_token is not None and not given:
            errors.append(FieldError(("session_token",), "goes with access_key and secret_key", of_key=True))
        if self.profile is not None and (given or self.user is not None):
            errors.append(FieldError(("profile",), "one of user, profile, access_key + secret_key", of_key=True))
        if given and self.user is not None:
            errors.append(
                FieldError(("user",), "either user or access_key + secret_key, not both", of_key=True)
            )
        if not given and self.user is self.profile is None and not self._endpoint(info.context).get("user"):
            text = "needs user: (keys from radosgw-admin), profile: (or AWS_PROFILE), or access_key: and secret_key:"
            errors.append(FieldError((), text))
        if errors:
            raise FieldErrors(errors)
        return self

    def _urls(self, context: Optional[Mapping[str, Any]]) -> List[str]:
        """Return the section's URLs; without any the one that AWS's tools take. Raises AwsError, ValueError."""
        if self.urls is not None or self.endpoints is not None:
            return self.urls or [_url(url) for url in self._endpoint(context).get("urls") or ()]
        if self.profile is None and self.access_key is None:
            return []
        try:
            region = aws_profile.region_of(self.profile)
            if region:
                _REGION.validate_python(region)
            url = aws_profile.endpoint_of(self.profile)
        except ValidationError:
            raise ValueError("the region of AWS_REGION or of the profile is not the name of a region") from None
        if not url:
            of_profile = f", and profile {self.profile} no endpoint_url" if self.profile else ""
            raise ValueError(f"needs urls: AWS_ENDPOINT_URL_S3 is not set{of_profile}")
        try:
            return [_url(url)]
        except ValueError as error:
            raise ValueError(f"the endpoint of AWS_ENDPOINT_URL_S3 or of the profile {error}") from None

    def _region(self) -> str:
        """Return the region; where URLs are named, the profile may be one of the leading machine that is not here."""
        if self.region or (self.profile is None and (self.urls or self.endpoints)):
            return self.region or _DEFAULT_REGION
        try:
            return str(_REGION.validate_python(aws_profile.region_of(self.profile) or _DEFAULT_REGION))
        except (aws_profile.AwsError, ValidationError):
            return _DEFAULT_REGION

    def _endpoint(self, context: Optional[Mapping[str, Any]]) -> Mapping[str, Any]:
        return _section_of_endpoints(context, self.endpoints)

    def to_plan(self, endpoints: Mapping[str, Any]) -> plan.S3:
        """Return the plan's S3; `endpoints` is the file's client_endpoints section."""
        shared = self._endpoint({"endpoints": endpoints})
        own_keys = self.access_key is not None or self.profile is not None
        return plan.S3(
            urls=tuple(self._urls({"endpoints": endpoints})),
            user=None if own_keys else self.user or str(shared["user"]),
            access_key_source=self.access_key,
            secret_key_source=self.secret_key,
            session_token_source=self.session_token,
            profile=self.profile,
            region=self._region(),
            host_select=self.host_select,
            lookup=self.lookup,
            verify_tls=self.verify_tls,
            ca_file=self.ca_file,
            payload=self.payload,
            sse=self.sse or "",
        )
