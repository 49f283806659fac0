"""`perdure agent …`: the daemon; its options are its own."""

from __future__ import annotations

from typing import Any

from .app import PerdureApp


class AgentApp(PerdureApp):
    """Run this host's agent, as root, until it is ended. `perdure agent --help` lists its options."""

    name = "perdure-agent"
    description = __doc__

    def initialize(self, argv: Any = None) -> None:
        arguments = list(argv or ())
        self.json = "--json" in arguments
        self.extra_args = [argument for argument in arguments if argument != "--json"]

    def run(self) -> int:
        from perdure.agent.main import main

        status = main(self.extra_args)
        if self.json:
            self.show({"exit_status": status}, "")
        return status
