"""The session of docs/agents.md, as a real client of the protocol has it: `python -m tests.agent_session` writes it.

The project is the demo's on the fake device. Between two requests the kernel's file is edited, as an agent would.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from perfci.cli.demo import write_project
from tests.git_repositories import begin_topic
from tests.program import COMMAND

PAGE = Path(__file__).parents[1] / "docs" / "agents.md"
BEGIN, END = "<!-- made by python -m tests.agent_session -->\n", "<!-- end -->"

WORDS = """# scale

`scale(x, factor)` returns x times a factor, of x's shape and dtype.

- Shapes: `rows=256,cols=128` and `rows=512,cols=128`. Dtype: `float32`.
- Bytes: 2 * rows * cols * itemsize. Memory limits it.
- Algorithm: one pass. US_PER_MEGABYTE says how long a megabyte takes on the fake device.
"""


async def hold(root: Path) -> str:
    """Hold the session with a server. Returns all that was asked and answered, as text."""
    from mcp import Client, StdioServerParameters, stdio_client

    program, *command = [*COMMAND, "mcp", "--device", "fake", "--project", str(root)]
    lines: list[str] = []

    async def ask(name: str, **arguments: Any) -> dict[str, Any]:
        answer = await client.call_tool(name, arguments)
        assert not answer.is_error, answer.content
        lines.append(f"> {name} {json.dumps(arguments)}")
        return answer.structured_content | {"text": answer.content[0].text}

    def show(answer: dict[str, Any]) -> None:
        lines.extend([*(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in answer.items()), ""])

    def edit(us: float) -> None:
        path = root / "kernels" / "scale" / "scale_triton.py"
        text, count = re.subn(r"US_PER_MEGABYTE = [\d.]+", f"US_PER_MEGABYTE = {us}", path.read_text())
        assert count == 1
        path.write_text(text)
        lines.extend([f"(scale_triton.py now has US_PER_MEGABYTE = {us})", ""])

    server = StdioServerParameters(command=program, args=command, env=dict(os.environ))
    async with Client(stdio_client(server, errlog=sys.__stderr__)) as client:
        found = await ask("brief", op="scale")
        lines.extend([found["text"], ""])
        edit(300.0)
        show(_pick(await ask("try", op="scale", why="one pass less over x", expected=0.05)))
        found = await ask("profile", op="scale", case="rows=512,*")
        [case] = found["cases"]
        show({
            "bound": case["bound"],
            "evidence": [reason["sentence"] for reason in case["evidence"]],
            "advice": [{"id": advice["id"], "reason": advice["reason"]["sentence"]} for advice in case["advice"]],
        })  # fmt: skip
        edit(312.0)
        show(
            _pick(await ask("try", op="scale", why="load further ahead", expected=0.1, advice=case["advice"][0]["id"]))
        )
        found = await ask("history", op="scale")
        names = ("number", "why", "advice", "verdict")
        show({"rounds": [{name: round_[name] for name in names} for round_ in found["rounds"]]})
    return "\n".join(lines)


def _pick(answer: dict[str, Any]) -> dict[str, Any]:
    picked = {name: answer[name] for name in ("number", "verdict", "best", "kinds", "files", "gain")}
    return picked | {"reasons": [reason["sentence"] for reason in answer["reasons"]]}


def write() -> str:
    """Makes a project, holds the session, and returns its text."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "demo"
        write_project(root)
        (root / "kernels" / "scale" / "scale.md").write_text(WORDS)
        begin_topic(root)
        return asyncio.run(hold(root))


def read() -> str:
    """The session as the page has it."""
    return (
        PAGE.read_text(encoding="utf-8")
        .split(BEGIN)[1]
        .split(END)[0]
        .removeprefix("\n````text\n")
        .removesuffix("````\n\n")
    )


if __name__ == "__main__":
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n````text\n{write()}````\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
