"""The command line's ``rlwb export``, ``bundle``, ``quantise``, ``serve`` and ``paper-trade``: policies in bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

bundle = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Bundles: trained policies to serve.")

BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="The directory of a bundle.")]
Backend = Annotated[
    Literal["torch", "onnx"],
    typer.Option(help="What evaluates the network: torch, to the bits of the backtest, or onnx, several times faster."),
]
TrustCode = Annotated[bool, typer.Option("--trust-code", help="Run the code that it names.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def export(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="The directory of a finished run; it stays as it is. With --weights, also a YAML file."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="BUNDLE", help="Where the bundle goes, a new directory.")],
    checkpoint: Annotated[
        str, typer.Option(metavar="NAME", help="best (by validation), last, or the number of an iteration.")
    ] = "best",
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Weights from elsewhere in place of a checkpoint's: .safetensors or .pt."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a bundle that is there.")] = False,
    trust_code: TrustCode = False,
    debug: Debug = False,
) -> None:
    """Write a trained policy as a bundle: weights, specification, model card and recorded cases.

    For example: rlwb export runs/mine --out bundles/mine
    """
    from rlwb.serving.export import export_run

    made = export_run(
        run, out, checkpoint=checkpoint, weights=weights, force=force, trust_code=trust_code, echo=typer.echo
    )
    typer.echo(f"{made}: rlwb bundle check {made}")


def quantise(
    path: BundlePath,
    to: Annotated[Literal["int8", "float16"], typer.Option("--to", help="What its weights are stored in.")],
    out: Annotated[Path, typer.Option("--out", metavar="BUNDLE", help="Where the new bundle goes.")],
    run: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Compare on the test orders of this run, not on the few recorded ones."),
    ] = None,
    equal: Annotated[float, typer.Option(metavar="SHARE", help="Least share of recorded actions that stay.")] = 0.99,
    pa_bp: Annotated[
        float, typer.Option("--pa", metavar="BP", help="Basis points within which the difference in PA must lie.")
    ] = 1.0,
    force: Annotated[bool, typer.Option("--force", help="Replace a bundle that is there.")] = False,
    trust_code: TrustCode = False,
    debug: Debug = False,
) -> None:
    """Write a bundle again with weights of less precision, beside how its decisions agree with the original's.

    For example: rlwb quantise bundles/mine --to int8 --out bundles/small --run runs/mine
    """
    from rlwb.serving.quantise import Limits, quantise_bundle

    limits = Limits(equal, pa_bp)
    options: Any = {"run": run, "limits": limits, "force": force, "trust_code": trust_code, "echo": typer.echo}
    made = quantise_bundle(path, out, to, **options)
    typer.echo(f"{made}: rlwb bundle check {made}")


@bundle.command()
def check(path: BundlePath, trust_code: TrustCode = False, debug: Debug = False) -> None:
    """Check a bundle's files, and have its policy answer the recorded cases once more; print what was checked.

    Exit codes: 0 all agrees, 2 something does not, which is named.
    """
    from rlwb.serving.bundle import read_bundle
    from rlwb.serving.cases import replay

    found = read_bundle(path, trust_code=trust_code)
    typer.echo(f"{len(found.spec.files) + 1} files: their checksums are those recorded")
    for line in replay(found):
        typer.echo(line)


def serve(
    path: BundlePath,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", help="0 takes a free one, which the log names.")] = 8000,
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The journal, from which a stopped or killed service goes on.")
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=BUNDLE", help="A bundle to which POST /v1/bundle may swap; may be repeated."),
    ] = None,
    shadow: Annotated[
        Path | None, typer.Option(metavar="BUNDLE", help="A second bundle, which decides beside and is compared.")
    ] = None,
    history: Annotated[
        Path | None, typer.Option(metavar="BARS", help="Bars of earlier days, which features refer to.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The token that requests must bear; without it $RLWB_SERVE_TOKEN."),
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Let everybody in, also from other machines.")] = False,
    backend: Backend = "torch",
    batch: Annotated[int, typer.Option(metavar="N", help="Most decisions of a micro-batch; 1 turns it off.")] = 256,
    window: Annotated[
        float, typer.Option(metavar="MS", help="Milliseconds to wait for more of a micro-batch; 0 takes what is there.")
    ] = 0.0,
    queue: Annotated[int, typer.Option(metavar="N", help="Decisions that may wait; further ones get 503.")] = 1024,
    deadline: Annotated[float, typer.Option(metavar="MS", help="Longest wait of a decision.")] = 1000.0,
    fallback: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=MODE", help="off, warn or schedule for drift, late_bars, ...; may be repeated."),
    ] = None,
    sync: Annotated[
        bool, typer.Option("--sync", help="Wait for the disk at every write: safe against loss of power, and slower.")
    ] = False,
    trust_code: TrustCode = False,
    debug: Debug = False,
) -> None:
    """Serve a bundle over HTTP until Ctrl-C or SIGTERM; its operations are described at /docs.

    For example: rlwb serve bundles/mine --state mine.journal
    """
    import logging

    from rlwb.packages import require_packages

    require_packages("a service", "serve", "fastapi", "httptools", "msgspec", "uvicorn", "uvloop")
    from rlwb.serving.process import fallback_of, launch, limits_of, named_bundles

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    launch(
        path,
        host=host,
        port=port,
        state=state,
        also=named_bundles(also or []),
        shadow=shadow,
        history=history,
        token_file=token_file,
        open_to_all=no_token,
        backend=backend,
        limits=limits_of(batch=batch, window=window, queue=queue, deadline=deadline),
        fallback=fallback_of(fallback or []),
        sync="full" if sync else "normal",
        trust_code=trust_code,
    )


def paper_trade(
    path: BundlePath,
    bars: Annotated[
        str | None,
        typer.Option(
            metavar="BARS", help="What is played: a data set, a file or folder, tcp://HOST:PORT, vendor.py:MyFeed."
        ),
    ] = None,
    history: Annotated[
        Path | None, typer.Option(metavar="BARS", help="Bars of earlier days, for a feed that tells none.")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Its run: work its test orders, show its baselines, compare its backtest."),
    ] = None,
    orders: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A table of orders; without it or --run they are generated.")
    ] = None,
    dates: Annotated[
        str | None, typer.Option(metavar="FIRST[:LAST]", help="Days to play; the last with orders, of FILE all.")
    ] = None,
    speed: Annotated[float, typer.Option(metavar="N", help="60 plays a minute a second, 0 does not wait.")] = 60.0,
    url: Annotated[str | None, typer.Option(metavar="URL", help="A running service; else it decides here.")] = None,
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="The token of the service.")] = None,
    backend: Backend = "torch",
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where the result goes.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with DIR by its next day.")] = False,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="As for rlwb evaluate; may be repeated.")
    ] = None,
    trust_code: TrustCode = False,
    debug: Debug = False,
) -> None:
    """Trade on paper: play bars into a service, execute what it decides by the rules, judge it as a backtest does.

    For example: rlwb paper-trade bundles/mine --bars bars/ --speed 60
    """
    from rlwb.serving.paper_run import launch_paper, span_of

    launch_paper(
        path,
        bars,
        history=history,
        run=run,
        order_file=orders,
        dates=span_of(dates),
        speed=speed,
        url=url,
        token_file=token_file,
        backend=backend,
        out=out,
        resume=resume,
        changes=changes or [],
        trust_code=trust_code,
        echo=typer.echo,
    )
