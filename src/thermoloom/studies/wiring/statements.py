"""Headline numbers of the wirings; the paper says nothing about them."""

from __future__ import annotations

from typing import Any

from thermoloom.studies.verdicts import Evidence, own_quantity
from thermoloom.studies.wiring.study import GRID, RANDOM, TEN


def judge(evidence: Evidence) -> dict[str, Any]:
    """Number and length of wires that three digits need; how often ten digits are correct."""
    enough = [
        own_quantity(
            f"{row['machine']}_{row['wiring']}_{key}",
            f"{row['machine']} digits, {row['wiring']}: {label} needed",
            row[key],
            unit="% of complete",
            digits=".2g",
        )
        for row in evidence.summary["least"]
        for key, label in (("percent_wires", "wires"), ("percent_length", "length of wire"))
    ]
    correct = [
        own_quantity(
            f"{TEN}_{row['wiring']}_correct_class",
            f"{TEN} digits, {_in_words(row)}: correct class",
            100 * row["correct_class"],
            unit="%",
        )
        for row in evidence.summary["correct_class"]
    ]
    return {"quantities": enough + correct}


def _in_words(row: dict[str, Any]) -> str:
    """A wiring with its size, such as ``grid of radius 6``."""
    names = {GRID: "grid of radius", RANDOM: "random wiring of degree"}
    name = names.get(row["wiring"])
    return f"{name} {row['value']}" if name else f"{row['wiring']} wiring"
