"""Keys that a command prints: a password manager, a key service."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess

from perdure.domain.errors import NoKey

TIMEOUT_S = 30.0
"""Nobody types a password here; a key service that takes longer is away."""
_HINT = "Try the command in a terminal, as the same user."


def output(command: str) -> str:
    """What it printed. Raises NoKey; its stderr goes into the detail, its stdout never does."""
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise NoKey(f"The key command can't be understood: {error}.", hint=_HINT) from error
    if not argv:
        raise NoKey("The key command is empty.", hint=_HINT)
    try:
        # A session of its own, so that what it has started ends with it.
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise NoKey(f"The key command can't be run: {error.strerror}.", hint=_HINT, detail=str(error)) from error
    with process:
        try:
            printed, said = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise NoKey(f"The key command didn't end within {TIMEOUT_S:.0f} s.", hint=_HINT) from None
        finally:
            _end(process)
    if process.returncode != 0:
        detail = said.decode(errors="replace")[-2000:]
        raise NoKey(f"The key command failed with status {process.returncode}.", hint=_HINT, detail=detail)
    return printed.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
