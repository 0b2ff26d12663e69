"""The auxiliary classifier: ``classifier train``."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from thermoloom.cli.options import path_of
from thermoloom.errors import UserError

classifier_app = typer.Typer(help="The auxiliary classifier.", no_args_is_help=True)


@classifier_app.command("train")
def classifier_train(
    mnist: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the MNIST IDX files; downloaded if left out.",
            metavar="DIR",
            parser=path_of("--mnist"),
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of another labelled data set, as patterns.source=dataset reads it.",
            metavar="DIR",
            parser=path_of("--data"),
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Black and white: grey values from 0 to 1 above it are white."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for classifier.onnx and classifier.json.",
            metavar="DIR",
            parser=path_of("--out"),
        ),
    ] = Path("classifier"),
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training set; the paper's 5 by default.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of weights and order; 42 by default.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images per step; 64 by default, the paper does not say.")
    ] = None,
    padding: Annotated[
        int | None,
        typer.Option(
            help="Zeros around an image before each convolution, 0 or 1; 1 by default, the paper "
            "does not say."
        ),
    ] = None,
) -> None:
    """Train the paper's classifier on MNIST or another data set (extra train-classifier)."""
    from thermoloom.measures.classifier_training import PAPER, train_classifier
    from thermoloom.settings import PatternSettings

    if data is not None and mnist is not None:
        raise UserError("--mnist, --data: name one of them")
    source, folder = ("mnist", mnist) if data is None else ("dataset", data)
    images = PatternSettings(source=source, path=str(folder or ""), threshold=threshold)
    options = {"epochs": epochs, "seed": seed, "batch_size": batch_size, "padding": padding}
    chosen: dict[str, Any] = {name: n for name, n in options.items() if n is not None}
    recipe = replace(PAPER, **chosen)

    def progress(epoch: int, loss: float) -> None:
        typer.echo(f"epoch {epoch} of {recipe.epochs}: mean loss {loss:.4f}", err=True)

    record = train_classifier(images, out, recipe, progress)
    typer.echo(f"test accuracy {100 * record['test_accuracy']:.2f} %")
    typer.echo(f"classifier    {out / 'classifier.onnx'}")
    use = shlex.join(["--set", f"measures.classifier={out.absolute()}"])
    study = "comparison"
    if data is not None:
        study = shlex.join(["digits", "--set", "source=dataset", "--set", f"path={data}"])
    typer.echo(f"to judge by it: thermoloom run {study} {use}")
