"""One command from its arguments to its exit status. Whatever goes wrong is said in a sentence and a hint, never a traceback
(unless --debug), and with --json there is exactly one JSON document on stdout either way."""

from __future__ import annotations

import json
import os
import sys
import traceback

from perdure.domain.errors import BadRequest, PerdureError

from .root import RootApp

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def run(argv: list[str]) -> int:
    """The exit status of the command `argv` (without the program's name)."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    as_json, debug = "--json" in own, "--debug" in own
    app = RootApp()
    try:
        app.initialize(argv)
        return app.run()
    except SystemExit as end:
        # Traitlets' way to end after --help and --version.
        return end.code if isinstance(end.code, int) else OK
    except KeyboardInterrupt:
        print("perdure: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has seen enough; Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except PerdureError as error:
        if debug:
            traceback.print_exc()
        _report(error, as_json=as_json, debug=debug)
        return USAGE if isinstance(error, BadRequest) else FAILED
    except Exception as error:  # a bug of ours: the user gets a sentence all the same
        if debug:
            traceback.print_exc()
        bug = PerdureError(f"Perdure ran into a bug: {type(error).__name__}: {error}.", hint="--debug shows where.")
        _report(bug, as_json=as_json, debug=debug)
        return FAILED
    finally:
        app.close_handlers()


def _report(error: PerdureError, *, as_json: bool, debug: bool) -> None:
    if as_json:
        _print_json(error)
    print(f"perdure: {error.sentence}", file=sys.stderr)
    if error.hint:
        print(f"  {error.hint}", file=sys.stderr)
    if error.detail and debug:
        print(error.detail, file=sys.stderr)


def _print_json(error: PerdureError) -> None:
    print(json.dumps({"error": error.to_json()}, indent=2))
