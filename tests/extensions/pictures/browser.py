"""A headless chromium, spoken to over its debugging pipe: what a page does under real keys, colours and widths."""

import base64
import json
import os
import re
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_S = 60


def executable():
    """None if the machine has no chromium."""
    return next((which for name in NAMES if (which := shutil.which(name))), None)


class Browser:
    """One page at a time. `problems` holds what its console and its content policy complained about."""

    def __init__(self, folder):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        options = (
            "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--disable-extensions", "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank",
        )  # fmt: skip
        command = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", executable(), *options],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._number, self._buffer, self._session, self.problems, self._loaded = 0, b"", None, [], False
        (target,) = [one for one in self("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self._session = self("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self(f"{domain}.enable")

    def close(self):
        self._process.terminate()
        self._process.wait(WAIT_S)
        os.close(self._write)
        os.close(self._read)

    def __call__(self, method, **params):
        """Sends one command, and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (call := self._next()).get("id") != self._number:
            self._noted(call)
        assert "error" not in call, call["error"]
        return call["result"]

    def _next(self):
        end = time.monotonic() + WAIT_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(end - time.monotonic(), 0))
            assert ready, "chromium gave no answer"
            self._buffer += os.read(self._read, 1 << 20)
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _noted(self, event):
        if event["method"] in {"Runtime.exceptionThrown", "Log.entryAdded"}:
            self.problems.append(json.dumps(event["params"])[:500])
        self._loaded = self._loaded or event["method"] == "Page.loadEventFired"

    def open(self, path, place="", *, width=1280, height=900, dark=False, script=True):
        """Show a file from the start."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self("Emulation.setScriptExecutionDisabled", value=not script)
        self._go("about:blank")
        self.problems.clear()
        self._go(f"{path.as_uri()}{place}")

    def _go(self, url):
        self._loaded = False
        self("Page.navigate", url=url)
        while not self._loaded:
            self._noted(self._next())

    def js(self, expression):
        """The value of an expression in the page."""
        answer = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def key(self, name, text=""):
        """Press and release a key."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        more = {"key": name, "code": "Space" if name == " " else name, "windowsVirtualKeyCode": codes.get(name, 0)}
        text = text or {"Enter": "\r", " ": " "}.get(name, "")
        self("Input.dispatchKeyEvent", type="keyDown", **more, **({"text": text} if text else {}))
        self("Input.dispatchKeyEvent", type="keyUp", **more)

    def write(self, text):
        """Type into what has the focus."""
        self("Input.insertText", text=text)

    def screenshot(self, **options):
        """A PNG."""
        return base64.b64decode(self("Page.captureScreenshot", **options)["data"])

    def pdf(self):
        """The page as it is printed."""
        return base64.b64decode(self("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])


# --- what tests ask of pages ------------------------------------------------------------------------------------------

ROWS = "[...document.querySelectorAll('#table > tbody')].filter((body) => body.getClientRects().length)"


def keys(browser):
    """The rows that are seen."""
    return browser.js(f"{ROWS}.map((body) => body.dataset.key)")


def list_colours(browser):
    """Every text with its colour and that of its ground."""
    return browser.js(
        """[...document.querySelectorAll('body *')].filter((one) => one.getClientRects().length &&
            [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim())).map((one) => {
          let under = one;
          const ground = () => getComputedStyle(under).backgroundColor;
          while (under.parentElement && /, 0\\)|transparent/.test(ground())) under = under.parentElement;
          const style = getComputedStyle(one);
          const ink = one.ownerSVGElement ? style.fill : style.color;
          return [one.tagName + '.' + one.getAttribute('class'), ink, ground()];
        })"""
    )


def contrast(first, second):
    """Of two colours, WCAG 2.2."""

    def luminance(colour):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)
