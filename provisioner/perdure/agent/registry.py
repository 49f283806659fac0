"""All kernels of this host's agent."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import shutil
import socket
from weakref import WeakValueDictionary

from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import BadRequest, Conflict, Corrupt, Forbidden, NoRoom, NotFound, PerdureError, StoreFailed
from perdure.domain.ids import Generation, KernelId, Owner
from perdure.domain.phases import Phase
from perdure.wire.messages import GenerationInfo, StartRequest

from .capture import rfc3339
from .generations import read_all
from .host import Host
from .memory import Memory
from .peers import Peer
from .supervisor import Supervisor

log = logging.getLogger(__name__)


class Registry:
    """Kernels by id. A kernel that isn't the caller's is as good as not there."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._kernels: dict[KernelId, Supervisor] = {}
        self._starting: set[KernelId] = set()
        self._turns: WeakValueDictionary[KernelId, asyncio.Lock] = WeakValueDictionary()
        """One start or forgetting of an id at a time: they share a folder. A lock is kept by those who use it."""

    async def load(self) -> None:
        """Finds the kernels of the agent that was here before. One that can't be read is left as it is, and said."""
        folder = self.host.state / "kernels"
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            try:
                memory = Memory.load(path)
            except Corrupt as error:
                log.error("%s\n%s", error, error.detail)
                continue
            if memory is None:
                shutil.rmtree(path, ignore_errors=True)
                continue
            kernel = Supervisor(self.host, memory)
            self._kernels[memory.kernel] = kernel
            try:
                await kernel.adopt()
            except (PerdureError, OSError):  # the others must be found all the same
                log.exception("%s could not be adopted", memory.kernel)

    def visible(self, peer: Peer) -> list[Supervisor]:
        return [one for one in self._kernels.values() if peer.may_touch(one.memory.owner)]

    def get(self, kernel: KernelId, peer: Peer) -> Supervisor:
        """Raises NotFound."""
        found = self._kernels.get(kernel)
        if found is None or not peer.may_touch(found.memory.owner):
            raise NotFound(f"There is no kernel {kernel}.", hint="`perdure list` shows those that there are.")
        return found

    @property
    def idle(self) -> bool:
        """Nobody lives here."""
        return not any(one.phase.alive for one in self._kernels.values())

    async def start(self, request: StartRequest, peer: Peer) -> Supervisor:
        """The kernel's program runs. Raises Conflict, Forbidden, SandboxFailed, NotProtected …; then nothing has changed."""
        owner = request.owner or peer.as_owner()
        if owner != peer.as_owner() and not peer.root:
            raise Forbidden("Only root can start kernels for somebody else.")
        self.host.criu()
        url = self.host.repository_for(request.repository, owner, peer.uid)
        if request.kernel_id in self._starting:
            raise _there_already(request.kernel_id)
        async with self._turn(request.kernel_id):
            return await self._start_alone(request, peer, owner, url)

    async def _start_alone(self, request: StartRequest, peer: Peer, owner: Owner, url: str) -> Supervisor:
        before = self._kernels.get(request.kernel_id)
        if before is not None and (not peer.may_touch(before.memory.owner) or before.phase.alive):
            raise _there_already(request.kernel_id)
        _check_free(request.endpoint)
        memory = Memory.of_request(self.host.folder(request.kernel_id), request, owner, url, rfc3339(self.host.clock.now()))
        self._starting.add(request.kernel_id)
        try:
            return await self._start(memory, before, request.env)
        except OSError as error:
            kind = NoRoom if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreFailed
            raise kind(
                f"The agent can't write down that the kernel was started: {error.strerror or error}.",
                hint=f"The agent keeps its records in {self.host.state}.",
            ) from error
        finally:
            self._starting.discard(request.kernel_id)

    async def _start(self, memory: Memory, before: Supervisor | None, env: dict[str, str]) -> Supervisor:
        memory.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self.host.blocking(lambda: self._continue_numbers(memory))
        if before is not None:
            memory.incarnation = max(memory.incarnation, before.memory.incarnation + 1)
            memory.newest = max(memory.newest, before.memory.newest)
            if before.phase is Phase.FAILED:
                memory.last_error = before.memory.last_error  # why it begins afresh, until its first snapshot
        kernel = Supervisor(self.host, memory)
        try:
            await kernel.start(env)
        except BaseException:  # the caller is told, and must find everything as it was
            await kernel.close()
            if before is None:
                memory.forget()
            else:
                before.memory.save()
            raise
        if before is not None:
            await before.close()
        self._kernels[memory.kernel] = kernel
        return kernel

    async def forget(self, kernel: KernelId, peer: Peer, *, snapshots: str) -> None:
        """Ends it and forgets it. Idempotent."""
        if snapshots not in ("drop", "keep"):
            raise BadRequest(f"Snapshots can't be {snapshots!r}.", hint="It is drop or keep.")
        try:
            self.get(kernel, peer)
        except NotFound:
            return
        async with self._turn(kernel):
            try:
                found = self.get(kernel, peer)
            except NotFound:
                return
            await found.kill(9)
            await found.close()
            memory = found.memory
            try:
                if snapshots == "drop":
                    await self.host.blocking(lambda: self.host.open_repository(memory.repository).drop(kernel))
            except PerdureError:
                self._kernels[kernel] = Supervisor(self.host, memory)  # dead, and still there to be asked about
                raise
            await self.host.blocking(memory.forget)
            self._kernels.pop(kernel, None)

    def _turn(self, kernel: KernelId) -> asyncio.Lock:
        return self._turns.setdefault(kernel, asyncio.Lock())

    async def farewell(self) -> None:
        """The agent is told to end. May be cancelled: `close` gives up what isn't done."""
        await asyncio.gather(*(kernel.farewell() for kernel in self._kernels.values()))

    async def close(self) -> None:
        """The agent ends; kernels go on."""
        await asyncio.gather(*(kernel.close() for kernel in self._kernels.values()))

    def _continue_numbers(self, memory: Memory) -> None:
        """A kernel id that had snapshots before goes on counting. A repository that can't be read is no reason not to start."""
        try:
            known: dict[Generation, GenerationInfo] = {}
            read_all(self.host.open_repository(memory.repository), memory.kernel, known)
        except (StoreFailed, NoRoom) as error:
            memory.last_error = error
            return
        memory.newest = max(known, default=0)
        memory.incarnation = 1 + max((one.incarnation for one in known.values()), default=0)


def _there_already(kernel: KernelId) -> Conflict:
    return Conflict(f"Kernel {kernel} is there already.", hint="End it first, or choose another id.")


def _check_free(endpoint: Endpoint) -> None:
    """Raises Conflict when somebody listens at the kernel's address already."""
    for channel, port in endpoint.ports.items():
        with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((endpoint.ip, port))
            except OSError as error:
                raise Conflict(
                    f"The address {endpoint.ip}:{port} ({channel}) can't be used: {error.strerror}.",
                    hint="Another program listens there; the next attempt takes another address.",
                ) from error
