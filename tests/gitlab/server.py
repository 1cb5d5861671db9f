"""A small HTTP server that stands in for GitLab's or GitHub's interface.

Faults are planned beforehand: `server.plan("POST /notes", Fault(status=503))` befalls the next call that fits.
"""

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Fault:
    """What becomes of a call in the place of its answer."""

    status: int = 200
    headers: dict = field(default_factory=dict)
    body: bytes = b'{"message": "planned"}'
    hang: bool = False
    """no answer at all"""
    cut: bool = False
    """the connection ends in the middle of the answer"""
    done: bool = False
    """the call is done all the same"""


@dataclass(frozen=True)
class Call:
    """A request as it arrived."""

    verb: str
    path: str
    query: dict
    headers: dict
    body: bytes


class Server:
    """The server in its threads, until `close`. What it answers is a subclass's matter."""

    USER, LIST, CREATE, UPDATE = "", "", "", ""
    """The calls that a note needs, as `plan` takes them."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.calls: list[Call] = []
        self.notes: list[dict] = []
        self.faults: list[tuple[str, str, Fault]] = []
        self.per_page_limit = 100
        self.closing = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def plan(self, what: str, *faults: Fault) -> None:
        """what: verb and the end of the path, such as "POST /notes"; one fault a call."""
        verb, ending = what.split()
        self.faults += [(verb, ending, fault) for fault in faults]

    def fault(self, call: Call) -> Fault | None:
        for planned in self.faults:
            if planned[0] == call.verb and call.path.endswith(planned[1]):
                self.faults.remove(planned)
                return planned[2]
        return None

    def count(self, verb: str, ending: str) -> int:
        return sum(call.verb == verb and call.path.endswith(ending) for call in self.calls)

    def answer(self, call: Call) -> tuple[int, dict, object]:
        raise NotImplementedError

    def _list(self, call: Call) -> tuple[int, dict, object]:
        size = min(int(call.query.get("per_page", ["20"])[0]), self.per_page_limit)
        page = int(call.query.get("page", ["1"])[0])
        return 200, {}, self.notes[(page - 1) * size : page * size]


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            call = Call(self.command, parts.path, parse_qs(parts.query), headers, body)
            server.calls.append(call)
            fault = server.fault(call)
            if fault is None or fault.done:
                status, sent, sent_body = server.answer(call)
                answer = status, sent, json.dumps(sent_body).encode()
            if fault is not None:
                answer = fault.status, fault.headers, fault.body
                if fault.hang:
                    server.closing.wait(10)
                    return
            self._send(*answer, cut=fault is not None and fault.cut)

        def _send(self, status: int, headers: dict, body: bytes, *, cut: bool) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) + 100 * cut))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
