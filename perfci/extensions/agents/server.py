"""`perfci mcp`: what an agent needs to make a kernel faster, as tools of the Model Context Protocol on standard input.

Requests are heard in a separate thread, and the main thread answers one after the other: rounds never overlap,
signals end them as they end a command, and workers are forked from a process that has imported torch once.
"""

import functools
import queue
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfci import store
from perfci.core import VERSION, commands
from perfci.core.errors import MissingPackageError, PerfciError, UsageError, require
from perfci.core.model import Suite
from perfci.core.settings import Settings
from perfci.extensions.agents.brief import brief, write_markdown
from perfci.extensions.agents.logbook import read_logbook
from perfci.extensions.agents.profiles import profile_op
from perfci.extensions.agents.rounds import try_round
from perfci.ops.discover import select_one
from perfci.report.data import to_json, write_plain
from perfci.runs.bench import Listener
from perfci.runs.decide import decide
from perfci.runs.plan import Request

COMMAND = "perfci mcp"
NAMES = ("brief", "try", "profile", "static", "compare", "history")
TIMED = ("try", "profile")  # what uses up the budget of device time

Answer = dict[str, Any]


def _plain(record: object) -> Answer:
    plain: Answer = write_plain(record)
    return plain


class Tools:
    """The tools, `answer_NAME` each. Raise PerfciError, with a sentence that is the answer then."""

    def __init__(self, settings: Settings, device: str, device_s: float, listener: Listener) -> None:
        self._settings, self._device, self._listener = settings, device, listener
        self._device_s = self._left_s = device_s

    def call(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """Answer a request. Raises UsageError if the device time is spent that it would need."""
        if name in TIMED and self._left_s <= 0:
            raise UsageError("mcp_spent", seconds=self._device_s)
        began = time.monotonic()
        try:
            # An agent works in the project, wherever its server was started.
            with commands.reading(replace(commands.get_reader(), project=None)):
                answer: Answer = getattr(self, f"answer_{name}")(**arguments)
            return answer
        finally:
            self._left_s -= time.monotonic() - began if name in TIMED else 0.0

    def answer_brief(self, op: str) -> Answer:
        """Say what an op is, where it stands, what holds it back, what was tried, and what may be changed."""
        text = brief(self._settings, op, self._device, self._listener)
        return {"markdown": "\n".join(write_markdown(text)), **_plain(text)}

    def answer_try(self, op: str, why: str, expected: float | None = None, advice: str | None = None) -> Answer:
        """Judge the op's kernel, as its files are now, against the best round so far, and log the round.

        why: the hypothesis; change one thing at a time. expected: the gain hoped for, 0.2 is 20 % faster. advice: id of
        the advice that it follows. The verdict is kept, equal, slower, mixed, wrong, refused or error.
        """
        request = Request((op,), device=self._device)
        round_ = try_round(self._settings, request, why, self._listener, COMMAND, expected=expected, advice=advice)
        return _plain(round_)

    def answer_profile(self, op: str, case: str | None = None) -> Answer:
        """Find what holds each case up, by hardware counters if they can be read, and the directions that promise most.

        case: only cases that fit, such as rows=4096,dtype=float*.
        """
        return _plain(profile_op(self._settings, Request((op,), case, self._device), self._listener, COMMAND))

    def answer_static(self, op: str, case: str | None = None) -> Answer:
        """Compile an op's cases without a device: registers, spills, shared memory, occupancy. case: as for profile."""
        where = replace(self._settings, reports=self._settings.reports / "static")
        request = Request((op,), case, "cpu", suites=(Suite.PERFORMANCE,))
        compile_and_judge = require("static", "static", "perfci mcp")
        run, judgements = compile_and_judge(where, request, COMMAND, self._listener)
        return to_json(judgements, run)

    def answer_compare(self, run: str = "", against: str = "") -> Answer:
        """Judge a run, the last one by default, against the baselines or another run. Both are paths in the project."""
        path = self._find(run) if run else self._settings.reports
        record = store.read_run(path)
        return to_json(decide(record, self._settings, self._find(against) if against else None), record)

    def answer_history(self, op: str) -> Answer:
        """The op's rounds so far: why, what changed, gains with their intervals, and verdicts."""
        return _plain(read_logbook(select_one(self._settings, op).folder))

    def _find(self, text: str) -> Path:
        """Returns a path in the project. Raises UsageError for one that leads out of it."""
        path = (self._settings.root / text).resolve()
        if not path.is_relative_to(self._settings.root.resolve()):
            raise UsageError("mcp_outside", path=text, root=str(self._settings.root))
        return path


def serve(settings: Settings, device: str, device_s: float, listener: Listener) -> None:
    """Answer requests until standard input ends. device_s: seconds that rounds and profiles may take in all.

    Raises MissingPackageError without the extra `mcp`.
    """
    import asyncio  # not for anyone who calls the tools themselves

    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import CallToolResult, TextContent
    except ImportError as error:
        raise MissingPackageError("mcp_missing") from error

    server = MCPServer("perfci", version=VERSION, log_level="ERROR")
    tools = Tools(settings, device, device_s, listener)
    asked: queue.Queue[tuple[Future[Answer], str, Mapping[str, Any]] | None] = queue.Queue()
    for name in NAMES:

        async def tool(name: str = name, /, **arguments: Any) -> Any:
            future: Future[Answer] = Future()
            asked.put((future, name, arguments))
            answer = await asyncio.wrap_future(future)
            if page := answer.pop("markdown", None):
                return CallToolResult(content=[TextContent(type="text", text=page)], structured_content=answer)
            return answer

        work = getattr(tools, f"answer_{name}")
        server.add_tool(functools.wraps(work)(tool), name, structured_output=True)

    def listen() -> None:
        try:
            server.run("stdio")
        finally:
            asked.put(None)

    threading.Thread(target=listen, daemon=True).start()
    while request := asked.get():
        future, name, arguments = request
        if future.set_running_or_notify_cancel():  # somebody still waits for it
            try:
                future.set_result(tools.call(name, arguments))
            except PerfciError as error:
                future.set_exception(ToolError(str(error)))
            except Exception as error:
                future.set_exception(error)
