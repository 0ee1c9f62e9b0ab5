"""A headless Chromium for tests of pages, controlled through the two pipes of its DevTools protocol."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time

import train_runs

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program():
    """Returns the path of an installed Chromium, or None."""
    return next((found for found in map(shutil.which, PROGRAMS) if found), None)


class Browser:
    """One page of one browser. `errors` has the exceptions and logged errors of its scripts."""

    def __init__(self, width=1400, height=1000, dark=False):
        self.folder = tempfile.TemporaryDirectory(prefix="headroom-browser-", ignore_cleanup_errors=True)
        there, reads = os.pipe(), os.pipe()  # the browser's input and output
        kept = {there[0]: 3, reads[1]: 4}

        def place():
            copies = [(os.dup(source), target) for source, target in kept.items()]
            for copy, target in copies:
                os.dup2(copy, target)

        command = [program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}",
                   "about:blank"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        close_fds=False, preexec_fn=place)
        os.close(there[0])
        os.close(reads[1])
        self.out, self.into = there[1], reads[0]
        self.pending, self.events, self.errors, self.last = b"", [], [], 0
        self.session = None
        target = next(one for one in self.send("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.show(width, height, dark)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session = None
        try:
            self.send("Browser.close")
            self.process.wait(10)
        except (EOFError, OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.folder.cleanup()

    def receive(self, deadline):
        while b"\0" not in self.pending:
            ready, _, _ = select.select([self.into], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.into, 1 << 20)
            if not more:
                raise EOFError("the browser has gone")
            self.pending += more
        message, self.pending = self.pending.split(b"\0", 1)
        return json.loads(message)

    def hear(self, message):
        method, given = message.get("method"), message.get("params", {})
        self.events.append(message)
        if method == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and given["entry"]["level"] == "error":
            self.errors.append(given["entry"]["text"])

    def send(self, method, **given):
        self.last += 1
        message = {"id": self.last, "method": method, "params": given}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + train_runs.PATIENCE
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.hear(answer)

    def show(self, width, height, dark=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, address):
        """Opens a URL and waits until the page is loaded."""
        self.events.clear()
        self.send("Page.navigate", url=address)
        deadline = time.monotonic() + train_runs.PATIENCE
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.hear(self.receive(deadline))

    def evaluate(self, expression):
        """Returns the value of an expression; promises are awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def move(self, x, y):
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x, y):
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, **({"text": key} if len(key) == 1 and kind == "keyDown" else {}))
