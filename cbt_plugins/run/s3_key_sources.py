"""Sources of the S3 keys of a plan: an RGW user, an AWS profile, the environment, a file, a secret of Kubernetes."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from cbt_plugins.archive_files import open_regular
from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.cluster.kubernetes import KubernetesError
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.config import aws_profile
from cbt_plugins.config.generator_classes import engine_with, generators_of
from cbt_plugins.plan import S3, Plan

log = logging.getLogger(__name__)

#: bytes of the file of a key
_LARGEST_SECRET = 64 << 10


def s3_keys(s3: S3, ceph: Ceph) -> S3Keys:
    """Return the keys from where the plan says. Raises CephError."""
    if s3.user:
        return ceph.rgw_user_keys(s3.user)
    if s3.profile:
        try:
            return S3Keys(*aws_profile.keys_of(s3.profile))
        except aws_profile.AwsError as error:
            raise CephError(f"s3.profile: {error}") from None
    names = ("access_key", "secret_key", "session_token")
    sources = (s3.access_key_source, s3.secret_key_source, s3.session_token_source)
    return S3Keys(*(_secret(source, name, ceph) for name, source in zip(names, sources) if source))


def renewed_keys(s3: S3, keys: S3Keys, ceph: Ceph) -> S3Keys:
    """Return the keys of now: a session token ends within hours, and its source may have a newer one.

    Keys without a token are returned unchanged, and so are all keys if the source cannot be read now.
    """
    if not keys.token:
        return keys
    try:
        return s3_keys(s3, ceph)
    except CephError as error:
        log.warning("the keys could not be read again; the earlier keys are used: %s", error)
        return keys


def keys_of_users(plan: Plan, ceph: Ceph) -> Tuple[S3Keys, ...]:
    """Return the keys of the other owners of buckets. Raises CephError."""
    return tuple(ceph.rgw_user_keys(user) for user in plan.users)


def owners_of(plan: Plan, keys: S3Keys, others: Sequence[S3Keys]) -> Dict[str, S3Keys]:
    """Return the keys of a plan by what an error calls their owner."""
    s3 = plan.s3
    owner = f"user {s3.user}" if s3.user else f"profile {s3.profile}" if s3.profile else "s3"
    return {owner: keys, **{f"user {user}": of_user for user, of_user in zip(plan.users, others)}}


def token_errors(plan: Plan, keys: S3Keys) -> List[str]:
    """Return the errors of engines that cannot send the token of these keys, which a profile may have."""
    engines = [engine for engine, of in generators_of(plan).items() if keys.token and not of.sends_tokens]
    able = engine_with("sends_tokens")
    return [f"s3: the keys have a session token, which {engine} cannot send: set engine: {able}" for engine in engines]


def _secret(source: str, name: str, ceph: Ceph) -> str:
    kind, _, place = source.partition(":")
    try:
        if kind == "secret":
            value = _of_kubernetes(place, name, ceph)
        else:
            value = os.environ[place] if kind == "env" else _text_of(Path(place))
    except KeyError:
        raise CephError(f"s3.{name}: environment variable {place} is not set") from None
    except OSError as error:
        raise CephError(f"s3.{name}: {place}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CephError(f"s3.{name}: {place}: is not text") from None
    value = value.strip()  # who makes a secret or a file by `echo` adds a newline
    if not value:
        raise CephError(f"s3.{name}: {place} is empty")
    return value


def _text_of(path: Path) -> str:
    """Return the text of a regular file of at most 64 KiB: a pipe would be waited for. Raises OSError."""
    with open_regular(path, _LARGEST_SECRET) as file:
        return file.read().decode()


def _of_kubernetes(place: str, name: str, ceph: Ceph) -> str:
    """Return the value of [NAMESPACE/]NAME/KEY. Raises CephError; no text has a value."""
    if ceph.kubernetes is None:
        raise CephError(f"s3.{name}: secret:{place} needs cluster: kubernetes: {{context: NAME}}")
    *namespace, secret, key = place.split("/")
    try:
        return ceph.kubernetes.secret(secret, key, *namespace)
    except KubernetesError as error:
        raise CephError(f"s3.{name}: {error}") from error
