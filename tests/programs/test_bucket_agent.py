"""What reads S3 in Python, against a server that lies: the agent that removes buckets, the look at the endpoints."""

from __future__ import annotations

import io
import itertools
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, cast

import pytest
from kube_tls import TlsFront

from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.plan import S3
from cbt_plugins.run import bucket_agent, endpoint_probe, endpoints

HEAD = "HTTP/1.1 200 OK\r\n"
VERSION = "<Version><Key>k%d</Key><VersionId>v</VersionId></Version>"
Answer = Callable[[str], Iterator[str]]


def whole(text: str, status: str = "200 OK") -> Iterator[str]:
    return iter([f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n{text}"])


def versions(*names: int) -> str:
    return f"<ListVersionsResult>{''.join(VERSION % name for name in names)}</ListVersionsResult>"


GONE = "<Error><Code>NoSuchBucket</Code></Error>"


def honest(line: str) -> Iterator[str]:
    if "max-keys=1&" in line:  # the look after the removal
        return whole(GONE, "404 Not Found")
    if "?versions" in line or "&versions" in line:
        return whole(versions())
    if "?uploads" in line:
        return whole("<ListMultipartUploadsResult/>")
    return whole("<DeleteResult/>") if line.startswith("POST") else iter(["HTTP/1.1 204 No Content\r\n\r\n"])


def chunks(text: str) -> Iterator[str]:
    yield HEAD + "Transfer-Encoding: chunked\r\n\r\n"
    for _ in itertools.count():
        yield f"{len(text):x}\r\n{text}\r\n"


def trickle(text: str) -> Iterator[str]:
    yield text
    while True:
        threading.Event().wait(0.05)
        yield "x"


TURNS = itertools.cycle([versions(1, 2), versions(3, 4), versions(5)])
BOMB = "<!DOCTYPE a [<!ENTITY b 'c'>]><ListVersionsResult>&b;</ListVersionsResult>"
OF_LISTINGS: Dict[str, Any] = {
    "pages in turns": (lambda: whole(next(TURNS)), "still lists what it says it has removed: k"),
    "404 of a proxy": (lambda: whole("default backend - 404", "404 Not Found"), "GET /b: 404, 21 bytes"),
    "404 of another kind": (lambda: whole(GONE.replace("Bucket", "Key"), "404 Not Found"), "GET /b: 404, NoSuchKey"),
    "the same page for ever": (lambda: whole(versions(1, 2)), "still lists what it says it has removed: k1"),
    "no end": (lambda: chunks("<Version>" + "x" * 65536), "more than 1048576 bytes"),
    "an error, as 200": (lambda: whole("<Error><Code>InternalError</Code></Error>"), "200, InternalError"),
    "another thing": (lambda: whole("<html><body>welcome</body></html>"), "200, 33 bytes that are no error of S3"),
    "nothing": (lambda: whole(""), "GET /b: 200"),
    "no content": (lambda: whole("", "204 No Content"), "GET /b: 204"),
    "a part": (lambda: whole(versions(), "206 Partial Content"), "GET /b: 206"),
    "a redirect": (lambda: whole("", "307 Temporary Redirect"), "GET /b: 307"),
    "no XML": (lambda: whole("<ListVersionsResult><Version>"), "200, 29 bytes that are no"),
    "entities": (lambda: whole(BOMB), "GET /b: 200, 74 bytes that are no"),
    "no names": (lambda: whole("<ListVersionsResult><Version/></ListVersionsResult>"), "without a name"),
    "a trickling body": (lambda: trickle(HEAD + "Content-Length: 9999999\r\n\r\n<"), "no end of the answer"),
    "a trickling head": (lambda: trickle(HEAD + "X: "), "no end of the answer"),
    "interim answers": (lambda: itertools.repeat("HTTP/1.1 100 Continue\r\n\r\n"), "no end of the answer"),
    "a short body": (lambda: iter([HEAD + "Connection: close\r\nContent-Length: 99\r\n\r\n<List", ""]), "200, 5 bytes"),
}
OF_REMOVALS: Dict[str, Any] = {
    "an error, as 200": (lambda: whole("<Error><Code>SlowDown</Code></Error>"), "200, SlowDown"),
    "nothing": (lambda: whole(""), "POST /b: 200"),
    "one of them": (
        lambda: whole("<DeleteResult><Error><Key>k1</Key><Code>No</Code></Error></DeleteResult>"),
        "b/k1: No",
    ),
}
OF_THE_BUCKET: Dict[str, Any] = {
    "an error, as 200": (lambda: whole("<Error><Code>BucketNotEmpty</Code></Error>"), "200, BucketNotEmpty"),
    "a page": (lambda: whole("<p>welcome"), "200, 10 bytes that are no"),
    "404 of a proxy": (lambda: whole("default backend - 404", "404 Not Found"), "DELETE /b: 404, 21 bytes that are no"),
}


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], bucket_agent.SignedRequests]]:
    """Makes a client of a server whose answers a test writes."""
    monkeypatch.setattr(bucket_agent, "TIMEOUT", 0.5)
    monkeypatch.setattr(bucket_agent, "LARGEST", 1 << 20)
    monkeypatch.setattr(bucket_agent, "TRIES", 2)
    monkeypatch.setattr(bucket_agent, "PAUSE", 0.01)
    before = signal.signal(signal.SIGALRM, bucket_agent.give_up)
    listener = socket.create_server(("127.0.0.1", 0))
    links: List[socket.socket] = []
    clients: List[bucket_agent.SignedRequests] = []

    def talk(link: socket.socket, answer: Answer) -> None:
        try:
            while True:
                text = b""
                while b"\r\n\r\n" not in text:
                    piece = link.recv(65536)
                    if not piece:
                        return
                    text += piece
                for part in answer(text.decode().split("\r\n")[0]):
                    if not part:
                        return
                    link.sendall(part.encode())
        except OSError:
            pass
        finally:
            link.close()

    def serve(answer: Answer) -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            links.append(link)
            threading.Thread(target=talk, args=(link, answer), daemon=True).start()

    def start(answer: Answer) -> bucket_agent.SignedRequests:
        threading.Thread(target=serve, args=(answer,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        order = {"url": url, "region": "r", "keys": ["a", "s", ""], "authority": None}
        clients.append(bucket_agent.SignedRequests(order))
        return clients[-1]

    yield start
    for client in clients:
        client.close()
    listener.close()
    for link in links:
        link.close()
    signal.signal(signal.SIGALRM, before)


def test_an_honest_server_is_believed(
    liar: Callable[[Answer], bucket_agent.SignedRequests], capsys: pytest.CaptureFixture[str]
) -> None:
    left = [versions(1, 2), versions(3)]
    lines: List[str] = []

    def answer(line: str) -> Iterator[str]:
        lines.append(line.split("?")[0])
        return whole(left.pop(0)) if "versions=" in line and left else honest(line)

    bucket_agent.remove(liar(answer), "b")
    assert capsys.readouterr().out.splitlines() == ['{"objects": 2}', '{"objects": 3}']
    assert lines[-2].startswith("DELETE /b ") and lines[-1] == "GET /b"


@pytest.mark.parametrize(
    "pages",
    [
        [(n, n + 1) for n in range(1, 20)],  # one removed key of each page once more
        [range(n, n + 9) for n in range(1, 20)],  # the removal goes on behind the answer
        [(1,), (1, 2), (1, 2, 3), (4,), (5,)],  # the whole page once more, twice
    ],
)
def test_a_listing_that_lags_is_waited_for(
    liar: Callable[[Answer], bucket_agent.SignedRequests], pages: Sequence[Sequence[int]]
) -> None:
    left = [versions(*page) for page in pages]
    bucket_agent.remove(liar(lambda line: whole(left.pop(0)) if "versions=" in line and left else honest(line)), "b")
    assert left == []


def test_a_bucket_that_is_still_there_was_not_removed(liar: Callable[[Answer], Any]) -> None:
    with pytest.raises(bucket_agent.S3Error, match="b: the server still has the bucket that it says it has removed"):
        bucket_agent.remove(liar(lambda line: whole(versions()) if "max-keys=1&" in line else honest(line)), "b")


@pytest.mark.parametrize(
    ("status", "text", "missing"),
    [
        ("200 OK", "<ListBucketResult/>", False),
        ("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>", False),
        ("404 Not Found", GONE, True),
        ("404 Not Found", "default backend - 404", None),
        ("301 Moved Permanently", "<Error><Code>PermanentRedirect</Code></Error>", None),
    ],
)
def test_a_bucket_is_missing_only_by_the_word_of_s3(
    liar: Callable[[Answer], Any], status: str, text: str, missing: Optional[bool]
) -> None:
    client = liar(lambda line: whole(text, status))
    if missing is None:
        with pytest.raises(bucket_agent.S3Error, match=f"GET /b: {status[:3]}"):
            bucket_agent.is_missing(client, "b")
    else:
        assert bucket_agent.is_missing(client, "b") is missing


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<Error><Code>InvalidAccessKeyId</Code><AWSAccessKeyId>AKIA1</AWSAccessKeyId></Error>", "InvalidAccessKeyId"),
        ("<Error><Code>key AKIA1 of AWS4-HMAC</Code></Error>", "50 bytes that are no error of S3"),
        ("the gateway of this proxy knows no AKIA1", "40 bytes that are no error of S3"),
    ],
)
def test_no_error_shows_what_a_server_sends_back(liar: Callable[[Answer], Any], body: str, text: str) -> None:
    """It comes into the log and the archive, and AWS answers with the access key."""
    with pytest.raises(bucket_agent.S3Error) as error:
        bucket_agent.remove(liar(lambda line: whole(body, "403 Forbidden")), "b")
    assert str(error.value) == f"GET /b: 403, {text}"


