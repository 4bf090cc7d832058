"""``dgcf serve``: recommendations over HTTP, with the page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from dgcf.cli import completion
from dgcf.cli.terminal import AsJson, emit, notify, warn
from dgcf.errors import ConfigError

MAX_WORKERS = 64
EXPERIMENT = "Experiments"
REFRESH = "Refresh"
SERVERS = "Several servers"
_HOURS = {"h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def command(
    model: Annotated[
        Path,
        Argument(
            metavar="MODEL",
            help="A saved recommender, or a run folder of `dgcf train`.",
            show_default=False,
            autocompletion=completion.recommenders,
        ),
    ],
    host: Annotated[str, Option(help="Address to listen at; 0.0.0.0 for all networks.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port; 0 for one that is free.", min=0, max=65535)] = 8000,
    workers: Annotated[
        int, Option(help="Processes that answer, each with the model in memory.", min=1, max=MAX_WORKERS)
    ] = 1,
    data: Annotated[
        Path | None,
        Option(help="Folder of the events, which restarts use again.", show_default="MODEL-service, beside the model"),
    ] = None,
    tokens: Annotated[
        Path | None,
        Option(
            help="File with lines `read TOKEN`, `write TOKEN` or `admin TOKEN`. Tokens may also be in the environment: "
            "DGCF_READ_TOKEN, DGCF_WRITE_TOKEN, DGCF_ADMIN_TOKEN.",
            show_default=False,
        ),
    ] = None,
    items_table: Annotated[
        Path | None,
        Option(
            help="CSV or Parquet file with a column of the item, and attributes for rules such as max_per.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        float | None, Option(help="Requests a second for each token or client.", show_default="no limit")
    ] = None,
    origin: Annotated[
        list[str] | None,
        Option(help="Origin whose pages may call the service, such as https://shop.example; repeatable."),
    ] = None,
    retention: Annotated[
        str | None, Option(help="Delete events after so long: 30d, 52w or 48h.", show_default="never")
    ] = None,
    refresh_every: Annotated[
        str | None,
        Option(
            help="Update the model with the events so often, such as 24h; needs torch.",
            show_default="on demand only",
            rich_help_panel=REFRESH,
        ),
    ] = None,
    refresh_memory: Annotated[
        str | None,
        Option(
            help="Memory that an update may use, such as 4GB.",
            show_default="half of what is free",
            rich_help_panel=REFRESH,
        ),
    ] = None,
    refresh_timeout: Annotated[
        str | None,
        Option(help="Time that an update may take, such as 30m.", show_default="1h", rich_help_panel=REFRESH),
    ] = None,
    refresh_margin: Annotated[
        float | None,
        Option(
            help="Share of NDCG@20 on the newest events that an update may lack before it is refused.",
            show_default="0.02",
            rich_help_panel=REFRESH,
        ),
    ] = None,
    keep_models: Annotated[
        int, Option(help="Models whose copies are kept for a rollback.", min=2, max=1000, rich_help_panel=REFRESH)
    ] = 5,
    arm: Annotated[
        list[str] | None,
        Option(help="Another model for some of the users, as NAME=MODEL; repeatable.", rich_help_panel=EXPERIMENT),
    ] = None,
    split: Annotated[
        str | None,
        Option(help="Weights of the arms, such as main=0.9,b=0.1.", show_default="equal", rich_help_panel=EXPERIMENT),
    ] = None,
    experiment: Annotated[
        str | None,
        Option(
            help="Name of the experiment: users are assigned and results kept by it.",
            show_default=False,
            rich_help_panel=EXPERIMENT,
        ),
    ] = None,
    shadow: Annotated[
        list[str] | None,
        Option(
            help="A model that ranks lists after they were sent, to be compared, as NAME=MODEL; repeatable.",
            rich_help_panel=EXPERIMENT,
        ),
    ] = None,
    shadow_share: Annotated[
        float | None,
        Option(help="Share of the lists that shadows rank.", show_default="0.1", rich_help_panel=EXPERIMENT),
    ] = None,
    events: Annotated[
        str | None,
        Option(
            help="PostgreSQL database of the events, such as postgresql://dgcf@db/shop. A URL with a password belongs "
            "in the environment variable DGCF_EVENTS_URL.",
            show_default="a file in the folder of --data",
            rich_help_panel=SERVERS,
        ),
    ] = None,
    models: Annotated[
        str | None,
        Option(
            help="Folder or address (s3://BUCKET/PREFIX) where all servers find the models that one of them publishes.",
            show_default="each server has its own",
            rich_help_panel=SERVERS,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Serve recommendations over HTTP, with a page to try them at the root.

    Events that are posted count in the next answer. SIGHUP loads the model anew without downtime; SIGTERM and Ctrl-C
    let requests under way finish. The log is JSON on stderr.

    Example: `dgcf serve runs/shop --workers 2 --tokens tokens.txt`

    Example: `dgcf serve runs/shop --refresh-every 24h --tokens tokens.txt`

    Example: `dgcf serve runs/shop --arm b=runs/other --split main=0.5,b=0.5 --experiment other-loss`
    """
    from dgcf.serve.experiments.options import arms_of
    from dgcf.serve.refresh.options import refreshing_of
    from dgcf.serve.server.binding import default_data
    from dgcf.serve.server.headers import check_origin
    from dgcf.serve.server.sharing import events_url, models_address
    from dgcf.serve.server.supervisor import serve
    from dgcf.serve.server.tokens import read_tokens
    from dgcf.serve.settings import Settings

    if rate is not None and not 0 < rate < float("inf"):
        raise ConfigError(f"--rate is {rate:g}, expected a number of requests above 0.")
    model, folder = model.expanduser(), data.expanduser() if data is not None else default_data(model)
    settings = Settings(
        model=Path(os.path.abspath(model)),  # noqa: PTH100 (a link keeps its own name)
        data=Path(os.path.abspath(folder)),  # noqa: PTH100
        host=host,
        port=port,
        workers=workers,
        tokens=read_tokens(tokens, os.environ, warn),
        items_table=items_table and Path(os.path.abspath(items_table.expanduser())),  # noqa: PTH100
        rate=rate,
        origins=tuple(check_origin(text) for text in origin or []),
        retention=None if retention is None else seconds_of(retention),
        refresh=refreshing_of(refresh_every, refresh_memory, refresh_timeout, refresh_margin),
        keep_models=keep_models,
        events=events_url(events, os.environ, warn),
        models=models_address(models),
        more=arms_of(arm or (), split, shadow or (), experiment, shadow_share),
    )
    _warn_if_open(settings.host, bool(settings.tokens))

    def announce(about: dict[str, Any]) -> None:
        count = f"{settings.workers} worker{'s' if settings.workers > 1 else ''}"
        place = settings.data if settings.events is None else about["events"]
        notify(f"serving {model} at {about['url']} ({count}, events in {place}); stop with Ctrl-C.")
        emit(about, as_json, lambda: None)

    serve(settings, announce, warn)


def seconds_of(retention: str) -> float:
    """Return the length of ``--retention``, such as ``30d``, in seconds."""
    number, unit = retention.strip()[:-1], retention.strip()[-1:]
    try:
        seconds = float(number) * _HOURS[unit]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(
            f"--retention is {retention!r}, expected a length above 0 in hours, days or weeks, such as 30d."
        )
    return seconds


def _warn_if_open(host: str, tokens: bool) -> None:
    from dgcf.serve.server.headers import is_loopback

    if not is_loopback(host) and not tokens:
        warn(
            f"{host} can be reached by other machines, and no token is set: everyone there can read and write; set "
            "tokens with --tokens, and put TLS in front of it."
        )
