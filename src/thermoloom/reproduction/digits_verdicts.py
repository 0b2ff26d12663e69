"""Headline numbers of the machine for ten digits; the paper says nothing of it."""

from __future__ import annotations

from typing import Any

from thermoloom.reproduction import paper
from thermoloom.reproduction.evidence import Evidence

said = paper.Said("digits")


def judge(evidence: Evidence) -> dict[str, Any]:
    """Numbers of ours, without verdicts."""
    summary = evidence.summary
    machine = summary["machine"]
    measured, data = machine["measured"], machine["data"]
    rows: list[tuple[str, str, float | None, str, str]] = [
        ("asked", "samples recognized as the class requested", _percent(measured["asked"]), "%",
         f"{measured['images']} samples; images with the same noise: {100 * data['asked']:.1f} %"),
        ("negatives", "negatives among them", _percent(measured["negatives"]), "%", ""),
        ("diversity", "diversity within a class, relative to the data's",
         _ratio(measured["diversity"], data["diversity"]), "", "both with thermal noise"),
        ("die", "… of the means of the drawn styles alone",
         _ratio(machine["style_means"]["diversity"], data["diversity"]), "", "without noise"),
        ("frechet", "Fréchet distance in the classifier's 128 features", measured["frechet"], "",
         f"{measured['images']} samples, {measured['data']} images"),
    ]  # fmt: skip
    for row in summary["inpainting"]:
        key = f"kept {row['known']} {row['style']}"
        rows.append((key, f"class kept, {row['known']} half known, style: {row['style']}",
                     _percent(row["kept"]), "%", f"{row['images']} images"))  # fmt: skip
    for row in summary["classes"][:1]:
        rows.append(("classified", "images classified by path likelihood",
                     _percent(row["accuracy"]), "%", f"{row['images']} images"))  # fmt: skip
    quantities = [
        said.quantity(key, label, value, unit=unit, note=note)
        for key, label, value, unit, note in rows
    ]
    return {"quantities": quantities, "statements": []}


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _ratio(value: float | None, of: float | None) -> float | None:
    return None if value is None or not of else value / of
