"""A real Chromium, driven over the DevTools protocol."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


class Browser:
    """A headless browser with pages to open; closes with its block."""

    def __init__(self, profile: Path) -> None:
        self._process = subprocess.Popen(
            [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-quic", "--remote-debugging-port=0", f"--user-data-dir={profile}",
             "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}
        self._number = 0
        self._stack = ExitStack()
        self._connection = self._connect(profile / "DevToolsActivePort")

    def _connect(self, file: Path) -> Any:
        from websockets.sync.client import connect

        until = time.monotonic() + 60
        while not (file.exists() and len(lines := file.read_text().splitlines()) == 2):
            assert time.monotonic() < until, "chromium did not start"
            time.sleep(0.02)
        address = f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        return self._stack.enter_context(connect(address, max_size=None, compression=None))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.call("Browser.close")
        self._stack.close()
        self._process.wait(30)

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer; pages receive their messages meanwhile."""
        self._number += 1
        wanted = self._number
        message = {"id": wanted, "method": method, "params": parameters}
        self._connection.send(json.dumps(message | ({"sessionId": session} if session else {})))
        until = time.monotonic() + 60
        while wanted not in self._answers:
            self.listen(until - time.monotonic())
        answer = self._answers.pop(wanted)
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def listen(self, seconds: float) -> None:
        """Take the next message."""
        message = json.loads(self._connection.recv(timeout=max(seconds, 0.001)))
        if "id" in message:
            self._answers[message["id"]] = message
        elif page := self._pages.get(message.get("sessionId", "")):
            page.hear(message["method"], message["params"])

    def open(self, address: str, width: int = 1200, height: int = 900, dark: bool = False) -> Page:
        """Open a new page at this address."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, target, session)
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable", session)
        page.look(width, height, dark)
        self.call("Page.navigate", session, url=address)
        page.until("location.href !== 'about:blank' && document.readyState === 'complete'")
        return page


class Page:
    """One tab."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser, self._target, self._session = browser, target, session
        self.complaints: list[str] = []
        """Errors on the console, uncaught exceptions, failed requests."""

    def hear(self, method: str, about: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(about["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
            self.complaints.append(json.dumps(about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(json.dumps(about["entry"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def look(self, width: int, height: int, dark: bool = False) -> None:
        """The size of the window and the theme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, seconds: float = 60) -> Any:
        """Wait until an expression is true; its value."""
        end = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < end, f"never: {script}"
            time.sleep(0.03)
        return found

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def drag(self, selector: str, *places: tuple[float, float]) -> None:
        """Press the mouse and draw through places in an element, as fractions of its size."""
        box = self.run(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            f" return [b.left, b.top, b.width, b.height]; }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        points = [(box[0] + u * box[2], box[1] + v * box[3]) for u, v in places]
        kinds = ["mousePressed", *["mouseMoved"] * (len(points) - 1), "mouseReleased"]
        for kind, (x, y) in zip(kinds, [*points, points[-1]], strict=True):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1,
                clickCount=1,
            )  # fmt: skip

    def press(self, key: str) -> None:
        """A key, by its name."""
        code = {" ": 32, "ArrowRight": 39, "ArrowLeft": 37, "Enter": 13}.get(key, 0)
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code,
                **(text if kind == "keyDown" else {}),
            )  # fmt: skip

    def picture(self, file: Path, whole: bool = True) -> None:
        """A screenshot, of the whole page or of the window."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        file.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
