"""Talking to the agent from a verb."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from perdure.domain.errors import BadRequest, Conflict, NotFound
from perdure.domain.ids import KernelId, kernel_id
from perdure.domain.phases import Phase

from .app import PerdureApp

if TYPE_CHECKING:
    from perdure.wire.client import AgentClient

T = TypeVar("T")

_PASSING = (Phase.STARTING, Phase.SNAPSHOTTING, Phase.SUSPENDING, Phase.RESUMING, Phase.RESTORING)


def ask(app: PerdureApp, question: Callable[[AgentClient], Awaitable[T]]) -> T:
    """The agent's answer. Raises AgentUnreachable, ProtocolMismatch and whatever the agent raised."""
    from perdure.wire.client import AgentClient

    async def asked() -> T:
        client = AgentClient(app.agent or None)
        try:
            return await question(client)
        finally:
            await client.close()

    return asyncio.run(asked())


async def find_kernel(client: AgentClient, text: str) -> KernelId:
    """The caller's kernel that `text` means. Raises BadRequest, NotFound."""
    prefix = kernel_id(text)
    return pick(prefix, [status.kernel_id for status in await client.kernels()])


async def patiently(client: AgentClient, kernel: KernelId, question: Callable[[], Awaitable[T]]) -> T:
    """Asks again while the kernel is just being started, saved or restored: that ends by itself. Raises what `question` does."""
    refused = False
    while True:
        seen = await client.kernel(kernel)
        if seen.phase in _PASSING:
            await client.wait(kernel, seen.seq)
            continue
        try:
            return await question()
        except Conflict:
            if refused and (await client.kernel(kernel)).phase not in _PASSING:
                raise
            refused = True  # perhaps it was over just after we had been told so: once more


def pick(prefix: str, kernels: Iterable[KernelId]) -> KernelId:
    """The one that is called `prefix` or, alone, begins so. Raises NotFound, and BadRequest when there are several."""
    fitting = sorted(kernel for kernel in kernels if kernel.startswith(prefix))
    if prefix in fitting:
        return KernelId(prefix)
    if not fitting:
        raise NotFound(f"There is no kernel {prefix}.", hint="`perdure list` shows those that there are.")
    if len(fitting) > 1:
        raise BadRequest(f"{prefix} is the beginning of {len(fitting)} kernels.", hint=f"They are: {', '.join(fitting)}.")
    return fitting[0]
