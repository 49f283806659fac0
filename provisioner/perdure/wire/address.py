"""Where the agent listens."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perdure.domain.errors import BadRequest

DEFAULT_SOCKET = Path("/run/perdure/agent.sock")
VARIABLE = "PERDURE_AGENT"


def agent_address(given: str | None = None) -> str:
    """`given`, else $PERDURE_AGENT, else the default: `unix:///path`."""
    return given or os.environ.get(VARIABLE) or f"unix://{DEFAULT_SOCKET}"


def socket_path(address: str) -> Path:
    """The socket of `unix:///path`. Raises BadRequest."""
    parts = urlsplit(address)
    path = unquote(parts.path)
    if parts.scheme != "unix" or parts.netloc or not path.startswith("/"):
        raise BadRequest(f"{address!r} is not an agent's address.", hint="It is a socket: unix:///absolute/path.")
    return Path(path)
