"""A client of the agent for one question, in whatever event loop it is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.wire.client import AgentClient


@asynccontextmanager
async def agent_client(address: str | None) -> AsyncIterator[AgentClient]:
    """`address` empty or None: the default one. Jupyter calls a provisioner from several loops, and a client belongs to one."""
    client = AgentClient(address or None)
    try:
        yield client
    finally:
        await client.close()
