"""The classifier that judges samples: ``classifier train``."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from thermoloom.cli.options import option, path_option, takes
from thermoloom.errors import UserError

classifier_app = typer.Typer(help="Train a classifier that judges samples.", no_args_is_help=True)


RECIPE = {
    "epochs": option(int, "Passes over the training set; 5 by default, as in the paper."),
    "seed": option(int, "Seed of the initial weights and the image order; 42 by default."),
    "batch_size": option(int, "Images per step; 64 by default (the paper does not state it)."),
    "padding": option(
        int,
        "Zeros around an image before each convolution, 0 or 1; 1 by default (the paper does not "
        "state it).",
    ),
}


@classifier_app.command("train")
@takes("recipe", RECIPE)
def classifier_train(
    mnist: Annotated[
        Path | None,
        path_option("--mnist", "DIR", "Folder of the MNIST IDX files; downloaded if left out."),
    ] = None,
    data: Annotated[
        Path | None,
        path_option(
            "--data",
            "DIR",
            "Folder of another labelled data set, in a form that patterns.source=dataset reads.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Make images black and white: grey values (0 to 1) above this value are white."
        ),
    ] = None,
    out: Annotated[
        Path, path_option("--out", "DIR", "Folder for classifier.onnx and classifier.json.")
    ] = Path("classifier"),
    *,
    recipe: dict[str, Any],
) -> None:
    """Train the paper's classifier on MNIST or other data (needs the extra train-classifier)."""
    from thermoloom.measures.classifier_training import PAPER, train_classifier
    from thermoloom.settings import PatternSettings

    if data is not None and mnist is not None:
        raise UserError("--mnist, --data: use only one of them")
    source, folder = ("mnist", mnist) if data is None else ("dataset", data)
    images = PatternSettings(source=source, path=str(folder or ""), threshold=threshold)
    training = replace(PAPER, **recipe)

    def progress(epoch: int, loss: float) -> None:
        typer.echo(f"epoch {epoch} of {training.epochs}: mean loss {loss:.4f}", err=True)

    record = train_classifier(images, out, training, progress)
    typer.echo(f"test accuracy {100 * record['test_accuracy']:.2f} %")
    typer.echo(f"classifier    {out / 'classifier.onnx'}")
    use = shlex.join(["--set", f"measures.classifier={out.absolute()}"])
    study = "comparison"
    if data is not None:
        study = shlex.join(["digits", "--set", "source=dataset", "--set", f"path={data}"])
    typer.echo(f"to use it: thermoloom run {study} {use}")
