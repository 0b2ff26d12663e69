"""Draw the pictures of the documentation anew.

    make pictures                                      # all; takes five minutes
    python docs/build/make_pictures.py lab comparison  # some of them

digits.gif        noise turns into ten digits, in a machine that has learned all of MNIST
development.png   samples of that machine before and after development, beside test images
comparison.png    figure 2 of ``thermoloom run comparison``
lab.png           ``thermoloom lab`` in Chromium

``python -m benchmarks --only growth --full`` draws growth.svg; way-of-data.svg is drawn by hand.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

import thermoloom as tl
from thermoloom.computers.computer import Computer
from thermoloom.machine.presets import SHARP
from thermoloom.measures.class_accuracy import NOISE_SEED
from thermoloom.measures.fidelity import with_thermal_noise
from thermoloom.patterns.mnist import load_mnist
from thermoloom.patterns.patterns import from_images, in_turn
from thermoloom.presentation.image_sheet import draw_image_sheet, grey_scale, png
from thermoloom.presentation.movie import FRAMES, animation

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
RUNS = ROOT / "build" / "pictures"
WIDTH = 1100
"""Largest width of a picture in pixels."""
SEED = 1
ROWS = 3
"""Images of each digit in the picture of development."""


def main() -> None:
    arguments = argparse.ArgumentParser(description="Draw the pictures of the documentation anew.")
    arguments.add_argument("names", nargs="*", metavar="NAME", help=f"among {', '.join(PICTURES)}")
    arguments.add_argument("--mnist", type=Path, help="folder of the IDX files; else downloaded")
    options = arguments.parse_args()
    if unknown := set(options.names) - set(PICTURES):
        arguments.error(f"{min(unknown)}: must be one of {', '.join(PICTURES)}")
    for name in options.names or PICTURES:
        file, draw = PICTURES[name]
        print(f"{file} ... ", end="", flush=True)
        (IMAGES / file).write_bytes(draw(options.mnist))
        print("done", flush=True)


@cache
def digit_machine(mnist: Path | None) -> Computer:
    """The optimum of all MNIST training images, with styles and development."""
    return SHARP.solve(tl.digits(per_class=0, mnist=mnist or True))


def digits(mnist: Path | None) -> bytes:
    """Ten samples from noise to image, with their mean heat so far."""
    computer = digit_machine(mnist)
    machine = computer.machine
    every = machine.generation_steps // (FRAMES - 1)
    course = computer.trajectories(10, every=every, seed=SEED)
    states, heat = course.states[..., : machine.visible], course.heat.mean(axis=0)
    return animation(states, (28, 28), heat, machine.kT)


def development(mnist: Path | None) -> bytes:
    """Samples before and after development, and test images with thermal noise, in three sheets."""
    computer, count = digit_machine(mnist), 10 * ROWS
    pixels, classes = load_mnist(mnist, "test")
    order = in_turn(classes, tuple(range(10)), ROWS)
    fields = from_images(list(pixels[order]), computer.machine).patterns
    sheets = {
        "before development": drawn(computer.at(development=()), count),
        "after development": drawn(computer, count),
        "test images with thermal noise": with_thermal_noise(computer.machine, fields, NOISE_SEED),
    }
    figure = Figure(figsize=(7.2, 7.6), layout="constrained")
    for axes, (title, images) in zip(figure.subplots(len(sheets)), sheets.items(), strict=True):
        rows = images.reshape(ROWS, 10, 28, 28)
        draw_image_sheet(axes, rows, grey_scale(images))
        axes.set_title(title, fontsize=11, loc="left")
    return reduced(png(figure), "L")


def drawn(computer: Computer, count: int) -> NDArray[np.float32]:
    """States of the visible units of samples, every class in turn."""
    states: NDArray[np.float32] = computer.generate(count, seed=SEED).states
    return states[:, : computer.machine.visible]


def comparison(_: Path | None) -> bytes:
    """Loss, heat of five pairs and heat of the samples of one."""
    thermoloom("run", "comparison", "--out", str(RUNS))
    return reduced((RUNS / "comparison" / "figure-2.png").read_bytes())


def lab(_: Path | None) -> bytes:
    """The page after ten samples, in a window without scroll bars."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import Browser

    command = [sys.executable, "-m", "thermoloom", "lab", "--port", "0"]
    with (
        tempfile.TemporaryDirectory() as profile,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        Browser(Path(profile)) as browser,
    ):
        assert server.stdout is not None
        page = browser.open(server.stdout.readline().strip(), 1280, 716)
        page.call("Emulation.setScrollbarsHidden", hidden=True)
        page.until("!document.querySelector('#generate').disabled", 120)
        page.run("document.querySelector('#fresh').checked = false")
        page.run(f"document.querySelector('#seed').value = {SEED}")
        page.click("#generate")
        page.until("window.lab?.player.whole && lab.player.scene?.samples === 10", 120)
        page.run("lab.player.run(false); lab.player.seek(1)")
        page.until("getComputedStyle(document.querySelector('.verdict')).opacity === '1'")
        file = Path(profile) / "lab.png"
        page.picture(file, whole=False)
        server.terminate()
        return reduced(file.read_bytes())


def thermoloom(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "thermoloom", *arguments], check=True, cwd=ROOT)


def reduced(picture: bytes, mode: str = "RGB") -> bytes:
    """A picture at most ``WIDTH`` pixels wide, without transparency; mode L has 32 greys."""
    image = Image.open(io.BytesIO(picture)).convert(mode)
    if image.width > WIDTH:
        height = round(image.height * WIDTH / image.width)
        image = image.resize((WIDTH, height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    (image.quantize(32) if mode == "L" else image).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


PICTURES = {
    "digits": ("digits.gif", digits),
    "development": ("development.png", development),
    "comparison": ("comparison.png", comparison),
    "lab": ("lab.png", lab),
}
"""Name → file and the function that draws it."""


if __name__ == "__main__":
    main()