@pytest.mark.parametrize("name", OF_LISTINGS)
def test_a_listing_that_lies_ends_with_an_error(liar: Callable[[Answer], Any], name: str) -> None:
    lie, text = OF_LISTINGS[name]
    with pytest.raises(bucket_agent.S3Error) as error:
        bucket_agent.remove(liar(lambda line: lie() if "versions=" in line else honest(line)), "b")
    assert text in str(error.value)


@pytest.mark.parametrize("name", OF_REMOVALS)
def test_a_removal_that_lies_ends_with_an_error(liar: Callable[[Answer], Any], name: str) -> None:
    lie, text = OF_REMOVALS[name]

    def answer(line: str) -> Iterator[str]:
        return lie() if line.startswith("POST") else whole(versions(1)) if "versions=" in line else honest(line)

    with pytest.raises(bucket_agent.S3Error) as error:
        bucket_agent.remove(liar(answer), "b")
    assert text in str(error.value)


@pytest.mark.parametrize("name", OF_THE_BUCKET)
def test_a_bucket_that_is_not_removed_is_an_error(liar: Callable[[Answer], Any], name: str) -> None:
    lie, text = OF_THE_BUCKET[name]
    with pytest.raises(bucket_agent.S3Error) as error:
        bucket_agent.remove(liar(lambda line: lie() if line.startswith("DELETE /b ") else honest(line)), "b")
    assert text in str(error.value)


