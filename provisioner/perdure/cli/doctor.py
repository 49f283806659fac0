"""`perdure doctor`: what a person runs first when it doesn't work. It needs no agent, no root and no CRIU."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from perdure import __version__
from perdure.domain.errors import PerdureError
from perdure.wire.address import agent_address

from .app import PerdureApp
from .checks import engine, host
from .checks.check import Check
from .checks.jupyter import jupyter
from .checks.repository import repository
from .connection import ask
from .place import repository_url, store_settings

if TYPE_CHECKING:
    from perdure.wire.messages import HostInfo


class DoctorApp(PerdureApp):
    """What this host lacks to protect kernels: for each check what was found, what it means, and what mends it.

    Exit status 1 when kernels that start here are not protected.
    """

    name = "perdure-doctor"
    description = __doc__

    def act(self, *arguments: str) -> int:
        uid = os.geteuid()
        info, trouble = self._ask_agent()
        address = agent_address(self.agent)
        checks = [host.python(), host.privilege(uid, address, trouble), *(host.own_facts(uid) if info is None else ())]
        criu_check, criu = engine.criu()
        url = repository_url(self) if self.repository or info is None else info.repository
        repository_checks, repository_facts = repository(url, store_settings(self), ours=uid == 0)
        gpu_check, gpus = engine.gpus()
        checks += [host.native_programs(), criu_check, *repository_checks, *jupyter(), gpu_check]
        if info is not None:
            criu = info.criu
            checks = _instead(checks, [Check.from_json(one) for one in info.checks])
        document = {
            "perdure": __version__,
            "protected": all(check.ok for check in checks if check.needed),
            "criu": criu,
            "agent": None if info is None else {"address": address, **info.to_json()},
            "repository": repository_facts,
            "gpus": gpus,
            "checks": [check.to_json() for check in checks],
        }
        self.show(document, text(checks))
        return 0 if document["protected"] else 1

    def _ask_agent(self) -> tuple[HostInfo | None, PerdureError | None]:
        try:
            return ask(self, lambda client: client.host()), None
        except PerdureError as error:
            return None, error


def _instead(ours: list[Check], agents: list[Check]) -> list[Check]:
    """The agent is the one that has to do it: what it found counts, where both have looked."""
    names = {check.name for check in agents}
    first, *rest = [check for check in ours if check.name not in names]
    return [first, *agents, *rest]


def text(checks: list[Check]) -> str:
    """What a person reads: the trouble in full, the rest in a line each."""
    width = max(len(check.name) for check in checks)
    indent = " " * (width + 8)
    lines = []
    capabilities = [check for check in checks if check.name.startswith("cap_")]
    for check in checks:
        if check.ok and check in capabilities:
            continue
        mark = "ok" if check.ok else "NO" if check.needed else "--"
        lines.append(f"{check.name.ljust(width)}  {mark}    {check.found}")
        if not check.ok:
            lines += [f"{indent}{check.means}", f"{indent}-> {check.fix}"]
    if capabilities:
        have = sum(check.ok for check in capabilities)
        lines.append(
            f"{'capabilities'.ljust(width)}  {'ok' if have == len(capabilities) else '--'}    {have} of {len(capabilities)}"
        )
    missing = [check.name for check in checks if check.needed and not check.ok]
    if missing:
        lines += ["", f"Kernels that start here work, but they are NOT protected. In the way: {', '.join(missing)}."]
    else:
        lines += ["", "Kernels that start here are protected."]
    return "\n".join(lines)
