"""Whoever wants to know when a kernel's status has changed."""

from __future__ import annotations

import asyncio


class News:
    """`seq` grows with each change. It begins with the time in milliseconds, so that it is higher than all that an agent before
    this one, or an earlier start of this kernel, has told: who waits for something newer than that must not wait in vain."""

    def __init__(self, now: float) -> None:
        self.seq = int(now * 1000)
        self._next = asyncio.Event()

    def tell(self) -> None:
        """Something has changed."""
        self.seq += 1
        told, self._next = self._next, asyncio.Event()
        told.set()

    async def newer(self, seq: int, seconds: float) -> None:
        """Returns once there is something newer than `seq`, or after so many seconds. At once for a `seq` that was never told:
        the clock was set back between an earlier agent and this one, and what the caller knows is older than all of ours."""
        if seq > self.seq:
            return
        try:
            async with asyncio.timeout(seconds):
                while self.seq <= seq:
                    await self._next.wait()
        except TimeoutError:
            pass  # nothing has changed; an answer tells the caller that we live
