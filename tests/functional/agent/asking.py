"""Asks an agent as whoever runs this: `asking.py ADDRESS CALL KERNEL [REPOSITORY]`. Prints the answer or the error's code."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable
from typing import Any

from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import PerdureError
from perdure.domain.ids import Owner, kernel_id
from perdure.wire.client import AgentClient
from perdure.wire.messages import StartRequest


def call(client: AgentClient, what: str, name: str, extra: list[str]) -> Awaitable[Any]:
    kernel = kernel_id(name)
    match what:
        case "start":
            return client.start(request(name))
        case "start-at":
            return client.start(request(name, repository=extra[0]))
        case "start-as-root":
            return client.start(request(name, owner=Owner(0, 0)))
        case "list":
            return client.kernels()
        case "show":
            return client.kernel(kernel)
        case "wait":
            return client.wait(kernel, 0)
        case "signal":
            return client.signal(kernel, 2)
        case "snapshot":
            return client.snapshot(kernel)
        case "restore":
            return client.restore(kernel)
        case "kill":
            return client.kill(kernel)
        case "forget":
            return client.forget(kernel, snapshots="drop")
    raise ValueError(what)


def request(name: str, **fields: Any) -> StartRequest:
    endpoint = Endpoint.for_kernel(kernel_id(name), "secret")
    return StartRequest(kernel_id(name), ("/bin/sleep", "600"), {"PATH": "/usr/bin:/bin"}, "/", endpoint, **fields)


async def main(address: str, what: str, name: str, *extra: str) -> str:
    client = AgentClient(address)
    try:
        answer = await call(client, what, name, list(extra))
    except PerdureError as error:
        return error.code
    finally:
        await client.close()
    if isinstance(answer, list):
        return json.dumps([one.kernel_id for one in answer])
    return json.dumps(answer.to_json()) if answer is not None else "done"


if __name__ == "__main__":
    print(asyncio.run(main(*sys.argv[1:])))
