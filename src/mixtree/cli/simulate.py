"""``mixtree simulate``: how long a stored study would take with other numbers of workers."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated

import typer

from mixtree.cli.options import whole
from mixtree.cli.studies import Json, Name, Where, open_existing, pick
from mixtree.errors import InputError


def add_to(app: typer.Typer) -> None:
    app.command()(simulate)


def simulate(
    url: Where,
    study: Name = None,
    workers: Annotated[
        str, typer.Option(metavar="N,N,…", help="Numbers of workers, separated by commas.")
    ] = "1,2,4,8",
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole, help="Trials per round.", show_default="as recorded"),
    ] = None,
    times: Annotated[
        int, typer.Option(metavar="N", parser=whole, help="The recorded trials so many times over.")
    ] = 1,
    overhead: Annotated[
        float, typer.Option(metavar="S", help="Seconds a trial takes beyond training.")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Replay the recorded times of a study's trials with other numbers of workers: time, and idle share."""
    from mixtree.listeners.terminal import Terminal
    from mixtree.planning.parallel import regrouped, replay

    counts = [whole(each) for each in workers.split(",")]
    if min(counts) < 1 or (trials is not None and trials < 1) or times < 1 or not 0 <= overhead < 1e9:
        raise InputError("workers, trials and times are at least 1, the overhead a number of seconds")
    with closing(open_existing(url)) as storage:
        record = pick(storage, study)
        nodes = [each for each in storage.nodes(record.name) if each.status != "pending" and each.steps]
    recorded: dict[int, list[float]] = {}
    for node in nodes:
        recorded.setdefault(node.round, []).append(node.seconds or 0.0)
    if not nodes or not any(map(sum, recorded.values())):
        raise InputError(f"study {record.name!r} has no finished trials to replay")
    rounds = list(recorded.values()) * times
    if trials is not None:
        rounds = regrouped(rounds, trials)
    rows = []
    for count in counts:
        with_barrier = replay(rounds, count, overhead=overhead)
        without = replay(rounds, count, overhead=overhead, barrier=False)
        rows.append(
            {
                "workers": count,
                "seconds": with_barrier.seconds,
                "idle": 1.0 - with_barrier.busy,
                "asynchronous_at_best": without.seconds,
            }
        )
    if as_json:
        typer.echo(json.dumps({"trials": len(nodes) * times, "rounds": len(rounds), "workers": rows}))
        return
    console = Terminal(width=100)
    console.print(f"{len(nodes) * times} trials in {len(rounds)} rounds", highlight=False)
    for row in rows:
        console.print(
            f"{row['workers']:>6} workers  {row['seconds']:12.2f} s  idle {row['idle']:6.1%}  "
            f"asynchronous at best {row['asynchronous_at_best']:12.2f} s",
            highlight=False,
        )
