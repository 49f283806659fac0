"""The agent's HTTP API: one handler per path, each only translating (docs/architecture.md has the table)."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable
from typing import Any

from tornado.web import Application, HTTPError, RequestHandler

from perdure.domain.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    NoRoom,
    NotFound,
    NotProtected,
    PerdureError,
    ProtocolMismatch,
)
from perdure.domain.ids import KernelId, generation, kernel_id
from perdure.domain.policy import Policy
from perdure.domain.record import Trigger
from perdure.wire.messages import PROTOCOL, PROTOCOL_HEADER, StartRequest

from .checks import host_info
from .peers import Peer
from .registry import Registry
from .supervisor import Supervisor

log = logging.getLogger(__name__)

WAIT_S = 30.0
_STATUS: list[tuple[type[PerdureError], int]] = [
    (BadRequest, 400),
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (ProtocolMismatch, 426),
    (NotProtected, 503),
    (NoRoom, 507),
]
_TRIED_AND_FAILED = 422


def application(registry: Registry, heard: Callable[[], None]) -> Application:
    """`heard` is called at each request."""
    kernel = r"/v1/kernels/([A-Za-z0-9_-]+)"
    shared = {"registry": registry, "heard": heard}
    return Application(
        [
            (r"/v1/host", HostHandler, shared),
            (r"/v1/kernels", KernelsHandler, shared),
            (kernel, KernelHandler, shared),
            (kernel + "/wait", WaitHandler, shared),
            (kernel + "/signal", SignalHandler, shared),
            (kernel + "/snapshot", SnapshotHandler, shared),
            (kernel + "/restore", RestoreHandler, shared),
            (kernel + "/policy", PolicyHandler, shared),
            (kernel + "/kill", KillHandler, shared),
        ],
        default_handler_class=UnknownHandler,
        default_handler_args=shared,
        log_function=_log,
    )


def _log(handler: RequestHandler) -> None:
    """Every question of a page is one; those that fail are logged with their reason."""
    request = handler.request
    log.debug("%s %s: %d, %.0f ms", request.method, request.path, handler.get_status(), 1000 * request.request_time())


class Handler(RequestHandler):
    """Checks the protocol, knows the caller, turns errors into documents."""

    def initialize(self, registry: Registry, heard: Callable[[], None]) -> None:
        self.registry = registry
        heard()

    def prepare(self) -> None:
        self.peer = Peer.of(self.request.connection.stream.socket)  # type: ignore[union-attr]
        self.set_header(PROTOCOL_HEADER, str(PROTOCOL))
        spoken = self.request.headers.get(PROTOCOL_HEADER)
        if spoken != str(PROTOCOL):
            raise ProtocolMismatch(
                f"The agent speaks protocol {PROTOCOL}, the caller {spoken or 'none'}.", hint="Update the older of the two."
            )

    def kernel(self, name: str) -> Supervisor:
        return self.registry.get(kernel_id(name), self.peer)

    def body(self) -> dict[str, Any]:
        """The request's document. Raises BadRequest."""
        try:
            found = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise BadRequest("The request is not JSON.", detail=str(error)) from error
        if not isinstance(found, dict):
            raise BadRequest("The request is not a JSON object.")
        return found

    def answer(self, document: dict[str, Any]) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(document))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, HTTPError):
            error = BadRequest(f"The agent can't {self.request.method} {self.request.path}: {self._reason}.")
        elif not isinstance(error, PerdureError):
            error = PerdureError("The agent has a fault of its own.", hint="Its log says more.", detail=repr(error))
        else:
            self.set_status(next((code for kind, code in _STATUS if isinstance(error, kind)), _TRIED_AND_FAILED))
        self.set_header(PROTOCOL_HEADER, str(PROTOCOL))
        self.answer({"error": error.to_json()})

    def log_exception(self, typ: Any, value: BaseException | None, tb: Any) -> None:
        if isinstance(value, PerdureError):
            log.info("%s %s: %s", self.request.method, self.request.path, value)
        else:
            super().log_exception(typ, value, tb)


class UnknownHandler(Handler):
    def prepare(self) -> None:
        super().prepare()
        raise NotFound(f"The agent knows no {self.request.path}.")


class HostHandler(Handler):
    async def get(self) -> None:
        owner = self.peer.as_owner()
        self.answer((await self.registry.host.blocking(lambda: host_info(self.registry.host, owner))).to_json())


class KernelsHandler(Handler):
    def get(self) -> None:
        self.answer({"kernels": [kernel.status().to_json() for kernel in self.registry.visible(self.peer)]})

    async def post(self) -> None:
        kernel = await self.registry.start(StartRequest.from_json(self.body()), self.peer)
        self.answer(kernel.status().to_json())


class KernelHandler(Handler):
    async def get(self, name: str) -> None:
        self.answer((await self.kernel(name).full_status()).to_json())

    async def delete(self, name: str) -> None:
        snapshots = self.get_query_argument("snapshots", "keep")
        await self.registry.forget(KernelId(name), self.peer, snapshots=snapshots)
        self.answer({})


class WaitHandler(Handler):
    async def get(self, name: str) -> None:
        try:
            seq = int(self.get_query_argument("seq", "0"))
        except ValueError as error:
            raise BadRequest("seq is a number.") from error
        self.answer((await self.kernel(name).wait(seq, WAIT_S)).to_json())


class SignalHandler(Handler):
    async def post(self, name: str) -> None:
        await self.kernel(name).signal(_signum(self.body()))
        self.answer({})


class SnapshotHandler(Handler):
    async def post(self, name: str) -> None:
        asked = self.body().get("trigger", Trigger.DEMAND.value)
        try:
            trigger = Trigger(asked)
        except ValueError as error:
            raise BadRequest(f"{asked!r} is no reason for a snapshot.", hint=", ".join(Trigger)) from error
        self.answer((await self.kernel(name).snapshot(trigger)).to_json())


class RestoreHandler(Handler):
    async def post(self, name: str) -> None:
        body, kernel = self.body(), self.kernel(name)
        number = None if body.get("generation") is None else generation(body["generation"])
        await kernel.restore(number, accept_changed_files=body.get("accept_changed_files") is True)
        self.answer((await kernel.full_status()).to_json())


class PolicyHandler(Handler):
    async def post(self, name: str) -> None:
        kernel = self.kernel(name)
        await kernel.set_policy(Policy.from_json(self.body()))
        self.answer(kernel.status().to_json())


class KillHandler(Handler):
    async def post(self, name: str) -> None:
        kernel = self.kernel(name)
        await kernel.kill(_signum(self.body(), signal.SIGKILL))
        self.answer(kernel.status().to_json())


def _signum(body: dict[str, Any], default: int | None = None) -> int:
    number = body.get("signum", default)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < signal.NSIG:
        raise BadRequest(f"{number!r} is no signal.", hint="It is a number, like 2 for an interrupt.")
    return number