def test_what_an_endpoint_is_although_its_body_has_no_end(liar: Callable[[Answer], Any]) -> None:
    client = liar(lambda line: chunks("x" * 65536))
    urls = [f"http://{client.host}", "http://127.0.0.1:1"]
    order = {"urls": urls, "region": "r", "verify": True, "authority": "", "keys": [["user u", "AK", "SECRET", ""]]}
    argv = [sys.executable, *endpoints.PROBE.words()]
    text = f"{endpoints.PROBE.text}{json.dumps(order)}\n"
    done = subprocess.run(argv, input=text, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    errors = {line["url"]: line["error"] for line in map(json.loads, done.stdout.splitlines())}
    assert errors[urls[0]].startswith("the endpoint replies, but is not an S3 server") and "SECRET" not in done.stdout
    assert errors[urls[1]] == "connection refused: nothing listens on this port"


def code(name: str) -> Answer:
    return lambda line: whole(f"<Error><Code>{name}</Code></Error>", "403 Forbidden")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (code("InvalidAccessKeyId"), "the keys of user u are wrong: the endpoint does not know this access key"),
        (code("SignatureDoesNotMatch"), "the secret key does not belong to the access key, or the region is wrong"),
        (code("AccessDenied"), ""),
        (lambda line: whole("<ListAllMyBucketsResult/>"), ""),
        (lambda line: whole("<html>hello</html>"), "the endpoint replies, but is not an S3 server (status 200"),
    ],
)
def test_wrong_keys_are_told_from_other_servers(answer: Answer, words: str, liar: Callable[[Answer], Any]) -> None:
    client = liar(answer)
    order = {"region": "r", "verify": True, "authority": ""}
    error = endpoint_probe.error_of(order, f"http://{client.host}", "user u", ["AK", "SECRET", ""])
    assert words in error if words else error == ""


