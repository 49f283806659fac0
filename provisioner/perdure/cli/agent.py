"""`perdure agent …`: the daemon; its options are its own."""

from __future__ import annotations

from typing import Any

from .app import PerdureApp


class AgentApp(PerdureApp):
    """Run this host's agent, as root, until it is ended. `perdure agent --help` lists its options."""

    name = "perdure-agent"
    description = __doc__

    def initialize(self, argv: Any = None) -> None:
        self.extra_args = list(argv or ())

    def run(self) -> int:
        from perdure.agent.main import main

        return main(self.extra_args)
