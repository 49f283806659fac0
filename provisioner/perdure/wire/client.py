"""Asking the agent. Errors arrive as the exceptions that the agent raised."""

from __future__ import annotations

import json
import socket
from typing import Any

from tornado.httpclient import HTTPError, HTTPRequest
from tornado.netutil import Resolver
from tornado.simple_httpclient import HTTPStreamClosedError, HTTPTimeoutError, SimpleAsyncHTTPClient

from perdure.domain.errors import AgentUnreachable, PerdureError, ProtocolMismatch
from perdure.domain.ids import Generation, KernelId
from perdure.domain.policy import Policy
from perdure.domain.record import Trigger

from .address import agent_address, socket_path
from .messages import PROTOCOL, PROTOCOL_HEADER, GenerationInfo, HostInfo, KernelStatus, StartRequest

CONNECT_S = 5.0
ANSWER_S = 60.0
LONG_S = 3600.0
"""For what takes as long as the kernel is large: snapshots, restores."""
WAIT_S = 60.0
"""A status question that waits for a change is answered after 30 seconds at the latest."""
LARGEST_ANSWER = 256 << 20
_MOST_AT_ONCE = 256
"""A long poll per kernel, and what its user does beside it."""


class _Socket(Resolver):
    """Whatever host is asked for, it is the agent's socket."""

    def initialize(self, path: str) -> None:  # tornado's own kind of constructor
        self._path = path

    async def resolve(self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[tuple[int, Any]]:
        return [(socket.AF_UNIX, self._path)]


class AgentClient:
    """One agent. Must be used in one event loop; `close` it there.

    Every call raises AgentUnreachable when nobody answers, ProtocolMismatch, and whatever the agent says went wrong.
    """

    def __init__(self, address: str | None = None) -> None:
        self.address = agent_address(address)
        self._path = socket_path(self.address)
        self._http = SimpleAsyncHTTPClient(
            force_instance=True,
            resolver=_Socket(path=str(self._path)),
            max_clients=_MOST_AT_ONCE,
            max_body_size=LARGEST_ANSWER,
        )

    async def close(self) -> None:
        self._http.close()

    async def host(self) -> HostInfo:
        return HostInfo.from_json(await self._ask("GET", "/v1/host"))

    async def kernels(self) -> list[KernelStatus]:
        """The caller's (root: everybody's), without their generations."""
        return [KernelStatus.from_json(one) for one in (await self._ask("GET", "/v1/kernels"))["kernels"]]

    async def kernel(self, kernel: KernelId) -> KernelStatus:
        """With its generations."""
        return KernelStatus.from_json(await self._ask("GET", f"/v1/kernels/{kernel}"))

    async def start(self, request: StartRequest) -> KernelStatus:
        """The kernel's program runs when this returns; it may not listen yet."""
        return KernelStatus.from_json(await self._ask("POST", "/v1/kernels", request.to_json()))

    async def wait(self, kernel: KernelId, seq: int) -> KernelStatus:
        """The status as soon as it is newer than `seq`, or as it is after half a minute; without generations."""
        return KernelStatus.from_json(await self._ask("GET", f"/v1/kernels/{kernel}/wait?seq={seq}", timeout=WAIT_S))

    async def signal(self, kernel: KernelId, signum: int) -> None:
        """To the kernel's process group; held back while the kernel is frozen or being restored."""
        await self._ask("POST", f"/v1/kernels/{kernel}/signal", {"signum": signum}, timeout=LONG_S)

    async def snapshot(self, kernel: KernelId, trigger: Trigger = Trigger.DEMAND) -> GenerationInfo:
        """Published and durable when this returns."""
        answer = await self._ask("POST", f"/v1/kernels/{kernel}/snapshot", {"trigger": trigger.value}, timeout=LONG_S)
        return GenerationInfo.from_json(answer)

    async def restore(
        self, kernel: KernelId, generation: Generation | None = None, *, accept_changed_files: bool = False
    ) -> KernelStatus:
        """Back and proven when this returns. None: the newest generation that can be restored."""
        body = {"generation": generation, "accept_changed_files": accept_changed_files}
        return KernelStatus.from_json(await self._ask("POST", f"/v1/kernels/{kernel}/restore", body, timeout=LONG_S))

    async def set_policy(self, kernel: KernelId, policy: Policy) -> KernelStatus:
        return KernelStatus.from_json(await self._ask("POST", f"/v1/kernels/{kernel}/policy", policy.to_json()))

    async def kill(self, kernel: KernelId, signum: int = 9) -> KernelStatus:
        """Ends it for good: nothing is restored. Idempotent."""
        return KernelStatus.from_json(await self._ask("POST", f"/v1/kernels/{kernel}/kill", {"signum": signum}))

    async def forget(self, kernel: KernelId, *, snapshots: str) -> None:
        """Ends it and forgets it; `snapshots` is "drop" or "keep". Idempotent."""
        await self._ask("DELETE", f"/v1/kernels/{kernel}?snapshots={snapshots}")

    async def _ask(self, method: str, path: str, body: Any = None, *, timeout: float = ANSWER_S) -> dict[str, Any]:
        request = HTTPRequest(
            f"http://agent{path}",
            method=method,
            headers={PROTOCOL_HEADER: str(PROTOCOL), "Content-Type": "application/json"},
            body=json.dumps(body) if method == "POST" else None,
            connect_timeout=CONNECT_S,
            request_timeout=timeout,
            follow_redirects=False,
        )
        try:
            response = await self._http.fetch(request, raise_error=False)
        except HTTPTimeoutError as error:
            raise self._unreachable("it did not answer in time", error) from error
        except (OSError, HTTPStreamClosedError, HTTPError) as error:
            raise self._unreachable(getattr(error, "strerror", None) or str(error), error) from error
        answer = self._document(response.body)
        if response.code != 200:
            said = answer.get("error")
            raise PerdureError.from_json(said if isinstance(said, dict) else {"sentence": f"The agent answered {response.code}."})
        spoken = response.headers.get(PROTOCOL_HEADER)
        if spoken != str(PROTOCOL):
            raise ProtocolMismatch(
                f"The agent speaks protocol {spoken}, this program {PROTOCOL}.", hint="Update the older of the two."
            )
        return answer

    def _document(self, body: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(body or b"{}")
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ProtocolMismatch(f"What answers at {self.address} is no agent.", detail=repr(body[:200]))
        return answer

    def _unreachable(self, why: str, error: BaseException) -> AgentUnreachable:
        return AgentUnreachable(
            f"No agent answers at {self.address}: {why}.",
            hint="`perdure doctor` says what is missing; `perdure agent` (as root) starts one.",
            detail=repr(error),
        )
