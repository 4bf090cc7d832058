"""The command line: one module a verb holds its options, ``views`` draw its answer, ``terminal`` prints it."""

from __future__ import annotations

import os
from importlib import import_module

import typer
from typer import Option

# In the order of `dgcf --help`. Each is a module with a function `command`, or with an `app` that has verbs of its own.
VERBS = (
    *("data", "train", "recommend", "evaluate", "update", "compare", "tune"),
    *("serve", "forget", "similar", "explain", "export", "models", "graph", "oscillation", "reproduce"),
)
GROUPS = ("data",)


def application() -> typer.Typer:
    """Return the application with all verbs; their modules are imported now, so that `import dgcf` stays fast."""
    from dgcf.cli.terminal import HelpIfAlone, Verbs

    app = typer.Typer(
        name="dgcf",
        cls=Verbs,
        epilog="Exit codes: 0 success; 1 failure; 2 incorrect usage; 130 interrupted by a signal. "
        "With --json, an error is also an object on stdout: kind, message, hint.",
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for verb in VERBS:
        module = import_module(f"dgcf.cli.{verb}")
        if verb in GROUPS:
            app.add_typer(module.app, name=verb, cls=HelpIfAlone)
        else:
            app.command(verb)(module.command)
    return app


def _version(requested: bool) -> None:
    if requested:
        from dgcf.version import __version__

        typer.echo(f"dgcf {__version__}")
        raise typer.Exit


def _root(
    version: bool = Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    """Train, evaluate and explain recommenders for implicit feedback: DGCF, a graph model without oscillation, and
    its baselines."""


def main() -> None:
    """Run the command ``dgcf``."""
    # Before torch starts its threads: on a busy machine, spinning threads make training 15 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from dgcf.cli.terminal import run

        run(application())
    except KeyboardInterrupt:  # during the imports
        raise SystemExit(130) from None