@pytest.mark.parametrize(
    ("token", "codes", "words"),
    [
        ("T", ["AccessDenied", "AccessDenied"], "keys of user u are wrong: the session token is wrong, or has expired"),
        ("T", ["InvalidArgument", "InvalidArgument"], "keys of user u are wrong: the session token is wrong, or has"),
        ("T", ["InvalidToken"], "keys of user u are wrong: the session token is wrong (InvalidToken)"),
        ("T", ["AccessDenied", "SignatureDoesNotMatch"], ""),
        ("", ["AccessDenied"], ""),
    ],
)
def test_a_wrong_token_is_told_from_a_user_without_rights(
    liar: Callable[[Answer], Any], token: str, codes: List[str], words: str
) -> None:
    """RGW has one code for both; its answer to a wrong secret key shows whether it takes the token."""
    left = list(codes)
    client = liar(lambda line: code(left.pop(0))(line))
    order = {"region": "r", "verify": True, "authority": ""}
    error = endpoint_probe.error_of(order, f"http://{client.host}", "user u", ["AK", "SECRET", token])
    assert left == [] and (words in error if words else error == "")


def test_https_on_a_port_without_tls(liar: Callable[[Answer], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_probe, "TIMEOUT", 0.5)
    order = {"region": "r", "verify": True, "authority": ""}
    https = endpoint_probe.error_of(order, f"https://{liar(code('AccessDenied')).host}", "user u", ["AK", "SK", ""])
    assert https == "no TLS on this port: write http:// instead of https://"


def test_http_on_a_port_of_another_program(liar: Callable[[Answer], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_probe, "TIMEOUT", 0.5)
    order = {"region": "r", "verify": True, "authority": ""}
    client = liar(lambda line: iter(["SSH-2.0-OpenSSH_9.2p1 \x1b[31mDebian\r\n"]))
    error = endpoint_probe.error_of(order, f"http://{client.host}", "user u", None)
    assert error == "is not an HTTP server: it sends 'SSH-2.0-OpenSSH_9.2p1  [31mDebian'"


class ThisNode:
    """Stands where `Remote` does: runs the probe here, with a login that prints `greeting`."""

    greeting = ""

    def feed(self, nodes: Sequence[str], command: str, data: bytes, timeout: float) -> Dict[str, Result]:
        argv = [sys.executable, *endpoints.PROBE.words()]
        done = subprocess.run(argv, input=data, stdout=subprocess.PIPE, check=True, timeout=120)
        return {node: Result(self.greeting + done.stdout.decode(), "", 0) for node in nodes}


def errors_of(s3: S3, greeting: str = "") -> List[str]:
    node = ThisNode()
    node.greeting = greeting
    return endpoints.errors_of_endpoints(cast(Any, node), ["c1"], s3, endpoints.authority_of(s3), {})


def test_advice_on_certificates_is_for_their_error(liar: Callable[[Answer], Any], tmp_path: Path) -> None:
    """TLS of a certificate that has signed itself, of the address only."""
    front = TlsFront(int(liar(code("AccessDenied")).host.rpartition(":")[2]), tmp_path)
    try:
        by_name = front.url.replace("127.0.0.1", "localhost")
        untrusted = errors_of(S3((front.url,)))
        misnamed = errors_of(S3((by_name,), ca_file=str(front.certificate)))
        assert errors_of(S3((front.url,), ca_file=str(front.certificate))) == []
    finally:
        front.close()
    assert len(untrusted) == len(misnamed) == 2 and "CERTIFICATE_VERIFY_FAILED" in misnamed[0]
    assert endpoints.is_untrusted(untrusted) and untrusted[1].startswith("certificates are not trusted: set s3: {ca_f")
    assert not endpoints.is_untrusted(misnamed) and misnamed[1].startswith("certificates have other names than their")


def test_a_bundle_of_all_authorities_is_refused(tmp_path: Path) -> None:
    bundle = tmp_path / "ca-certificates.crt"
    bundle.write_text("x" * 70_000)
    with pytest.raises(CephError, match="larger than 64 KiB: name a file with only the endpoints' authority"):
        endpoints.authority_of(S3(("https://a",), ca_file=str(bundle)))


@pytest.mark.parametrize("greeting", ["Welcome!", "42", "[]", "null", "{}"])
def test_a_login_that_prints_is_an_error(greeting: str) -> None:
    (error,) = errors_of(S3(("http://127.0.0.1:1",)), f"{greeting}\n")
    assert error.startswith(f"c1: could not ask the endpoints: its login prints {greeting!r}: logins without")


def test_an_error_shows_no_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """http.client refuses a header with a newline, and its error shows the header."""
    order: Dict[str, Any] = {"urls": ["http://127.0.0.1:1"], "region": "r", "verify": True, "authority": ""}
    order["keys"] = [["user u", "AK\nIA1", "SECRET", ""]]
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(order)))
    endpoint_probe.main()
    assert json.loads(capsys.readouterr().out)["error"] == "error in the probe: ValueError"
