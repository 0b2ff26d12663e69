"""The auxiliary MNIST classifier: ``classifier train``."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from thermoloom.cli.options import path_of

classifier_app = typer.Typer(help="The auxiliary MNIST classifier.", no_args_is_help=True)


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
) -> None:
    """Train the paper's classifier on full MNIST (needs the extra train-classifier)."""
    from thermoloom.measures.classifier_training import PAPER, train_classifier

    recipe = replace(
        PAPER,
        epochs=PAPER.epochs if epochs is None else epochs,
        seed=PAPER.seed if seed is None else seed,
    )

    def progress(epoch: int, loss: float) -> None:
        typer.echo(f"epoch {epoch} of {recipe.epochs}: mean loss {loss:.4f}", err=True)

    record = train_classifier(mnist, out, recipe, progress)
    typer.echo(f"test accuracy {100 * record['test_accuracy']:.2f} %")
    typer.echo(f"classifier    {out / 'classifier.onnx'}")
    use = shlex.join(["--set", f"measures.classifier={out.absolute()}"])
    typer.echo(f"to judge by it: thermoloom run comparison {use}")
