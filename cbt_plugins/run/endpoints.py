"""S3 endpoints of a plan: what each replies to each client."""

from __future__ import annotations

import json
import shlex
import ssl
from pathlib import Path
from typing import List, Mapping, Sequence

from cbt_plugins.archive_files import open_regular
from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.cluster.stream import NodeProgram
from cbt_plugins.plan import S3
from cbt_plugins.run import bucket_agent

#: bytes of s3.ca_file
_LARGEST_AUTHORITY = 64 << 10
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
