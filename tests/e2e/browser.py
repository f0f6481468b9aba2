"""A headless Chromium for tests of pages, driven by the Chrome DevTools Protocol over its pipe: no library is needed.

    with Browser() as b:
        b.open("report.html")
        b.run("document.title")

Errors of a page, and what it writes to the console as an error, are in b.errors."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path


LIMIT_S = 120  # for an answer of the browser, on machines with other work


def find():
    """path of a Chromium, or None"""
    return next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


def starts():
    """Is there a Chromium that starts here?  It does not in every container."""
    try:
        with Browser() as b:
            return b.run("1 + 1") == 2
    except (RuntimeError, OSError, TypeError) as e:
        print(e)
        return False


class Browser:
    def __init__(self, width=1400, height=900, dark=False):
        self.folder = tempfile.mkdtemp()
        to_read, self.to = os.pipe()
        self.source, from_write = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--remote-debugging-pipe", f"--user-data-dir={self.folder}", f"--window-size={width},{height}",
                 *(["--force-dark-mode"] if dark else []), "about:blank"]
        # the protocol's pipe is descriptors 3 and 4
        self.process = subprocess.Popen(["sh", "-c", f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}', find(), *flags],
                                        pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self.folder})
        os.close(to_read)
        os.close(from_write)
        self.pending, self.number, self.errors, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        if dark:
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        os.close(self.to)
        os.close(self.source)
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self):
        while b"\0" not in self.pending:
            ready, _, _ = select.select([self.source], [], [], LIMIT_S)
            more = os.read(self.source, 1 << 20) if ready else b""
            if not more:
                raise RuntimeError("the browser has ended" if ready else f"the browser says nothing for {LIMIT_S} s")
            self.pending += more
        one, self.pending = self.pending.split(b"\0", 1)
        message = json.loads(one)
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.errors.append(message["params"]["entry"]["text"])
        if message.get("method") == "Runtime.consoleAPICalled" and message["params"]["type"] == "error":
            self.errors.append(str([a.get("value", a.get("description")) for a in message["params"]["args"]]))
        return message

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def open(self, path, ready="window.report", limit=60):
        """Opens a file and waits until `ready` is true; returns the seconds that took."""
        began = time.time()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while not self.run(f"!!({ready})"):
            if time.time() > began + limit:
                raise RuntimeError(f"{path}: not ready after {limit} s: {self.errors}")
            time.sleep(0.05)
        return time.time() - began

    def run(self, script):
        """the value of an expression in the page, awaited if it is a promise"""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", script))
        return result["result"].get("value")

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def wheel(self, x, y, by):
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=by)

    def key(self, key, text=None):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path, whole=True):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        Path(path).write_bytes(base64.b64decode(data))
