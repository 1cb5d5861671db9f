"""Tools to make a kernel faster, for people and agents: rounds, profiles, and these as tools of a server.

rounds round_verdict                     a round: measured beside the best one so far, and judged
logbook                                  what is stored of it
round_tables                             what is shown of it, in the note of a merge request too
profiles profile_task bottleneck profile_records    where time goes, and what promises most
brief                                    all that is known of an op, on a page
server                                   these as tools of the Model Context Protocol
"""

from perfci.core.extensions import CommandLine, Extension

HERE = "perfci.extensions.agents"
COMMANDS = {
    "brief": ("Say what an op is, where it stands, and what may be changed.", "device project"),
    "try": ("Judge a change of a kernel as one round, and log it.", "device project"),
    "profile": ("Find what holds each case of an op up, and what promises most.", "device project"),
    "mcp": ("Serve an agent by MCP: brief, try, profile, compare, history.", "project"),
}

EXTENSION = Extension(
    commands={name: CommandLine(f"{HERE}.commands.optimise", "Optimise", *more) for name, more in COMMANDS.items()},
    provides={"note": (f"{HERE}.round_tables:list_records",), "task": (f"{HERE}.profile_task:ProfileOp",)},
)
