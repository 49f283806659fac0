"""Whoever wants to know when a kernel's status has changed."""

from __future__ import annotations

import asyncio


class News:
    """`seq` grows with each change, from 1."""

    def __init__(self) -> None:
        self.seq = 1
        self._next = asyncio.Event()

    def tell(self) -> None:
        """Something has changed."""
        self.seq += 1
        told, self._next = self._next, asyncio.Event()
        told.set()

    async def newer(self, seq: int, seconds: float) -> None:
        """Returns once there is something newer than `seq`, or after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                while self.seq <= seq:
                    await self._next.wait()
        except TimeoutError:
            pass  # nothing has changed; an answer tells the caller that we live
