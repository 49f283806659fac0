"""What all verbs have in common: Jupyter's configuration, --json, the agent's and the repository's address."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

from jupyter_core.application import JupyterApp, base_aliases, base_flags
from traitlets import Bool, TraitError, Unicode, default
from traitlets.config.loader import ArgumentError, KVArgParseConfigLoader

from perdure import __version__
from perdure.domain.errors import BadRequest

HELP_HINT = "--help shows what there is."
ALIASES: dict[str, Any] = {**base_aliases, "agent": "PerdureApp.agent", "repository": "PerdureApp.repository"}
FLAGS: dict[str, Any] = {
    **{name: flag for name, flag in base_flags.items() if name not in ("show-config", "show-config-json")},
    "json": ({"PerdureApp": {"json": True}}, "print one JSON document instead of text"),
    "debug": (base_flags["debug"][0], "log more, and show where an error comes from"),
}


class _StrictLoader(KVArgParseConfigLoader):
    """A misspelt option is an error: a warning that "it will have no effect" is lost on a script."""

    def _parse_args(self, args: Any) -> Any:
        def wrong(message: str) -> NoReturn:
            raise BadRequest(f"The command line is wrong: {message}.", hint=HELP_HINT)

        self.parser.error = wrong  # type: ignore[method-assign]
        return super()._parse_args(args)

    def _handle_unrecognized_alias(self, arg: str) -> None:
        raise BadRequest(f"There is no option --{arg.lstrip('-')}.", hint=HELP_HINT)


class PerdureApp(JupyterApp):
    """A verb, or a group of verbs.

    Settings come from the command line, else from perdure_config.py or .json in Jupyter's configuration folders, else from the
    environment.
    """

    name = "perdure"
    version = __version__
    aliases = ALIASES
    flags = FLAGS

    agent = Unicode(help="Address of the agent: unix:///path. Default: $PERDURE_AGENT, else unix:///run/perdure/agent.sock.").tag(
        config=True
    )
    repository = Unicode(
        help="Where snapshots are: file:///path or s3://bucket/prefix. Default: $PERDURE_REPOSITORY, else the agent's own."
    ).tag(config=True)
    json = Bool(False, help="Print one JSON document on stdout; logs go to stderr in any case.").tag(config=True)

    arguments: tuple[str, ...] = ()
    """Names of the arguments that the verb wants; in square brackets: it can be left out."""

    @default("config_file_name")
    def _one_file_for_all_verbs(self) -> str:
        return "perdure_config"

    @default("agent")
    def _agent_from_environment(self) -> str:
        return os.environ.get("PERDURE_AGENT", "")

    @default("repository")
    def _repository_from_environment(self) -> str:
        return os.environ.get("PERDURE_REPOSITORY", "")

    def initialize(self, argv: Any = None) -> None:
        """Called once with the arguments behind the verb's name. Raises BadRequest."""
        try:
            # Without traitlets' decorator, which logs the problem and exits with 1.
            inspect.unwrap(JupyterApp.initialize)(self, argv)
        except (TraitError, ArgumentError) as problem:
            raise BadRequest(f"A setting is wrong: {problem}", hint=HELP_HINT) from problem

    def load_config_file(self, suppress_errors: bool = False) -> None:  # type: ignore[override]
        """Called by JupyterApp.initialize. Raises BadRequest: a setting that is ignored is worse than one that is refused."""
        self.raise_config_file_errors = True
        try:
            super().load_config_file(suppress_errors=suppress_errors)
        except BadRequest:
            raise
        except Exception as problem:  # a configuration file is a program: anything may come out of it
            folders = ", ".join(self.config_file_paths)
            raise BadRequest(
                f"A configuration file can't be used: {type(problem).__name__}: {problem}.",
                hint=f"It is jupyter_config or {self.config_file_name}, .py or .json, in one of: {folders}.",
            ) from problem

    def parse_command_line(self, argv: Any = None) -> None:
        """Called by `initialize`."""
        inspect.unwrap(JupyterApp.parse_command_line)(self, argv)

    def exit(self, exit_status: Any = 0) -> NoReturn:
        """Called by traitlets after --help and --version, and with 1 while it handles a bad value in a configuration file."""
        problem = sys.exception()
        if isinstance(problem, (TraitError, ArgumentError)):
            raise BadRequest(f"A setting is wrong: {problem}", hint=HELP_HINT) from problem
        sys.exit(exit_status)

    def run(self) -> int:
        """What `start` is to other applications; returns the exit status. Raises PerdureError."""
        if isinstance(self.subapp, PerdureApp):
            return self.subapp.run()
        if self.generate_config:
            self.write_default_config()
            return 0
        wanted = [name for name in self.arguments if not name.startswith("[")]
        if not self.subcommands and not len(wanted) <= len(self.extra_args) <= len(self.arguments):
            usage = " ".join([self.name.replace("-", " "), *self.arguments])
            raise BadRequest(f"Usage: {usage}", hint=HELP_HINT)
        return self.act(*self.extra_args)

    def act(self, *arguments: str) -> int:
        """The verb's work; a group of verbs has none."""
        verbs = ", ".join(self.subcommands)
        if arguments:
            raise BadRequest(f"There is no verb {arguments[0]!r}.", hint=f"There are: {verbs}. Options come after the verb.")
        if not self.json:
            self.print_help()
        raise BadRequest("A verb is missing.", hint=f"There are: {verbs}.")

    def show(self, document: dict[str, Any], text: str) -> None:
        """The verb's result: one of the two goes to stdout."""
        print(json.dumps(document, indent=2) if self.json else text)

    def migrate_config(self) -> None:
        """Called by JupyterApp.initialize. There was no Perdure in IPython's days: nothing to migrate."""

    def _find_subcommand(self, name: str) -> str:
        """Called by JupyterApp.initialize: no verbs are taken from programs on PATH (perdure-shim is none)."""
        return ""

    def _create_loader(self, argv: Any, aliases: Any, flags: Any, classes: Any) -> KVArgParseConfigLoader:
        return _StrictLoader(argv, aliases, flags, classes=classes, log=self.log, subcommands=self.subcommands)


def later(module: str, name: str) -> Callable[[PerdureApp], PerdureApp]:
    """A verb that is imported when it is called: `perdure list` must not wait for what `doctor` needs."""

    def make(parent: PerdureApp) -> PerdureApp:
        verb: type[PerdureApp] = getattr(import_module(f"perdure.cli.{module}"), name)
        return verb(parent=parent)

    return make
