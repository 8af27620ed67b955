"""Removes buckets through S3 with all that is in them, on a client node: for runs without Ceph's own commands.

Standard library only (Python 3.6 and newer). One order comes on standard input, a line of JSON: {"url", "region",
"keys": [access, secret, token or ""], "verify", "authority": a PEM file or null, "buckets": [name...]}. Lines go back:
{"removed": name}, {"failed": text}, {"objects": so many are gone} now and then, and {"end": true}.
"""

import base64
import hashlib
import hmac
import http.client
import json
import ssl
import sys
import time
import xml.etree.ElementTree as ElementTree
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

TIMEOUT = 120.0
#: keys of one request, as S3 allows
MOST = 1000
#: so often a request is sent again that had no answer, or one that blames the server; seconds between
TRIES, PAUSE = 5, 2.0


class S3Error(Exception):
    """S3 said no; the text is for the user."""


class SignedRequests:
    """Requests to one endpoint."""

    def __init__(self, order):
        parts = urlsplit(order["url"])
        self.host, self.region, self.keys = parts.netloc, order["region"], order["keys"]
        self.context = None
        if parts.scheme == "https":
            self.context = ssl.create_default_context(cafile=order["authority"])
            if not order["verify"]:
                self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.connection = None

    def ask(self, method, path, query=(), body=b""):
        """Return (status, XML without namespaces or None). Raises S3Error for other answers than 2xx and 404."""
        path = quote(path, safe="/-_.~")
        words = "&".join(quote(k, safe="-_.~") + "=" + quote(v, safe="-_.~") for k, v in sorted(query))
        for left in reversed(range(TRIES)):
            try:
                status, text = self.once(method, path, words, body)
            except (OSError, http.client.HTTPException) as error:
                status, text, self.connection = 0, str(error).encode(), None
            if status in (200, 204, 404):
                return status, parsed(text)
            if not left or 0 < status < 500:
                why = text[:200].decode(errors="replace")
                raise S3Error("%s %s: %s %s" % (method, path, status or "no answer:", why))
            time.sleep(PAUSE)

    def once(self, method, path, query, body):
        if self.connection is None:
            kind = http.client.HTTPSConnection if self.context else http.client.HTTPConnection
            more = {"context": self.context} if self.context else {}
            self.connection = kind(self.host, timeout=TIMEOUT, **more)
        self.connection.request(method, path + ("?" + query if query else ""), body or None,
                                self.headers(method, path, query, body))
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def headers(self, method, path, query, body):
        """Sign with AWS's version 4."""
        access, secret, token = self.keys
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        signed = {"host": self.host, "x-amz-date": stamp, "x-amz-content-sha256": hashlib.sha256(body).hexdigest()}
        if token:
            signed["x-amz-security-token"] = token
        if body:
            signed["content-md5"] = base64.b64encode(hashlib.md5(body).digest()).decode()
        names = ";".join(sorted(signed))
        lines = "".join("%s:%s\n" % (name, signed[name]) for name in sorted(signed))
        request = "\n".join([method, path, query, lines, names, signed["x-amz-content-sha256"]])
        scope = "/".join([stamp[:8], self.region, "s3", "aws4_request"])
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
        key = ("AWS4" + secret).encode()
        for word in scope.split("/"):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        credential = "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s"
        return dict(signed, Authorization=credential % (access, scope, names, signature))


def parsed(text):
    if not text.lstrip().startswith(b"<"):
        return None
    root = ElementTree.fromstring(text)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def remove(s3, bucket):
    """Remove all versions, delete markers and unfinished uploads, and then the bucket."""
    path, gone = "/" + bucket, 0
    while True:
        status, page = s3.ask("GET", path, [("versions", ""), ("max-keys", str(MOST))])
        if status == 404:
            return
        found = [e for e in page if e.tag in ("Version", "DeleteMarker")] if page is not None else []
        if not found:
            break
        texts = [
            "<Object><Key>%s</Key><VersionId>%s</VersionId></Object>"
            % (escape(one.findtext("Key")), escape(one.findtext("VersionId") or "null"))
            for one in found
        ]
        body = "<Delete><Quiet>true</Quiet>%s</Delete>" % "".join(texts)
        _, said = s3.ask("POST", path, [("delete", "")], body.encode())
        wrong = said.find("Error") if said is not None else None
        if wrong is not None:
            raise S3Error("%s/%s: %s" % (bucket, wrong.findtext("Key"), wrong.findtext("Code")))
        gone += len(found)
        say(objects=gone)
    _, page = s3.ask("GET", path, [("uploads", "")])
    for one in page.findall("Upload") if page is not None else ():
        s3.ask("DELETE", path + "/" + one.findtext("Key"), [("uploadId", one.findtext("UploadId"))])
    s3.ask("DELETE", path)


def say(**what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main():
    order = json.loads(sys.stdin.readline())
    s3 = SignedRequests(order)
    for bucket in order["buckets"]:
        try:
            remove(s3, bucket)
            say(removed=bucket)
        except S3Error as error:
            say(failed=str(error))
    say(end=True)


if __name__ == "__main__":
    main()
