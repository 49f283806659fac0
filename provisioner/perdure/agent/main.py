"""`perdure agent`: the one place where everything is put together."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import grp
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from jupyter_core.application import JupyterApp, base_aliases, base_flags
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket
from traitlets import Bool, Float, List, Unicode, default

from perdure import __version__
from perdure.domain.errors import BadRequest, Conflict, Forbidden, NotProtected, PerdureError
from perdure.store.config import Store, settings_of
from perdure.wire.address import agent_address, socket_path

from .host import Host
from .http import application
from .registry import Registry

log = logging.getLogger("perdure.agent")

STATE = "/var/lib/perdure"
LARGEST_REQUEST = 64 << 20
"""A start request holds an environment, which Linux limits to some MiB."""
_BACKLOG = 128
_ENDING_S = 3.0
"""An agent without kernels, and one that has said farewell to them, is gone within a second."""
_LET_GO_S = 30.0
"""So long may what was given up take to end. Then the agent goes without it: a thread may wait for a file server for ever, and
the next agent clears up as it does after a kill."""


class AgentApp(JupyterApp):
    """Looks after the kernels of this host: starts them, snapshots them, brings them back. Runs as root.

    Kernels outlive it: when it is started again, it finds them.
    """

    name = "perdure-agent"
    version = __version__
    description = __doc__
    classes = [Store]  # noqa: RUF012
    aliases = {  # noqa: RUF012 - traitlets' way
        **base_aliases,
        "socket": "AgentApp.socket",
        "group": "AgentApp.group",
        "state": "AgentApp.state",
        "repository": "AgentApp.repository",
        "criu-prefix": "AgentApp.criu_prefix",
        "exit-when-idle": "AgentApp.exit_when_idle",
    }
    flags = {  # noqa: RUF012
        **{name: flag for name, flag in base_flags.items() if name in ("debug", "generate-config", "y")},
        "kernels-die": ({"AgentApp": {"kernels_die": True}}, "end all kernels when the agent ends, however it ends"),
    }

    socket = Unicode(help="Where to listen. Default: the path in $PERDURE_AGENT, else /run/perdure/agent.sock.").tag(config=True)
    group = Unicode(help="Members of this group may use the agent too (0660); empty: only root (0600).").tag(config=True)
    state = Unicode(help="Folder for everything that the agent keeps. Default: $PERDURE_STATE, else /var/lib/perdure.").tag(
        config=True
    )
    repository = Unicode(
        help="Where snapshots go (file:///folder or s3://bucket/prefix), a folder per owner. "
        "Default: $PERDURE_REPOSITORY, else in the state folder."
    ).tag(config=True)
    allowed_repositories = List(
        Unicode(), help="Repositories that users other than root may name. They must not be writable by others than root."
    ).tag(config=True)
    criu_prefix = Unicode(help="Where `perdure engine install` put CRIU, if not in one of the usual places.").tag(config=True)
    kernels_die = Bool(False, help="Kernels end with the agent.").tag(config=True)
    exit_when_idle = Float(0.0, help="End after so many seconds without a kernel and without a question; 0: never.").tag(
        config=True
    )

    @default("config_file_name")
    def _one_file_for_all(self) -> str:
        return "perdure_config"

    @default("socket")
    def _socket_from_environment(self) -> str:
        return str(socket_path(agent_address()))

    @default("state")
    def _state_from_environment(self) -> str:
        return os.environ.get("PERDURE_STATE") or STATE

    @default("repository")
    def _repository_from_environment(self) -> str:
        return os.environ.get("PERDURE_REPOSITORY", "")

    def migrate_config(self) -> None:
        """Called by JupyterApp.initialize; there is nothing to migrate."""

    def run(self) -> int:
        """Serves until SIGTERM, which leaves time for last snapshots, or SIGINT, which doesn't. Raises PerdureError."""
        if os.geteuid() != 0:
            raise NotProtected("The agent must run as root.", hint="Start it as a service, see docs/agent.md; or with sudo.")
        os.umask(0o077)
        path, state = Path(self.socket), Path(self.state).absolute()
        _own(state)
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            path.parent.chmod(0o755)  # who may use the socket is said by the socket
        with (
            _alone(path.with_name(path.name + ".lock"), f"at {path}"),
            _alone(state / "agent.lock", f"with the state in {state}"),
        ):
            _check_nobody_answers(path)
            host = Host(
                state=state,
                criu_prefix=Path(self.criu_prefix) if self.criu_prefix else None,
                repository=self.repository,
                store=settings_of(self.config),
                allowed_repositories=tuple(self.allowed_repositories),
                die_with_agent=self.kernels_die,
            )
            asyncio.run(self._serve(host, path))
        return 0

    async def _serve(self, host: Host, path: Path) -> None:
        ended, hurry = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def told(signum: int) -> None:
            if ended.is_set() or signum == signal.SIGINT:
                hurry.set()
            ended.set()

        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, told, signum)
        registry = Registry(host)
        await registry.load()
        heard_at = loop.time()

        def heard() -> None:
            nonlocal heard_at
            heard_at = loop.time()

        server = HTTPServer(application(registry, heard), max_body_size=LARGEST_REQUEST, max_buffer_size=LARGEST_REQUEST)
        path.unlink(missing_ok=True)  # nobody listens there: we hold the lock, and have tried
        listener = bind_unix_socket(str(path), mode=0o660 if self.group else 0o600, backlog=_BACKLOG)
        if self.group:
            os.chown(path, 0, _gid(self.group))
        server.add_socket(listener)
        log.info("the agent listens at %s", path)
        try:
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), 1.0)
                if self.exit_when_idle and registry.idle and loop.time() - heard_at > self.exit_when_idle:
                    log.info("nothing to look after: the agent ends")
                    break
            await _unless(hurry, registry.farewell())  # and answers meanwhile, lest somebody starts another agent
        finally:
            server.stop()
            path.unlink(missing_ok=True)
            await _close(registry)
            await server.close_all_connections()


