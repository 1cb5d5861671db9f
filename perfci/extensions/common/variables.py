"""A pipeline's variables, each validated: a job can be started with any."""

import re
from collections.abc import Mapping

from perfci.core.model import Fact, Reason
from perfci.report.text import plain

HOST = r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
"""The beginning of an address, without a user."""

CERTIFICATES = "CI_SERVER_TLS_CA_FILE"
"""GitLab names here the certificates of a server that the system does not trust"""

_TOKEN = re.compile(r"[!-~]{8,512}")


def read_token(environ: Mapping[str, str], *names: str, missing: str) -> str | Reason:
    """Returns the token in the first of these variables that is set. Else a reason: of the kind `missing`, if none."""
    name, token = next(((name, value) for name in names if (value := environ.get(name, "").strip())), ("", ""))
    if not token:
        return Reason(missing)
    return token if _TOKEN.fullmatch(token) else Reason("token_malformed", {"name": name})


def find_invalid(environ: Mapping[str, str], patterns: Mapping[str, re.Pattern[str]]) -> dict[str, Fact] | None:
    """Returns the first variable that does not have the form that the server gives it, as facts of a reason."""
    for name, pattern in patterns.items():
        if not pattern.fullmatch(value := environ.get(name, "")):
            return {"name": name, "found": plain(value, 80)}
    return None
