"""S3 endpoints and keys of a plan: where the keys come from, and what each endpoint replies to each client."""

from __future__ import annotations

import json
import os
import shlex
import ssl
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

from cbt_plugins.archive_files import open_regular
from cbt_plugins.cluster.ceph import Ceph, CephError, S3Keys
from cbt_plugins.cluster.kubernetes import KubernetesError
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.stream import NodeProgram
from cbt_plugins.config import aws_profile
from cbt_plugins.plan import S3, Plan
from cbt_plugins.run import bucket_agent

#: bytes of s3.ca_file
_LARGEST_AUTHORITY = 64 << 10
#: bytes of the file of a key
_LARGEST_SECRET = 64 << 10
#: asks endpoints, from a client; seconds that it may take, a little more than it gives itself
PROBE, _PROBE_TIMEOUT = NodeProgram(Path(__file__).with_name("endpoint_probe.py"), (bucket_agent,)), 30.0


def authority_of(s3: S3) -> bytes:
    """Return the PEM text of s3.ca_file. Raises CephError if it is not one."""
    if not s3.ca_file:
        return b""
    try:
        with open_regular(Path(s3.ca_file)) as file:
            text = file.read(_LARGEST_AUTHORITY + 1)
        if len(text) > _LARGEST_AUTHORITY:
            raise ValueError  # a bundle of all authorities, of which nobody can say what it trusts
        ssl.create_default_context(cadata=text.decode())
    except (OSError, ValueError, ssl.SSLError) as error:
        wrong = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
        raise CephError(f"s3.ca_file: {s3.ca_file}: {wrong or 'not a PEM file with an authority'}") from None
    return text


def owners_of(plan: Plan, keys: S3Keys, others: Sequence[S3Keys]) -> Dict[str, S3Keys]:
    """Return the keys of a plan by what an error calls their owner."""
    s3 = plan.s3
    owner = f"user {s3.user}" if s3.user else f"profile {s3.profile}" if s3.profile else "s3"
    return {owner: keys, **{f"user {user}": of_user for user, of_user in zip(plan.users, others)}}


def errors_of_endpoints(
    remote: Remote, clients: Sequence[str], s3: S3, authority: bytes, owned: Mapping[str, S3Keys]
) -> List[str]:
    """Return the errors of all endpoints as each client sees them, with these keys; no error has a key."""
    order = {
        "urls": s3.urls,
        "region": s3.region,
        "verify": s3.verify_tls,
        "authority": authority.decode(),
        "keys": [[owner, *keys.all] for owner, keys in owned.items()],
    }
    data = f"{PROBE.text}{json.dumps(order)}\n".encode()
    answers = remote.feed(clients, shlex.join(["python3", *PROBE.words()]), data, _PROBE_TIMEOUT)
    errors = []
    for node, answer in answers.items():
        replies = map(json.loads, answer.stdout.splitlines())
        errors += [f"{node}: {line['url']}: {line['error']}" for line in replies]
        if answer.status:
            why = (answer.stderr.strip().splitlines() or ["no reply in time"])[-1]
            errors.append(f"{node}: could not ask the endpoints: {why}")
    if any("CERTIFICATE_VERIFY_FAILED" in error for error in errors):
        errors.append("certificates are not trusted: set s3: {ca_file: PATH} to their authority, or verify_tls: false")
    return errors


def s3_keys(s3: S3, ceph: Ceph) -> S3Keys:
    """Return the keys from where the plan says. Raises CephError."""
    if s3.user:
        return ceph.user_keys(s3.user)
    if s3.profile:
        try:
            return S3Keys(*aws_profile.keys_of(s3.profile))
        except aws_profile.AwsError as error:
            raise CephError(f"s3.profile: {error}") from None
    names = ("access_key", "secret_key", "session_token")
    sources = (s3.access_key_source, s3.secret_key_source, s3.session_token_source)
    return S3Keys(*(_secret(source, name, ceph) for name, source in zip(names, sources) if source))


def keys_of_users(plan: Plan, ceph: Ceph) -> Tuple[S3Keys, ...]:
    """Return the keys of the other owners of buckets. Raises CephError."""
    return tuple(ceph.user_keys(user) for user in plan.users)


def _secret(source: str, name: str, ceph: Ceph) -> str:
    kind, _, place = source.partition(":")
    if kind == "secret":
        return _of_kubernetes(place, name, ceph)
    try:
        value = os.environ[place] if kind == "env" else _text_of(Path(place).expanduser()).strip()
    except KeyError:
        raise CephError(f"s3.{name}: environment variable {place} is not set") from None
    except OSError as error:
        raise CephError(f"s3.{name}: {place}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CephError(f"s3.{name}: {place}: is not text") from None
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
