"""The proof that a kernel is back, given up when there is nobody left to prove anything.

`engine.prove` asks and waits as long as the largest kernel needs; a kernel that dies meanwhile, or is ended by its user, would be
waited for in vain. So it asks in a thread of its own. One that is left behind ends at its deadline and harms nobody: its
questions are silent.
"""

from __future__ import annotations

import queue
from threading import Event, Thread

from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import RestoreFailed
from perdure.engine.prove import prove
from perdure.runtime.sandbox import Sandbox

DEADLINE_S = 120.0
"""The first answer of a large kernel reads all of its memory back from disk."""
_LOOK_S = 0.05


def proven(sandbox: Sandbox, endpoint: Endpoint, *, busy: bool, cancelled: Event) -> None:
    """Returns when the kernel in the sandbox has proven itself. Raises NotProven, RestoreFailed when it ended."""
    answer: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    Thread(target=lambda: answer.put(_ask(endpoint, busy)), name="perdure-proof", daemon=True).start()
    while True:
        try:
            error, answered = answer.get(timeout=_LOOK_S), True
        except queue.Empty:
            error, answered = None, False
        if error is not None:
            raise error
        if cancelled.is_set():
            raise RestoreFailed("The restore was cancelled.")
        if sandbox.kernel() is None:
            raise RestoreFailed("The kernel ended right after it was brought back.")
        if answered:
            return


def _ask(endpoint: Endpoint, busy: bool) -> Exception | None:
    try:
        prove(endpoint, busy=busy, deadline_s=DEADLINE_S)
    except Exception as error:  # travels to the thread that waits, whatever it is
        return error
    return None
