"""The page of the demo: noise turns into digits, in one self-contained HTML file.

Images are grey values of one byte, (frames, samples, pixels), all on one scale; numbers are JSON.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import FileSystemLoader
from markupsafe import Markup
from numpy.typing import NDArray

from thermoloom.presentation.html import environment
from thermoloom.presentation.style import block_name
from thermoloom.runs.manifest import package_version

DARKEST, BRIGHTEST = 1.0, 99.5
"""Percentiles of the final images that are black and white."""
_NAMES = {"onsite": "single units", "bias": "biases"}

COMMANDS = (
    ("thermoloom lab --open",
     "run, complete, teach, damage and inspect this machine (needs thermoloom[lab])"),
    ("thermoloom run comparison --preset quick",
     "does learning at every step save heat? One pair of computers, about a minute"),
    ("thermoloom train --cycles 60 --out my-run",
     "the default machine, with hidden units, learns three digits by a local rule"),
    ("thermoloom generate my-run", "sample it and measure the heat it releases"),
)  # fmt: skip
PYTHON = """\
import thermoloom as tl
computer = tl.Machine(hidden=64, labels=10, stages=4).solve(tl.digits())
computer.generate(20, classes=[3, 7]).show().savefig("drawn.png")"""


def grey(images: NDArray[Any]) -> NDArray[np.uint8]:
    """States (samples, frames, pixels) as bytes, on one scale for all."""
    low, high = np.percentile(images[:, -1], (DARKEST, BRIGHTEST))
    scaled: NDArray[np.uint8] = (
        np.clip((images - low) * (255 / max(high - low, 1e-12)), 0, 255).round().astype(np.uint8)
    )
    return scaled


def build_demo(drawn: Mapping[str, Any], solved: Mapping[str, Any]) -> str:
    """The HTML page of samples of ``draw_demo``, with the time and iterations of the solution."""
    course, kT = drawn["course"], drawn["kT"]
    samples, frames, pixels = drawn["images"].shape
    parts = dict(course["parts"])
    parts["total"] = sum(parts.values())
    data = {
        "side": math.isqrt(pixels),
        "samples": samples,
        "kT": kT,
        "time": [step / drawn["time_steps"] for step in drawn["steps"]],
        "frame": course["frame"],
        "stage": course["stage"],
        "windows": drawn["windows"],
        "parts": {_NAMES.get(k, k if k == "total" else block_name(k)): _short(v)
                  for k, v in parts.items()},
        "heat": _short(course["heat"]),
        "work": _short(course["work"]),
        "requested": drawn["requested"].tolist(),
        "seen": drawn["seen"].tolist(),
        "scores": np.round(drawn["scores"], 3).tolist(),
        "images": base64.b64encode(grey(drawn["images"]).swapaxes(0, 1).tobytes()).decode(),
    }  # fmt: skip
    folder = FileSystemLoader(Path(__file__).parent / "templates")
    template = environment(folder).get_template("demo.html.j2")
    return template.render(
        # nothing in a script may close it
        data=Markup(json.dumps(data, separators=(",", ":")).replace("</", "<\\/")),
        samples=samples,
        frames=frames,
        recognized=int((drawn["requested"] == drawn["seen"]).sum()),
        drawn=drawn,
        solved=solved,
        stages=_stages(drawn),
        heat=float(drawn["stage_heat"].sum(axis=1).mean()),
        work=float(drawn["switching_work"].sum(axis=1).mean()),
        change=float((drawn["ends"][:, -1] - drawn["starts"][:, 0]).mean()),
        commands=COMMANDS,
        python=PYTHON,
        version=package_version(),
    )


def _stages(drawn: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Heat and work by stage, as means over the samples."""
    rows = []
    for position, name in enumerate(drawn["windows"]):
        work = drawn["switching_work"][:, position - 1].mean() if position else None
        energies = {end: float(drawn[end][:, position].mean()) for end in ("starts", "ends")}
        heat = drawn["stage_heat"][:, position]
        spread = float(heat.std(ddof=1)) if len(heat) > 1 else None
        rows.append(
            {"stage": name, "work": None if work is None else float(work),
             "heat": float(heat.mean()), "spread": spread, **energies}
        )  # fmt: skip
    return rows


def _short(values: NDArray[Any]) -> list[list[float]]:
    """Two digits after the point: a hundredth of E₀ is a tenth of k_BT."""
    rounded: list[list[float]] = (np.round(values, 2) + 0.0).tolist()
    return rounded
