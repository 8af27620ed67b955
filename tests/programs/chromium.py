"""Chromium without a window, driven through the pipe of its DevTools: what a page says, loads, costs and looks like.

python tests/programs/chromium.py PAGE PREFIX    makes PREFIX.png, PREFIX-420.png, PREFIX-dark.png and PREFIX-print.png

Debian: apt-get install chromium poppler-utils
"""

from __future__ import annotations

import base64
import fcntl
import io
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, NamedTuple, Optional, Type

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-extensions --hide-scrollbars --remote-debugging-pipe"
)
_TIMEOUT = 60.0
_COMPLAINTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
_TIMES = """new Promise((done) => requestAnimationFrame(() => setTimeout(() => {
  const [page] = performance.getEntriesByType("navigation"), now = performance.now();
  const [paint] = performance.getEntriesByName("first-contentful-paint");
  done(JSON.stringify({ load: page.loadEventEnd, paint: paint ? paint.startTime : null, frame: now }));
})))"""


class Times(NamedTuple):
    """Milliseconds since the page was asked for."""

    load: float  # the load event has ended: its scripts have run
    paint: Optional[float]  # the first text or picture was painted
    frame: float  # the first frame after the scripts was made


class Browser:
    """A browser with one page at a time: `with Browser(profile) as browser`."""

    def __init__(self, profile: Path, width: int = 1300, height: int = 900) -> None:
        assert CHROMIUM
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._in, self._out = ours_in, ours_out
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs_in, theirs_out)]

        def wire() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        place = (f"--user-data-dir={profile}", f"--window-size={width},{height}")
        command = [CHROMIUM, *_FLAGS.split(), *place, "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdout=quiet, stderr=quiet, preexec_fn=wire, pass_fds=(3, 4))
        for fd in (theirs_in, theirs_out, *high):
            os.close(fd)
        self._buffer = b""
        self._number = 0
        self._session = ""
        self._width, self._height = width, height
        self.events: List[Dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._session = ""
        try:
            self.call("Browser.close")
        except (OSError, TimeoutError):
            self._process.kill()
        self._process.wait(_TIMEOUT)
        os.close(self._in)
        os.close(self._out)

    def open(self, url: str, width: Optional[int] = None, **media: str) -> Times:
        """A new page; `media` are its media features, as prefers_color_scheme="dark"."""
        self._session, self.events = "", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.call("Emulation.setEmulatedMedia", features=features)
        size = {"width": width or self._width, "height": self._height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.events.clear()
        self.call("Page.navigate", url=url)
        self._wait(lambda: any(event["method"] == "Page.loadEventFired" for event in self.events))
        return Times(**json.loads(self.evaluate(_TIMES)))

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, awaited when it is a promise."""
        made = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in made, made
        return made["result"].get("value")

    def complaints(self) -> List[Dict[str, Any]]:
        """What the page wrote to the console, and what the browser had to say of it."""
        return [event["params"] for event in self.events if event["method"] in _COMPLAINTS]

    def requests(self) -> List[str]:
        """The addresses of everything that the page asked for, itself first."""
        sent = (event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [its["request"]["url"] for its in sent]

    def drag(self, x: float, y: float, to: float) -> None:
        """Press the left button at (x, y) of the page, move it to `to` and let it go."""
        about: Dict[str, Any] = {"button": "left", "clickCount": 1, "y": y}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, **about)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=to, y=y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=to, **about)

    def picture(self, width: int, height: int) -> bytes:
        """PNG of the upper part of the page."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        made = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(made["data"])

    def paper(self) -> bytes:
        """PDF of the whole page, A4."""
        made = self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
        return base64.b64decode(made["data"])

    def call(self, method: str, **params: Any) -> Dict[str, Any]:
        self._number += 1
        number = self._number
        message: Dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        answer: List[Dict[str, Any]] = []
        self._wait(lambda: bool(answer), number, answer)
        assert "error" not in answer[0], (method, answer[0]["error"])
        result: Dict[str, Any] = answer[0]["result"]
        return result

    def _wait(self, over: Any, number: int = 0, answer: Optional[List[Dict[str, Any]]] = None) -> None:
        end = time.monotonic() + _TIMEOUT
        while not over():
            while b"\0" in self._buffer:
                text, self._buffer = self._buffer.split(b"\0", 1)
                message = json.loads(text)
                if "id" not in message:
                    self.events.append(message)
                elif answer is not None and message["id"] == number:
                    answer.append(message)
            if over():
                return
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise OSError("the browser has ended")
            self._buffer += data


#: name of a picture -> width and height in pixels, and the media features of the page
_PICTURES = {
    "": (1400, 1600, {"prefers_color_scheme": "light"}),
    "-420": (420, 1500, {"prefers_color_scheme": "light"}),
    "-dark": (1400, 1600, {"prefers_color_scheme": "dark"}),
}


def pictures(page: Path, prefix: str) -> None:
    """Write the upper part of a page as PNG: wide, narrow and dark; and its first two sheets of paper (pdftoppm)."""
    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder)) as browser:
        for name, (width, height, media) in _PICTURES.items():
            browser.open(page.resolve().as_uri(), width=width, **media)
            _write(f"{prefix}{name}.png", browser.picture(width, height))
        if not shutil.which("pdftoppm"):
            print(f"no {prefix}-print.png: pdftoppm is missing (package poppler-utils)", file=sys.stderr)
            return
        sheets = []
        for number in ("1", "2"):
            command = ["pdftoppm", "-r", "75", "-png", "-f", number, "-l", number, "-"]
            sheets.append(subprocess.run(command, input=browser.paper(), stdout=subprocess.PIPE, check=True).stdout)
    _write(f"{prefix}-print.png", *sheets)


def _write(path: str, *parts: bytes) -> None:
    """Write pictures side by side as one of 256 colours."""
    from PIL import Image

    images = [Image.open(io.BytesIO(part)).convert("RGB") for part in parts]
    whole = Image.new("RGB", (sum(its.width for its in images), max(its.height for its in images)))
    for i, image in enumerate(images):
        whole.paste(image, (sum(its.width for its in images[:i]), 0))
    whole.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    pictures(Path(sys.argv[1]), sys.argv[2])
