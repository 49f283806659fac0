"""Whether kernels can be protected here, and if not, why and what mends it."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.domain.errors import PerdureError
from perdure.wire.spawn import ensure_agent


@dataclass(frozen=True)
class Protection:
    """`why` and `fix` are sentences for a person; both are empty when it is protected."""

    protected: bool
    why: str = ""
    fix: str = ""

    def to_json(self) -> dict[str, bool | str]:
        return {"protected": self.protected, "why": self.why, "fix": self.fix}


PROTECTED = Protection(True)
NOT_STARTED = Protection(False, "The kernel has not been started.")


def refused(problem: PerdureError) -> Protection:
    return Protection(False, problem.sentence, problem.hint or "`perdure doctor` says what is missing.")


async def look(address: str | None, transport: str) -> Protection:
    """Ask the agent (started if that is allowed) what this host can do. Never raises a PerdureError."""
    if transport != "tcp":
        return Protection(
            False,
            f"The kernel's channels use {transport}.",
            "Set KernelManager.transport to 'tcp'.",
        )
    try:
        host = await ensure_agent(address)
    except PerdureError as problem:
        return refused(problem)
    if not host.protects:
        return Protection(False, host.why, host.fix)
    return PROTECTED
