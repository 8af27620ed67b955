"""Asks S3 endpoints from a client node, all at once, and says what each one is: it sends GET / and changes nothing.

Standard library only (Python 3.6 and newer). One order comes on standard input, a line of JSON: {"urls", "region",
"verify", "authority": PEM text or "", "keys": [[owner, access key, secret key, token or ""]...]}. A line goes back for
each endpoint or key with an error: {"url", "owner", "error"}.
"""

import http.client
import json
import socket
import ssl
import sys
import threading
import time
from urllib.parse import urlsplit

from cbt_plugins.run.bucket_agent import SignedRequests, parsed

#: seconds for a connection and for each part of a reply; for all of one endpoint
TIMEOUT, LONGEST = 10.0, 24.0
#: bytes of a reply that are read
MOST = 1 << 16
_NO_TLS = "no TLS on this port: write http:// instead of https://"
#: S3's codes for keys that are wrong -> what is wrong with them
KEY_ERRORS = {
    "InvalidAccessKeyId": "the endpoint does not know this access key",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key, or the region is wrong",
    "RequestTimeTooSkewed": "the clocks of this node and of the endpoint differ by too much",
    "InvalidToken": "the session token is wrong",
    "ExpiredToken": "the session token has expired",
    "UserSuspended": "the user is suspended",
}
#: codes of RGW for a token that it has not made, that belongs to another access key, or that has expired
_TOKEN_REFUSED = ("AccessDenied", "InvalidArgument")


def context_of(order):
    if not order["verify"]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    return ssl.create_default_context(cadata=order["authority"] or None)


def reply_of(order, url, keys):
    """Return (status, whether it is S3's, S3's code or "")."""
    parts = urlsplit(url)
    headers = {}
    if keys:
        signed = {"url": url, "region": order["region"], "keys": keys, "verify": True, "authority": None}
        headers = SignedRequests(signed).headers("GET", "/", "", b"")
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(parts.netloc, timeout=TIMEOUT, context=context_of(order))
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT)
    try:
        connection.request("GET", "/", headers=headers)
        reply = connection.getresponse()
        text = reply.read(MOST)
    finally:
        connection.close()
    try:
        root = parsed(text)
    except Exception:  # HTML, say
        root = None
    tag = root.tag if root is not None else ""
    code = (root.findtext("Code") or "") if tag == "Error" else ""
    is_s3 = bool(code) or tag == "ListAllMyBucketsResult" or bool(reply.getheader("x-amz-request-id"))
    return reply.status, is_s3, code


def is_token_refused(order, url, keys):
    """Return whether an endpoint refuses the session token.

    RGW has one code for that, and for a user who may not list buckets. But it reads the token before it compares the
    signature: a wrong secret key with a good token is another code.
    """
    access, _, token = keys
    return reply_of(order, url, [access, "wrong", token])[2] in _TOKEN_REFUSED


def speaks_http(order, url):
    try:
        reply_of(order, url.replace("https:", "http:", 1), None)
        return True
    except (OSError, http.client.HTTPException):
        return False


def speaks_tls(url):
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        plain = socket.create_connection((parts.hostname, parts.port or 80), timeout=TIMEOUT)
        with plain, context.wrap_socket(plain):
            return True
    except (OSError, ValueError):
        return False


def printable(text):
    """Return the begin of a text that a server may have sent, on one line."""
    return "".join(character if character.isprintable() else " " for character in text[:200]).strip()


def error_of(order, url, owner, keys):
    """Return the error of an endpoint with these keys, "" for none."""
    try:
        status, is_s3, code = reply_of(order, url, keys)
        refused = keys and keys[2] and code in _TOKEN_REFUSED and is_token_refused(order, url, keys)
    except socket.gaierror:
        return "unknown host name on this node"
    except ConnectionRefusedError:
        return "connection refused: nothing listens on this port"
    except socket.timeout:
        if url.startswith("https:") and speaks_http(order, url):
            return _NO_TLS
        return "no reply within %g s" % TIMEOUT
    except (ssl.SSLError, ssl.CertificateError) as error:
        words = str(error)
        if any(sign in words for sign in ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "record layer", "HTTP_REQUEST")):
            return _NO_TLS
        return "TLS error: " + words
    except (OSError, http.client.HTTPException) as error:
        if url.startswith("http:") and speaks_tls(url):
            return "TLS on this port: write https:// instead of http://"
        text = printable(str(error))
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):  # closed: both
            return "is not an HTTP server: it sends %r" % text
        return "%s: %s" % (type(error).__name__, text)
    if not is_s3:
        if url.startswith("http:") and status == 400 and speaks_tls(url):
            return "TLS on this port: write https:// instead of http://"
        return "the endpoint replies, but is not an S3 server (status %d, no S3 header and no XML of S3)" % status
    if keys and code in KEY_ERRORS:
        return "the keys of %s are wrong: %s (%s)" % (owner, KEY_ERRORS[code], code)
    if refused:
        text = "the session token is wrong, or has expired, or belongs to another access key"
        return "the keys of %s are wrong: %s (%s)" % (owner, text, code)
    return ""


def main():
    order = json.loads(sys.stdin.readline())
    questions = [(url, keys[0], keys[1:]) for url in order["urls"] for keys in order["keys"] or [[""]]]
    errors = {}

    def ask(index, url, owner, keys):
        try:
            errors[index] = error_of(order, url, owner, keys)
        except Exception as error:  # a thread's own end would be no answer; its text may show a key
            errors[index] = "error in the probe: " + type(error).__name__

    threads = [threading.Thread(target=ask, args=(i, *question), daemon=True) for i, question in enumerate(questions)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + LONGEST
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    for index, (url, owner, _) in enumerate(questions):
        error = errors.get(index, "no complete reply within %g s" % LONGEST)
        if error:
            print(json.dumps({"url": url, "owner": owner, "error": error}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
