"""Looks for buckets, and removes buckets with all that is in them, through S3, on a client node: for runs without
Ceph's own commands.

Standard library only (Python 3.6 and newer). One order comes on standard input, a line of JSON: {"url", "region",
"keys": [access, secret, token or ""], "verify", "authority": a PEM file or null, "lookup": "path" or "dns",
"look_for": [name...], "remove": [name...]}. Lines go back: {"missing": name} of a bucket that was looked for,
{"removed": name}, {"failed": text}, {"objects": so many are gone} now and then, and {"end": true}.
"""

import base64
import hashlib
import hmac
import http.client
import itertools
import json
import re
import signal
import ssl
import sys
import time
import xml.etree.ElementTree as ElementTree
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

#: seconds for a request and its answer, whatever comes meanwhile
TIMEOUT = 120.0
#: bytes of an answer: 1000 keys of 1024 bytes, each written as &amp; or the like, and what is said of them
LARGEST = 16 << 20
#: keys of one request, as S3 allows
MOST = 1000
#: so often a request is sent again that had no answer, or one that blames the server; seconds between
TRIES, PAUSE = 5, 2.0
#: S3's codes for a bucket and for an unfinished upload that are not there
NO_BUCKET, NO_UPLOAD = "NoSuchBucket", "NoSuchUpload"
#: what S3's codes look like
CODE = re.compile(r"[A-Za-z0-9]{1,64}\Z")


class S3Error(Exception):
    """S3 said no; the text is for the user."""

    def __init__(self, text, status=0):
        super().__init__(text)
        self.status = status


class Late(OSError):
    """An answer that has not ended in time."""


def give_up(*_):
    raise Late("no end of the answer in %.0f s" % TIMEOUT)


class SignedRequests:
    """Requests to one endpoint; with `lookup: dns` about the bucket whose name is then part of the host's."""

    def __init__(self, order, bucket=""):
        parts = urlsplit(order["url"])
        self.host, self.region, self.keys = parts.netloc, order["region"], order["keys"]
        self.has_bucket = bool(bucket) and order["lookup"] == "dns"
        if self.has_bucket:
            self.host = bucket + "." + self.host
        self.context = None
        if parts.scheme == "https":
            self.context = ssl.create_default_context(cafile=order["authority"])
            if not order["verify"]:
                self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.connection = None

    def ask(self, method, path, query=(), body=b"", wanted="", gone=(NO_BUCKET,)):
        """Return the status and the root of the answer's XML, without namespaces. 404: the server has no such thing.

        Raises S3Error for an answer of another kind than `wanted`, the name of its root, and for all other statuses.
        404 is an answer only with one of the codes `gone` of S3: a proxy that has no gateway says 404, too.
        """
        path = quote(path, safe="/-_.~")
        words = "&".join(quote(k, safe="-_.~") + "=" + quote(v, safe="-_.~") for k, v in sorted(query))
        for left in reversed(range(TRIES)):
            try:
                status, text = self.once(method, path, words, body)
            except (OSError, http.client.HTTPException) as error:
                status, text, why = 0, b"", str(error)[:200]
                self.close()
            root = parsed(text) if status == 404 or (status == 200 and wanted) else None
            if status == 404:
                right = root is not None and root.tag == "Error" and root.findtext("Code") in gone
            elif wanted:
                right = root is not None and root.tag == wanted
            else:
                right = status == 204 or (status == 200 and not text.strip())
            if right:
                return status, root
            if not left or (0 < status < 500 and status != 404):
                why = "%d, %s" % (status, error_in(text)) if status else "no answer: " + why
                raise S3Error("%s %s: %s" % (method, path, why), status)
            time.sleep(PAUSE)

    def path_of(self, bucket, key=""):
        """Return the path of a bucket, or of an object in it."""
        return ("" if self.has_bucket else "/" + bucket) + ("/" + key if key or self.has_bucket else "")

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def once(self, method, path, query, body):
        if self.connection is None:
            kind = http.client.HTTPSConnection if self.context else http.client.HTTPConnection
            tls_options = {"context": self.context} if self.context else {}
            self.connection = kind(self.host, timeout=TIMEOUT, **tls_options)
        signal.setitimer(signal.ITIMER_REAL, TIMEOUT)  # the timeout of a connection is that of a byte
        try:
            self.connection.request(method, path + ("?" + query if query else ""), body or None,
                                    self.headers(method, path, query, body))
            answer = self.connection.getresponse()
            text = answer.read(LARGEST + 1)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if len(text) > LARGEST:
            self.close()
            raise S3Error("%s %s: an answer of more than %d bytes" % (method, path, LARGEST))
        return answer.status, text

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


