"""Notices the end of a process at once, without being its parent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from perdure.runtime.identity import ProcessIdentity


class Watch:
    """Follows one process at a time; `ended` is called in the event loop, once for each that ends while it is followed."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._pidfd: int | None = None

    def follow(self, process: ProcessIdentity) -> None:
        """From now on this one. `ended` is also called for one that is gone already."""
        self.stop()
        loop = asyncio.get_running_loop()
        try:
            self._pidfd = process.pidfd()
        except ProcessLookupError:
            loop.call_soon(self._ended)
            return
        loop.add_reader(self._pidfd, self._gone)

    def stop(self) -> None:
        fd, self._pidfd = self._pidfd, None
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def _gone(self) -> None:
        self.stop()
        self._ended()