async def _unless(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Does the work until it is done or the event is set."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(event.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                log.error("the farewell was cut short", exc_info=result)


async def _close(registry: Registry) -> None:
    try:
        async with asyncio.timeout(_LET_GO_S):
            await registry.close()
    except TimeoutError:
        log.error("something does not come to its end: the agent ends without it")
        logging.shutdown()
        os._exit(1)  # the interpreter's own way out waits for every thread


@contextlib.contextmanager
def _alone(lock: Path, where: str) -> Iterator[TextIO]:
    """Holds the lock file. Raises Conflict when another agent does; one that is just ending is waited for."""
    until = time.monotonic() + _ENDING_S
    with lock.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() > until:
                    raise Conflict(
                        f"Another agent runs already {where}.",
                        hint="Use that one, or give this one another --socket and --state.",
                    ) from error
            time.sleep(0.05)
        yield file


def _own(state: Path) -> None:
    """The agent's folder, root's alone. Raises Forbidden for somebody else's: who can write there could forge kernels."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    if state.stat().st_uid != 0:
        raise Forbidden(f"{state} does not belong to root.", hint=f"chown root: {state}, or choose another --state.")
    state.chmod(0o700)


def _check_nobody_answers(path: Path) -> None:
    """Raises Conflict: an agent whose lock file somebody removed, or another program."""
    if path.exists() and not path.is_socket():
        raise BadRequest(f"{path} is there and is no socket.", hint="Choose another --socket.")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError as error:
            why = error.strerror or str(error)
            raise BadRequest(f"Nobody can listen at {path}: {why}.", hint="Choose another --socket.") from error
    raise Conflict(f"Somebody listens at {path} already.", hint="Use that agent, or choose another --socket.")


def _gid(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise BadRequest(f"There is no group {name!r}.", hint=f"groupadd {name}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 ended as asked, 1 with one sentence on stderr."""
    app: Any = AgentApp()
    app.initialize(list(sys.argv[1:] if argv is None else argv))
    logging.basicConfig(
        level=logging.DEBUG if app.log_level <= logging.DEBUG else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    if app.generate_config:
        app.write_default_config()
        return 0
    try:
        return int(app.run())
    except OSError as error:
        print(f"perdure agent: {error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        return 1
    except PerdureError as error:
        print(f"perdure agent: {error.sentence}\n  {error.hint}".rstrip(), file=sys.stderr)
        return 1
