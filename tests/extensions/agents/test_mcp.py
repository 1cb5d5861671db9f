"""`perfci mcp` and a real client of the protocol, on the fake device: over pipes in the session of the guide alone."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from concurrent.futures import Future

import pytest

from perfci.cli.main import run
from perfci.core.settings import load
from perfci.extensions.agents.server import Tools
from perfci.worker import forks
from tests import agent_session
from tests.git_repositories import alone, begin_topic
from tests.program import COMMAND

TOOLS = {"brief", "try", "profile", "static", "compare", "history"}


@pytest.fixture
def kernel(project):
    """The project on a topic branch."""
    begin_topic(project.root)
    return project


def speed(project, us):
    path = project.op_file("scale", "triton")
    before, _, rest = path.read_text().partition("US_PER_MEGABYTE = ")
    path.write_text(f"{before}US_PER_MEGABYTE = {us}\n{rest.partition(chr(10))[2]}")


def talk(project, conversation, *options):
    """Have a client talk with the command's server, in this process. `conversation` gets the client."""
    from mcp import Client  # takes as long to import as a test
    from mcp.server.mcpserver import MCPServer

    future = Future()

    async def meet(server):
        async with Client(server) as client:
            return await conversation(client)

    def serve(server, _transport):
        try:
            future.set_result(asyncio.run(meet(server)))
        except BaseException as error:
            future.set_exception(error)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MCPServer, "run", serve)
        assert project.perfci("mcp", "--device", "fake", *options).code == 0
    return future.result()


async def ask(client, name, **arguments):
    """A tool's answer as data."""
    answer = await client.call_tool(name, arguments)
    assert not answer.is_error, answer.content[0].text
    return answer.structured_content


def test_an_agent_gets_a_brief_tries_profiles_and_tries_again(kernel):
    async def conversation(client):
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        first = await client.call_tool("brief", {"op": "scale"})
        assert first.content[0].text.startswith("# scale\n")
        assert first.structured_content["rounds_left"] == 5
        speed(kernel, 300.0)
        kept = await ask(client, "try", op="scale", why="one pass less over x", expected=0.05)
        profile = await ask(client, "profile", op="scale")
        speed(kernel, 312.0)
        advice = profile["cases"][0]["advice"][0]
        slower = await ask(client, "try", op="scale", why=advice["reason"]["sentence"], advice=advice["id"])
        after, history = await ask(client, "brief", op="scale"), await ask(client, "history", op="scale")
        return kept, profile, slower, after, history

    kept, profile, slower, after, history = talk(kernel, conversation)

    assert (kept["verdict"], kept["number"], kept["expected"]) == ("kept", 1, 0.05)
    assert kept["gain"]["low"] > 0.05
    assert {case["case"] for case in profile["cases"]} == {case["case"] for case in kept["cases"]}
    assert all(case["bound"] and case["evidence"] and case["advice"] for case in profile["cases"])
    assert (slower["verdict"], slower["best"]) == ("slower", 1)
    assert slower["advice"] == profile["cases"][0]["advice"][0]["id"]
    assert after["profile"]["time"] == profile["time"]
    assert [round_["verdict"] for round_ in after["rounds"]] == ["kept", "slower"]
    assert after["rounds_left"] == 3
    assert history["rounds"] == after["rounds"]


def test_a_stored_run_is_judged_and_only_paths_in_the_project_are_read(kernel, tmp_path):
    kernel.first_check()
    (kernel.root / "away").symlink_to(tmp_path)

    async def conversation(client):
        judged = await ask(client, "compare")
        assert await ask(client, "compare", run="reports") == judged
        outside = [await client.call_tool("compare", {"run": path}) for path in ("..", "/etc", "away/run.json")]
        baseline = await client.call_tool("compare", {"against": str(tmp_path)})
        return judged, [*outside, baseline]

    judged, outside = talk(kernel, conversation)

    assert judged["gate"] == "ok"
    assert {row["op"] for row in judged["verdicts"]} == {"relu", "scale", "row_sum"}
    assert [answer.is_error for answer in outside] == [True] * 4
    assert all("leads out of the project" in answer.content[0].text for answer in outside)


