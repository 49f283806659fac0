"""`/perdure/api/kernels…`: the state of this server's kernels, a snapshot or a restore now.

Every handler authenticates and asks the authorizer about the resource `perdure` (GET: read, POST: write).
"""

from __future__ import annotations

import json
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado.web import authenticated

from perdure.domain.errors import BadRequest, Conflict, Forbidden, NoRoom, NotFound, NotProtected, PerdureError
from perdure.domain.ids import Generation, generation

from .connection import agent_client
from .provisioner import PerdureProvisioner

_STATUS: tuple[tuple[type[PerdureError], int], ...] = (
    (BadRequest, 400),
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (NotProtected, 503),
    (NoRoom, 507),
)
"""As on the wire (docs/architecture.md); everything else is 422."""


def state(kernel_id: str, provisioner: Any) -> dict[str, Any]:
    """One kernel, as docs/jupyter.md has it. Any kernel: other provisioners' are simply not protected."""
    plain: dict[str, Any] = {"phase": "", "last_snapshot": None, "last_error": None, "restores": [], "progress": None}
    if not isinstance(provisioner, PerdureProvisioner):
        why = "The kernel was not started by Perdure."
        fix = "Choose the kernel “Checkpointed GPU Python”, or run: perdure kernelspec protect NAME"
        return {"kernel_id": kernel_id, "protected": False, "why": why, "fix": fix, **plain}
    answer = {"kernel_id": kernel_id, **provisioner.protection.to_json(), **plain}
    if provisioner.status is not None:
        status = provisioner.status.to_json()
        answer.update({name: status[name] for name in plain})
    return answer


class PerdureHandler(ExtensionHandlerMixin, APIHandler):
    """What all have in common."""

    auth_resource = "perdure"
    # Pages poll: that must not keep a server from being culled.
    _track_activity = False

    def provisioner(self, kernel_id: str) -> Any:
        """Raises NotFound."""
        if kernel_id not in self.kernel_manager:
            raise NotFound(f"This server has no kernel {kernel_id}.")
        return self.kernel_manager.get_kernel(kernel_id).provisioner

    def ours(self, kernel_id: str) -> PerdureProvisioner:
        """Raises NotFound, NotProtected."""
        found = self.provisioner(kernel_id)
        if not isinstance(found, PerdureProvisioner) or not found.protection.protected:
            told = state(kernel_id, found)
            raise NotProtected(told["why"], hint=told["fix"])
        return found

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Called by tornado for whatever was raised in a handler."""
        problem = kwargs.get("exc_info", (None, None))[1]
        if not isinstance(problem, PerdureError):
            super().write_error(status_code, **kwargs)
            return
        self.set_status(next((status for kind, status in _STATUS if isinstance(problem, kind)), 422))
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"error": problem.to_json()}))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Called by tornado before `write_error`. Ours are answers, not accidents."""
        if isinstance(value, PerdureError):
            self.log.info("%s: %s", self.request.path, value)
        else:
            super().log_exception(typ, value, tb)


class KernelsHandler(PerdureHandler):
    @authenticated
    @authorized
    async def get(self) -> None:
        manager = self.kernel_manager
        found = [state(kernel_id, manager.get_kernel(kernel_id).provisioner) for kernel_id in manager.list_kernel_ids()]
        self.finish({"kernels": found})


class KernelHandler(PerdureHandler):
    @authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        self.finish(state(kernel_id, self.provisioner(kernel_id)))


class SnapshotHandler(PerdureHandler):
    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        ours = self.ours(kernel_id)
        async with agent_client(ours.agent) as client:
            done = await client.snapshot(ours.perdure_id)
        self.finish(done.to_json())


class RestoreHandler(PerdureHandler):
    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        """`{"generation": N or null}`; null and an empty body mean the newest good one."""
        ours = self.ours(kernel_id)
        number = self._generation()
        async with agent_client(ours.agent) as client:
            ours.take(await client.restore(ours.perdure_id, number))
        self.finish(state(kernel_id, ours))

    def _generation(self) -> Generation | None:
        body = self.get_json_body() or {}
        number = body.get("generation") if isinstance(body, dict) else body
        return None if number is None else generation(number)