def error_in(text):
    """Return the code of S3 in the body of an error, and no other text: AWS sends back the access key in it."""
    root = parsed(text)
    code = root.findtext("Code") if root is not None and root.tag == "Error" else None
    return code if code and CODE.match(code) else "%d bytes that are no error of S3" % len(text)


def parsed(text):
    """Return the root of XML without namespaces; None for what is none, or has entities of its own."""
    if not text.lstrip().startswith(b"<") or b"<!" in text:
        return None
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def pages(s3, path, query, wanted, tags):
    """Yield the first page of a listing again and again, until it is empty: whoever gets a page removes what is on it.

    Raises S3Error when the same page comes TRIES times in a row, or in turns with others: one page is remembered, which
    is twice as late each time (Brent's algorithm finds a cycle so). When only a part of that page comes again, the
    listing may lag behind the removal.
    """
    before, again = None, 0
    remembered, returned = set(), 0
    for number in itertools.count(1):
        status, root = s3.ask("GET", path, query, wanted=wanted)
        page = [e for e in root if e.tag in tags] if status != 404 else []
        if not page:
            return
        names = [[e.findtext(field) for field in ("Key", "VersionId", "UploadId")] for e in page]
        if any(name[0] is None for name in names):
            raise S3Error("%s: a listing of things without a name" % path)
        again = again + 1 if names == before else 0
        returned += names != before and remembered.issubset(map(tuple, names))
        if TRIES in (again, returned):
            raise S3Error("%s: the server still lists what it says it has removed: %s" % (path, names[0][0]))
        if again:
            time.sleep(PAUSE)
        before = names
        if number & (number - 1) == 0:
            remembered, returned = set(map(tuple, names)), 0
        yield page


def remove(s3, bucket):
    """Remove all versions, delete markers and unfinished uploads, and then the bucket."""
    path, gone = s3.path_of(bucket), 0
    listing = [("versions", ""), ("max-keys", str(MOST))]
    for page in pages(s3, path, listing, "ListVersionsResult", ("Version", "DeleteMarker")):
        texts = [
            "<Object><Key>%s</Key><VersionId>%s</VersionId></Object>"
            % (escape(element.findtext("Key")), escape(element.findtext("VersionId") or "null"))
            for element in page
        ]
        body = "<Delete><Quiet>true</Quiet>%s</Delete>" % "".join(texts)
        status, reply = s3.ask("POST", path, [("delete", "")], body.encode(), wanted="DeleteResult")
        wrong = reply.find("Error") if status != 404 else None
        if wrong is not None:
            raise S3Error("%s/%s: %s" % (bucket, wrong.findtext("Key"), wrong.findtext("Code")))
        gone += len(page)
        say(objects=gone)
    for page in pages(s3, path, [("uploads", "")], "ListMultipartUploadsResult", ("Upload",)):
        for element in page:
            upload = [("uploadId", element.findtext("UploadId") or "")]
            s3.ask("DELETE", s3.path_of(bucket, element.findtext("Key")), upload, gone=(NO_UPLOAD, NO_BUCKET))
    s3.ask("DELETE", path)
    for left in reversed(range(TRIES)):
        status, _ = s3.ask("GET", path, [("versions", ""), ("max-keys", "1")], wanted="ListVersionsResult")
        if status == 404:
            return
        if left:
            time.sleep(PAUSE)  # another gateway may not know of it yet
    raise S3Error("%s: the server still has the bucket that it says it has removed" % bucket)


def is_missing(s3, bucket):
    """Tell whether there is no such bucket."""
    try:
        return s3.ask("GET", s3.path_of(bucket), [("max-keys", "1")], wanted="ListBucketResult")[0] == 404
    except S3Error as error:
        if error.status == 403:
            return False  # it is there, but these keys may not list it
        raise


def say(**record):
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def main():
    signal.signal(signal.SIGALRM, give_up)
    order = json.loads(sys.stdin.readline())
    for bucket in order["look_for"] + order["remove"]:
        s3 = SignedRequests(order, bucket)
        try:
            if bucket in order["remove"]:
                remove(s3, bucket)
                say(removed=bucket)
            elif is_missing(s3, bucket):
                say(missing=bucket)
        except S3Error as error:
            say(failed=str(error))
        s3.close()
    say(end=True)


if __name__ == "__main__":
    main()
