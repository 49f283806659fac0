"""Hands a kernel to the agent instead of starting it here, where the host can protect it.

Jupyter must never see a death that will be undone: its restarter would tell every page `restarting`, on which JupyterLab drops
its outputs to come, its comms and its queued messages. So a kernel is alive here until the agent says that nobody will bring it
back. Where the host can't protect kernels, all of this is a LocalProvisioner, and `protection` says why.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase

from perdure.domain.errors import PerdureError
from perdure.domain.ids import KernelId, kernel_id
from perdure.wire.messages import KernelStatus, StartRequest

from . import endpoints, protection
from .connection import agent_client
from .protection import NOT_STARTED, PROTECTED, Protection
from .settings import PolicyTraits
from .watch import Watch

SHUTDOWN_S = 10.0
"""Least time for a clean end: a shutdown that meets a snapshot waits for the thaw."""
START_S = 60.0
"""Upper bound of a start in a sandbox. Until then, Jupyter takes a death for a failed start and would change ports."""
SIGNAL_S = 3.0
"""How long a caller waits for a signal to arrive; the agent delivers a later one too, after the thaw or the restore."""
_PARENT = "JPY_PARENT_PID"
"""With it, ipykernel watches its parent and ends itself when that changes, as it does with every restore."""


class PerdureProvisioner(PolicyTraits, LocalProvisioner):  # type: ignore[metaclass]
    """Entry point `perdure-provisioner`."""

    protection: Protection = NOT_STARTED
    _watch: Watch | None = None
    _own_address = False

    @property
    def status(self) -> KernelStatus | None:
        """The newest one known; None for a kernel that is not protected."""
        return self._watch.status if self._watch else None

    @property
    def perdure_id(self) -> KernelId:
        """Raises BadRequest when a client has chosen an id that can't be one."""
        return kernel_id(str(self.kernel_id))

    def take(self, status: KernelStatus) -> None:
        """A status that somebody else has got from the agent."""
        if self._watch is not None:
            self._watch.take(status)

    @property
    def has_process(self) -> bool:
        """Called by KernelManager before nearly everything: False means dead, whatever `poll` says."""
        return self._watch is not None or super().has_process

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Called by KernelManager.pre_start_kernel, also at a restart: decides who runs the kernel.

        What its clients connect to never changes, so a kernel that was first started without protection keeps its address.
        """
        manager: Any = self.parent
        first = manager is not None and not manager.shell_port
        self.protection = await self._look()
        if self.protection.protected and first:
            try:
                endpoints.apply(endpoints.choose(self.perdure_id, manager.session.key.decode()), manager)
                self._own_address = True
            except OSError as error:
                self.protection = Protection(False, f"No loopback address is free for the kernel: {error}.")
        if not self._own_address:
            return await super().pre_launch(**kwargs)
        endpoints.encrypt(manager, kwargs.pop("transport_encryption", None))
        manager.write_connection_file(jupyter_session=kwargs.get("env", {}).get("JPY_SESSION_NAME", ""))
        self.connection_info = manager.get_connection_info()
        command = manager.format_kernel_cmd(extra_arguments=kwargs.pop("extra_arguments", []))
        # LocalProvisioner's own step is what stands above; it also insists on an address that it has in its list.
        return await KernelProvisionerBase.pre_launch(self, cmd=command, **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Called by KernelManager.launch_kernel with what `pre_launch` returned. A refusal of the agent means a plain kernel."""
        if self.protection.protected:
            try:
                async with agent_client(self.agent) as client:
                    status = await client.start(self._request(cmd, kwargs))
            except PerdureError as problem:
                self.protection = protection.refused(problem)
            else:
                self._started(status, kwargs)
                return self.connection_info
        self.log.warning("Kernel %s is not protected: %s %s", self.kernel_id, self.protection.why, self.protection.fix)
        return await super().launch_kernel(cmd, **kwargs)

    async def poll(self) -> int | None:
        """Called by KernelManager.is_alive: by the restarter every three seconds, and while an end is awaited."""
        if self._watch is None:
            return await super().poll()
        self.pid = (await self._watch.newest()).pid
        return self._watch.ended()

    async def wait(self) -> int | None:
        """Called by KernelManager when the kernel has ended, with a time limit."""
        if self._watch is None:
            return await super().wait()
        while (status := await self.poll()) is None:
            await asyncio.sleep(0.1)
        await self._let_go()
        return status

    async def send_signal(self, signum: int) -> None:
        """Called by KernelManager.interrupt_kernel and signal_kernel. The agent holds it while the kernel is frozen or away."""
        if self._watch is None:
            await super().send_signal(signum)
        elif signum == signal.SIGKILL:
            await self.kill()
        elif signum:
            try:
                async with agent_client(self.agent) as client:
                    await asyncio.wait_for(client.signal(self.perdure_id, signum), SIGNAL_S)
            except TimeoutError:
                self.log.info("Kernel %s gets signal %s when it is back", self.kernel_id, signum)
            except PerdureError as problem:
                # Every shutdown begins with an interrupt; it must not fail on a kernel that can't hear.
                self.log.warning("Signal %s did not reach kernel %s: %s", signum, self.kernel_id, problem)

    async def kill(self, restart: bool = False) -> None:
        """Called by KernelManager to end the kernel at once; also by the restarter on one that it takes for dead."""
        if self._watch is None:
            await super().kill(restart)
        else:
            await self._end(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        """Called by KernelManager.finish_shutdown when a clean end takes too long."""
        if self._watch is None:
            await super().terminate(restart)
        else:
            await self._end(signal.SIGTERM)

    async def shutdown_requested(self, restart: bool = False) -> None:
        """Called by KernelManager.request_shutdown, at a user's restart too, when the kernel has already been asked to end.

        From now on its end is what the user wants: it must not be undone.
        """
        if self._watch is not None:
            await self._try("policy", replace(self.policy, restore_on_death=False))

    async def cleanup(self, restart: bool = False) -> None:
        """Called by KernelManager.cleanup_resources, whatever became of the kernel."""
        await super().cleanup(restart=restart)
        if not restart and self.protection.protected:
            await self._let_go()
            try:
                async with agent_client(self.agent) as client:
                    await client.forget(self.perdure_id, snapshots=self.snapshots_at_shutdown)
            except PerdureError as problem:
                self.log.warning("Kernel %s could not be cleared away: %s", self.kernel_id, problem)
            self.protection = NOT_STARTED

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """Called by KernelManager.finish_shutdown; seconds."""
        return max(recommended, SHUTDOWN_S) if self._watch else recommended

    def get_stable_start_time(self, recommended: float = 10.0) -> float:
        """Called by the restarter; seconds."""
        return max(recommended, START_S) if self._watch else recommended

    async def get_provisioner_info(self) -> dict[str, Any]:
        """Called by applications that outlive their kernels. Plain JSON, and as secret as the connection file."""
        info = await super().get_provisioner_info()
        info["connection_info"] = {
            name: value.decode() if isinstance(value, bytes) else value for name, value in info["connection_info"].items()
        }
        info["own_address"] = self._own_address
        info["protection"] = self.protection.to_json()
        return info

    async def load_provisioner_info(self, provisioner_info: dict[str, Any]) -> None:
        """Called by such applications after their own restart. Raises NotFound when the agent doesn't know the kernel."""
        await super().load_provisioner_info(provisioner_info)
        # A copy, with the key as kernel managers have it: they compare.
        info = provisioner_info["connection_info"]
        self.connection_info = {**info, "key": info["key"].encode()}
        self._own_address = bool(provisioner_info.get("own_address"))
        if provisioner_info.get("protection", {}).get("protected"):
            async with agent_client(self.agent) as client:
                self._started(await client.kernel(self.perdure_id), {})

    async def _look(self) -> Protection:
        if self.parent is None:
            return Protection(False, "The kernel has no kernel manager.")
        try:
            _ = self.perdure_id
        except PerdureError as problem:
            return protection.refused(problem)
        return await protection.look(self.agent or None, self.parent.transport)

    def _request(self, cmd: list[str], kwargs: dict[str, Any]) -> StartRequest:
        env = {name: value for name, value in kwargs["env"].items() if name != _PARENT}
        manager: Any = self.parent
        words = [os.path.expanduser(word) for word in cmd]
        program = words[0] if os.sep in words[0] else shutil.which(words[0], path=env.get("PATH")) or words[0]
        return StartRequest(
            kernel_id=self.perdure_id,
            argv=(program, *words[1:]),
            env=env,
            cwd=str(Path(kwargs.get("cwd") or ".").expanduser().absolute()),
            endpoint=endpoints.of(manager),
            kernel_name=manager.kernel_name,
            display_name=self.kernel_spec.display_name,
            notebook=env.get("JPY_SESSION_NAME", ""),
            policy=self.policy,
            repository=self.repository or os.environ.get("PERDURE_REPOSITORY") or None,
        )

    def _started(self, status: KernelStatus, kwargs: dict[str, Any]) -> None:
        self.protection = PROTECTED
        self.pid, self.pgid, self.ip = status.pid, None, status.endpoint.ip
        self.cwd = kwargs.get("cwd") or Path.cwd()
        self._watch = Watch(self.agent or None, status)
        # A manager that isn't asynchronous runs its loop only while something is asked: a task would starve.
        if isinstance(self.parent, AsyncKernelManager):
            self._watch.follow()

    async def _end(self, signum: int) -> None:
        if self._watch is not None and self._watch.ended() is None:
            await self._try("kill", signum)

    async def _try(self, what: str, value: Any) -> None:
        """Something that is done again, in a harder way, by whoever called: the agent being away is not an error here."""
        try:
            async with agent_client(self.agent) as client:
                status = await (
                    client.kill(self.perdure_id, value) if what == "kill" else client.set_policy(self.perdure_id, value)
                )
        except PerdureError as problem:
            self.log.warning("Kernel %s: %s", self.kernel_id, problem)
        else:
            self.take(status)

    async def _let_go(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.stop()