@pytest.mark.nightly
def test_rounds_that_are_asked_for_at_once_are_tried_one_after_the_other(kernel):
    speed(kernel, 330.0)

    async def conversation(client):
        return await asyncio.gather(*(ask(client, "try", op="scale", why=f"idea {number}") for number in (1, 2)))

    tried = sorted(talk(kernel, conversation), key=lambda round_: round_["number"])

    assert [round_["number"] for round_ in tried] == [1, 2]
    assert [round_["verdict"] for round_ in tried] == ["slower", "refused"]  # the second has the files of the first


def test_what_fails_is_said_in_a_sentence_and_the_server_goes_on(kernel):
    async def conversation(client):
        unknown = await client.call_tool("brief", {"op": "scael"})
        lacking = await client.call_tool("try", {"op": "scale"})
        return unknown, lacking, await ask(client, "brief", op="scale")

    unknown, lacking, brief = talk(kernel, conversation)

    assert unknown.is_error
    assert "scale" in unknown.content[0].text
    assert lacking.is_error
    assert "why" in lacking.content[0].text
    assert brief["op"] == "scale"


def test_rounds_end_with_the_budget_of_device_time_and_all_else_goes_on(kernel):
    async def conversation(client):
        speed(kernel, 330.0)
        first = await ask(client, "try", op="scale", why="one pass less over x")
        second = await client.call_tool("try", {"op": "scale", "why": "more"})
        return first, second, await ask(client, "history", op="scale")

    first, second, history = talk(kernel, conversation, "--device-time", "0.01")

    assert first["verdict"] == "slower"
    assert second.is_error
    assert "--device-time" in second.content[0].text
    assert len(history["rounds"]) == 1


@pytest.mark.nightly
def test_the_workers_of_all_requests_are_forked_from_one_process(kernel, monkeypatch):
    began = []
    start = forks.subprocess.Popen
    monkeypatch.setattr(forks, "_servers", {})
    monkeypatch.setattr(forks.subprocess, "Popen", lambda *given, **more: began.append(given) or start(*given, **more))
    tools = Tools(load(kernel.root), "fake", 3600.0, lambda _: None)

    tools.call("brief", {"op": "scale"})
    speed(kernel, 330.0)
    tools.call("try", {"op": "scale", "why": "one pass less over x"})
    speed(kernel, 340.0)
    tools.call("try", {"op": "scale", "why": "larger tiles"})

    forks.end()
    assert sum(any("forks.main()" in str(word) for word in command) for (command, *_) in began) == 1


def test_without_the_package_the_command_says_what_to_install(project, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)

    assert run(["mcp", "--project", str(project.root)]) == 1
    assert "pip install 'perfci[mcp]'" in capsys.readouterr().err


@pytest.mark.nightly  # an agent's requests have their test above
def test_the_session_of_the_guide_is_one_that_a_client_has(monkeypatch, tmp_path):
    alone(monkeypatch, tmp_path)

    # Noise moves numbers, and with them the order of evidence.
    told, held = (sorted(re.findall(r"[^\W\d]\w*", text)) for text in (agent_session.read(), agent_session.write()))
    assert told == held


@pytest.mark.nightly
def test_a_signal_ends_the_round_under_way_and_the_server(kernel):
    kernel.edit("scale", "triton", "    out = np.empty", "    __import__('time').sleep(100)\n    out = np.empty")
    command = [*COMMAND, "mcp", "--device", "fake", "--project", str(kernel.root)]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    asked = {"name": "try", "arguments": {"op": "scale", "why": "it never ends"}}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        for number, method, parameters in (
            (1, "initialize", hello),
            (None, "notifications/initialized", {}),
            (2, "tools/call", asked),
        ):
            message = {"jsonrpc": "2.0", "method": method, "params": parameters} | ({"id": number} if number else {})
            server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        assert any("accuracy" in line for line in server.stderr)  # a worker is at work
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)

    assert server.returncode == 143
    assert not (kernel.root / "kernels/scale/optimization.jsonl").exists()
