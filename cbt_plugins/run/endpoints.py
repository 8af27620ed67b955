"""S3 endpoints of a plan: what each replies to each client."""

from __future__ import annotations

import json
import shlex
import ssl
from pathlib import Path
from typing import Iterator, List, Mapping, Sequence

from cbt_plugins.archive_files import open_regular
from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.cluster.stream import NodeProgram, login_error
from cbt_plugins.plan import S3
from cbt_plugins.run import bucket_agent

#: parts of OpenSSL's texts about a certificate whose authority is unknown; about one of another host or address
_UNKNOWN_AUTHORITY = ("issuer certificate", "self-signed", "self signed", "verify the first certificate")
_OTHER_NAME = ("Hostname mismatch", "IP address mismatch", "doesn't match")
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
        if len(text) > _LARGEST_AUTHORITY:  # a bundle of all authorities, of which nobody can say what it trusts
            limit = f"larger than {_LARGEST_AUTHORITY >> 10} KiB"
            raise CephError(f"s3.ca_file: {s3.ca_file}: {limit}: name a file with only the endpoints' authority")
        ssl.create_default_context(cadata=text.decode())
    except (OSError, ValueError, ssl.SSLError) as error:
        wrong = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
        raise CephError(f"s3.ca_file: {s3.ca_file}: {wrong or 'not a PEM file with an authority'}") from None
    return text


def is_untrusted(errors: Sequence[str]) -> bool:
    """Return whether an error of an endpoint is that its authority is unknown."""
    return any(sign in error for error in errors for sign in _UNKNOWN_AUTHORITY)


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
    errors: List[str] = []
    for node, answer in answers.items():
        errors += _errors_in(node, answer.stdout)
        if answer.status:
            why = (answer.stderr.strip().splitlines() or ["no reply in time"])[-1]
            errors.append(f"{node}: could not ask the endpoints: {why}")
    if is_untrusted(errors):
        errors.append("certificates are not trusted: set s3: {ca_file: PATH} to their authority, or verify_tls: false")
    if any(sign in error for error in errors for sign in _OTHER_NAME):
        errors.append("certificates have other names than their URLs: write the names of the certificates into urls")
    return errors


def _errors_in(node: str, output: str) -> Iterator[str]:
    """Yield the errors in the output of the probe on a node."""
    for line in output.splitlines():
        try:
            reply = json.loads(line)
            yield f"{node}: {reply['url']}: {reply['error']}"
        except (ValueError, KeyError, TypeError):
            yield f"{node}: could not ask the endpoints: {login_error(line)}"
            return
