"""ipykernel's debugger, without a daemon beside the kernel.

What goes wrong in the world: when a page's debugger is switched on, debugpy starts an adapter, a process that cuts itself loose
from the kernel on purpose. An image holds the kernel's tree, so the adapter is not in it: after a restore its connections are
closed, ipykernel waits for ever for its answers, and nothing is answered on the control channel any more.

What we do: debugpy can speak the same protocol from within the kernel. Then both ends of the connection are in one process, and
a cell that stands at a breakpoint is saved and stands there again. In this mode the answer to `attach` comes before that to
`configurationDone`, not after it; ipykernel passes on the later one, so it is made `attach`'s again.

What we don't promise: a `debugpy.listen()` of the user's own, for a debugger outside Jupyter, is left as it is.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

_INSIDE = "in_process_debug_adapter"


def install(app: Any) -> None:
    """For the kernel that `app` will make. Not at once: debugpy warns when it is imported, and ipykernel does that with a
    kernel's output in place."""
    init_kernel = app.init_kernel

    def adapt_and_init() -> None:
        adapt()
        init_kernel()

    app.init_kernel = adapt_and_init


def adapt() -> None:
    """Does nothing where there is no debugpy, or one that can't speak from within."""
    try:
        from ipykernel import debugger
    except ImportError:
        return
    if not debugger._is_debugpy_available:
        return
    import debugpy

    if _INSIDE not in inspect.signature(debugpy.listen).parameters:
        return
    Debugger = debugger.Debugger
    start, attach = Debugger.start, Debugger.attach

    @functools.wraps(start)
    def start_inside(self: Any) -> Any:
        # ipykernel's main thread runs `debugpy.listen(…)` meanwhile: a silent cell that this waits for.
        listen = debugpy.listen
        debugpy.listen = functools.partial(listen, **{_INSIDE: True})
        try:
            return start(self)
        finally:
            debugpy.listen = listen

    @functools.wraps(attach)
    async def attach_inside(self: Any, message: dict[str, Any]) -> Any:
        request = {"command": message["command"], "request_seq": message["seq"]}
        return {**await attach(self, message), **request}

    Debugger.start, Debugger.attach = start_inside, attach_inside  # type: ignore[method-assign]
