"""The auxiliary MNIST classifier: ``classifier train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thermoloom.measures.classifier_training import PAPER, Recipe

classifier_app = typer.Typer(help="The auxiliary MNIST classifier.", no_args_is_help=True)


@classifier_app.command("train")
def classifier_train(
    mnist: Annotated[
        Path | None,
        typer.Option(help="Folder of the MNIST IDX files; downloaded if left out.", metavar="DIR"),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for classifier.onnx and classifier.json.", metavar="DIR")
    ] = Path("classifier"),
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = PAPER.epochs,
    seed: Annotated[int, typer.Option(help="Seed of weights and order.")] = PAPER.seed,
) -> None:
    """Train the paper's classifier on full MNIST (needs the extra train-classifier)."""
    from thermoloom.measures.classifier_training import train_classifier

    def progress(epoch: int, loss: float) -> None:
        typer.echo(f"epoch {epoch} of {epochs}: mean loss {loss:.4f}", err=True)

    record = train_classifier(mnist, out, Recipe(epochs=epochs, seed=seed), progress)
    typer.echo(f"test accuracy {100 * record['test_accuracy']:.2f} %")
    typer.echo(f"classifier    {out / 'classifier.onnx'}")
