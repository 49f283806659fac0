"""Starts ipykernel so that its kernel can be saved and brought back, and is a plain ipykernel in every other way.

`python -m perdure.kernelside.launch -f FILE`, or by its path in an environment that has no Perdure. Three things differ from
`-m ipykernel_launcher`:

- no tip in the banner, unless the user's configuration asks for tips: choosing one draws from the user's random numbers at every
  kernel_info request;
- the history database is open only for the moment in which it is read or written (`history.py`);
- the debugger has no daemon of its own (`debugger.py`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


def clean_path() -> None:
    """Take out what Python put in front for starting this file; ipykernel adds the working folder itself, later."""
    if sys.path and sys.path[0] in ("", os.getcwd(), HERE):
        del sys.path[0]


def load(name: str) -> Any:
    """A file beside this one by its path, as a module that no user has: the package may not be importable here."""
    spec = importlib.util.spec_from_file_location(f"_perdure_{name}", os.path.join(HERE, f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{HERE}/{name}.py is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_tips(app: Any) -> None:
    """Tips off where the user's files say nothing of them. Between the files and the command line, which has the last word."""
    load = app.load_config_file

    def load_and_add(*arguments: Any, **named: Any) -> None:
        load(*arguments, **named)
        from IPython.core.interactiveshell import InteractiveShell

        said = any("enable_tip" in app.config[name] for name in ("InteractiveShell", "ZMQInteractiveShell"))
        if not said and "enable_tip" in InteractiveShell.class_trait_names():
            app.config.InteractiveShell.enable_tip = False

    app.load_config_file = load_and_add


def main() -> None:
    clean_path()
    # What a program sees of its own start: the same as in a plain kernel.
    launcher = importlib.util.find_spec("ipykernel_launcher")
    if launcher is not None and launcher.origin:
        sys.argv[0] = launcher.origin

    from ipykernel.kernelapp import IPKernelApp

    load("history").install()
    app = IPKernelApp.instance()
    without_tips(app)
    load("debugger").install(app)
    app.initialize()
    app.start()


if __name__ == "__main__":
    main()
