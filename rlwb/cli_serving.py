"""The command line's ``rlwb export`` and ``rlwb bundle``: a policy as a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

bundle = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Bundles: trained policies to serve.")

BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="The directory of a bundle.")]
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
