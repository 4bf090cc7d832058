"""The command line: one file per verb, all of them speaking through ``dgcf.cli.terminal``."""

from __future__ import annotations

import os
from importlib import import_module

import typer

# Verbs, in the order in which `dgcf --help` lists them: (module, what it registers).
VERBS = (
    *("data", "graph", "oscillation"),
    *("models", "train", "tune", "evaluate", "compare", "reproduce"),
    *("recommend", "similar", "explain", "export"),
)


def application() -> typer.Typer:
    """All verbs. Modules are imported here, not at the top, so that `import dgcf` stays light."""
    from dgcf.cli.terminal import Verbs

    app = typer.Typer(
        name="dgcf",
        cls=Verbs,
        help="Recommendations from who interacted with what, by graph propagation that does not oscillate.",
        epilog="Exit codes: 0 done; 1 the work failed; 2 the call was wrong; 130 interrupted by a signal. "
        "With --json, an error is an object on stdout too: kind, message, hint.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for verb in VERBS:
        import_module(f"dgcf.cli.{verb}").register(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from dgcf.version import __version__

        typer.echo(f"dgcf {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    """Recommendations from who interacted with what, by graph propagation that does not oscillate."""


def main() -> None:
    """The entry point of the command ``dgcf``."""
    # Before torch starts its threads: on a busy machine, threads that wait by spinning make training 15 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from dgcf.cli.terminal import run

        run(application())
    except KeyboardInterrupt:  # before the verb has begun
        raise SystemExit(130) from None
