"""Pieces of an HTML page: numbers, verdicts, tables, figures, and the frame around them.

A number on the page is ``<data value="…">`` with the full value that summary.json holds.
"""

from __future__ import annotations

import base64
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

DASH = "–"
OURS = "optimum (ours)"
"""Heading of the column that the paper does not have."""

BADGES = {
    "inside the paper's interval": "good",
    "our interval covers the paper's value": "good",
    "as in the paper": "good",
    "holds": "good",
    "same side of 0.05": "good",
    "higher than the paper's": "fair",
    "lower than the paper's": "fair",
    "same sign": "fair",
    "same sign, not resolved": "fair",
    "differs": "bad",
    "too short to judge": "none",
    "not measured": "none",
}
SIGNS = {"good": "✓", "fair": "≈", "bad": "✗", "none": "·"}


# --- numbers and words ----------------------------------------------------------------------------


def number(value: Any, spec: str = ".2f") -> str:
    """A number with its full value in the markup; a dash where there is none."""
    if value is None:
        return DASH
    if spec.endswith("g") and 0 < abs(value) < 1e-3:  # 0.00018 is better read as 1.8 × 10⁻⁴
        spec = ".1e"
    return f'<data value="{value!r}">{pretty(format(value, spec))}</data>'


def pretty(text: str) -> str:
    """Minus signs and powers of ten as they are printed: 3.3e-05 → 3.3 × 10⁻⁵; zero has no sign."""
    mantissa, exponent_mark, exponent = text.partition("e")
    if not mantissa.strip("+-0."):
        mantissa = mantissa.lstrip("+-")
    mantissa = mantissa.replace("-", "−")
    if not exponent_mark:
        return mantissa
    power = str(int(exponent)).replace("-", "−")
    return f"{mantissa} × 10<sup>{power}</sup>"


def interval(bounds: Sequence[float] | None, spec: str = ".2f") -> str:
    """[low, high], or a dash."""
    if bounds is None:
        return DASH
    return f"[{number(bounds[0], spec)}, {number(bounds[1], spec)}]"


def fill(template: str, values: Mapping[str, Any]) -> str:
    """``"lower in {lower} of {pairs}"`` with its numbers put in as numbers, the rest escaped."""
    parts = []
    for text, name, spec, _ in string.Formatter().parse(template):
        parts.append(escape(text))
        if name is not None:
            value = values[name]
            is_text = isinstance(value, str)
            parts.append(escape(value) if is_text else number(value, spec or _plain(value)))
    return "".join(parts)


def _plain(value: Any) -> str:
    return "d" if isinstance(value, int) else "g"


def badge(verdict: str, count: str = "") -> str:
    """A verdict in a colour, with a sign for those who do not see the colour."""
    if not verdict:
        return ""
    kind = BADGES.get(verdict, "none")
    text = f"{count} {escape(verdict)}".strip()
    return f'<span class="badge {kind}"><i>{SIGNS[kind]}</i> {text}</span>'


def judged(row: Mapping[str, Any]) -> str:
    """A verdict, and folded under it the thresholds that decide it, each with its reason."""
    items = "".join(
        f"<li>{escape(t['name'].replace('_', ' '))}: {number(t['value'], 'g')} "
        f"{escape(t['unit'])}. {escape(t['reason'])}</li>"
        for t in row["thresholds"]
    )
    why = f"<details><summary>judged by</summary><ul>{items}</ul></details>" if items else ""
    return badge(row["verdict"]) + why


def paragraph(text: str) -> str:
    """A paragraph; ``text`` is HTML."""
    return f"<p>{text}</p>"


def note(text: str) -> str:
    return f'<p class="note">{text}</p>'


# --- tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading and what stands in the cell of a row."""

    heading: str
    cell: Callable[[Mapping[str, Any]], str]
    numeric: bool = True


def value_column(heading: str, key: str, spec: str = ".2f") -> Column:
    return Column(heading, lambda row: number(row.get(key), spec))


def interval_column(heading: str, key: str, spec: str = ".2f") -> Column:
    return Column(heading, lambda row: interval(row.get(key), spec))


def text_column(heading: str, key: str) -> Column:
    return Column(heading, lambda row: escape(str(row[key])), numeric=False)


def table(
    caption: str, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], folded: bool = False
) -> str:
    """A table with its caption; ``folded`` ones open on a click."""
    kinds = [' class="n"' if column.numeric else "" for column in columns]
    head = "".join(f"<th{k}>{c.heading}</th>" for c, k in zip(columns, kinds, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{k}>{c.cell(row)}</td>" for c, k in zip(columns, kinds, strict=True))
        + "</tr>"
        for row in rows
    )
    grid = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    if folded:
        inner = f'<div class="scroll"><table>{grid}</table></div>'
        return f"<details><summary>{caption}</summary>{inner}</details>"
    return f'<div class="scroll"><table><caption>{caption}</caption>{grid}</table></div>'


def difference_table(
    caption: str,
    rows: Sequence[Mapping[str, Any]],
    spec: str = ".2f",
    leading: Sequence[Column] = (),
    percent: bool = True,
) -> str:
    """Batch, online, mean difference and its interval, a row a measure; one format for all.

    Where the rows have it, the optimum is a third column.
    """
    columns = [
        *leading,
        text_column("", "label"),
        value_column("batch", "batch", spec),
        value_column("online", "online", spec),
        *([value_column(OURS, "optimum", spec)] if any("optimum" in row for row in rows) else []),
        value_column("online − batch", "difference", "+" + spec),
        interval_column("95 % interval", "interval", "+" + spec),
    ]
    if percent:
        columns += [
            value_column("% of batch", "percent", "+.2f"),
            interval_column("95 % interval", "percent_interval", "+.2f"),
        ]
    return table(caption, columns, rows)


def quantity_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Our numbers beside the paper's, each with its verdict."""

    def ours(row: Mapping[str, Any]) -> str:
        unit = f" {escape(row['unit'])}" if row["unit"] and row["value"] is not None else ""
        return number(row["value"], row["digits"]) + unit

    def theirs(row: Mapping[str, Any]) -> str:
        value = number(row["paper_value"], _shortest(row["paper_value"]))
        unit = f" {escape(row['unit'])}" if row["unit"] and row["paper_value"] is not None else ""
        bounds = row["paper_interval"]
        return value + unit + (f" {interval(bounds)}" if bounds else "")

    columns = [
        text_column("", "label"),
        Column("here", ours),
        Column("95 % interval", lambda row: interval(row["interval"], row["digits"])),
        Column("paper", theirs),
        Column("verdict", judged, numeric=False),
    ]
    return table("Headline numbers, with the paper's beside them.", columns, rows)


def _shortest(value: float | None) -> str:
    return "" if value is None else ".3g" if abs(value) < 1e-3 else "g"


def _quoted(row: Mapping[str, Any]) -> str:
    where = f"<small>{escape(row['where'])}</small>"
    return f"<q>{escape(row['sentence'])}</q><br>{where}"


def statement_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The paper's sentences, what was measured here, and a verdict."""
    columns = [
        Column(
            "the paper says",
            _quoted,
            numeric=False,
        ),
        Column("here", lambda row: fill(row["measured"], row["values"]), numeric=False),
        Column("verdict", judged, numeric=False),
    ]
    return table("The paper's statements, each judged by the numbers of this run.", columns, rows)


def settings_table(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Every setting by section, as the run directory has it."""
    rows = [
        {"section": section, "key": key, "value": value}
        for section, values in settings.items()
        for key, value in values.items()
        if value is not None
    ]
    columns = [
        Column("setting", lambda row: f"{row['section']}.{row['key']}", numeric=False),
        Column("value", lambda row: setting(row["value"]), numeric=False),
    ]
    return table("Settings", columns, rows, folded=True)


def setting(value: Any) -> str:
    if isinstance(value, (bool, str)):
        return escape(str(value).lower() if isinstance(value, bool) else value or '""')
    if isinstance(value, (list, tuple)):
        return ", ".join(setting(entry) for entry in value)
    return number(value, _plain(value))


# --- figures and the frame ------------------------------------------------------------------------


def figure(label: str, title: str, png: bytes, caption: str) -> str:
    """A picture inside the page, with its caption (HTML)."""
    data = base64.b64encode(png).decode()
    heading = f"<b>{escape(label)}. {escape(title)}.</b>"
    return (
        f'<figure id="{anchor(label)}"><img alt="{escape(title)}" '
        f'src="data:image/png;base64,{data}"><figcaption>{heading} {caption}</figcaption></figure>'
    )


def anchor(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text.lower()).strip("-")


def heading(level: int, text: str, identity: str = "") -> str:
    return f'<h{level} id="{identity or anchor(text)}">{escape(text)}</h{level}>'


def contents(entries: Sequence[tuple[int, str, str]]) -> str:
    """Table of contents from (level, identity, text)."""
    items = "".join(
        f'<li class="l{level}"><a href="#{identity}">{escape(text)}</a></li>'
        for level, identity, text in entries
    )
    return f'<nav aria-label="Contents"><b>Contents</b><ol>{items}</ol></nav>'


def page(title: str, navigation: str, body: str) -> str:
    """A complete, self-contained document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        # an empty icon, so that no browser asks a server for one
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>"
        f"<body>{navigation}<main>{body}</main></body></html>\n"
    )


CSS = """
:root{--ink:#1f2328;--soft:#5d6671;--line:#d9dee4;--back:#fdfdfc;--card:#fff;--accent:#0a5c92;
--zebra:#f5f7f9;--good:#0b6b4b;--goodb:#dff3ea;--fair:#7a5200;--fairb:#fbeecb;--bad:#9b2c0a;
--badb:#fbe1d7;--none:#5d6671;--noneb:#eceff2}
@media (prefers-color-scheme:dark){:root{--ink:#e4e7ea;--soft:#9aa5b1;--line:#343b44;--back:#15181c;
--card:#1b1f24;--accent:#7cc4f2;--zebra:#1d2228;--good:#7fe0b8;--goodb:#123a2c;--fair:#f2cd73;
--fairb:#3b2f10;--bad:#ffab8c;--badb:#46200f;--none:#a6b0ba;--noneb:#2a3037}}
*{box-sizing:border-box}
html{scroll-behavior:smooth}
body{margin:0;background:var(--back);color:var(--ink);line-height:1.55;
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
display:grid;grid-template-columns:minmax(0,1fr)}
main{max-width:58rem;width:100%;margin:0 auto;padding:2.2rem 1.25rem 5rem}
h1{font-size:1.95rem;line-height:1.2;margin:0 0 .5rem;letter-spacing:-.01em}
h2{font-size:1.42rem;margin:3rem 0 .6rem;padding-top:1.1rem;border-top:1px solid var(--line)}
h3{font-size:1.1rem;margin:2.1rem 0 .4rem}
p{margin:.6rem 0;max-width:46rem}
.lead{font-size:1.1rem;color:var(--soft)}
.note{font-size:.9rem;color:var(--soft)}
a{color:var(--accent)}
code,pre{font:.88em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--zebra);border:1px solid var(--line);border-radius:6px;padding:.7rem .9rem;
overflow-x:auto}
nav{max-width:58rem;width:100%;margin:0 auto;padding:1.6rem 1.25rem 0;font-size:.92rem}
nav ol{list-style:none;margin:.3rem 0 0;padding:0}
nav li{margin:.12rem 0}
nav .l3{padding-left:1rem;font-size:.94em}
nav a{text-decoration:none}
nav a:hover{text-decoration:underline}
@media (min-width:80rem){body{grid-template-columns:15.5rem minmax(0,1fr)}
nav{position:sticky;top:0;height:100vh;overflow:auto;padding:2.4rem 1rem 2rem 1.6rem;
border-right:1px solid var(--line)}}
.scroll{overflow-x:auto;margin:1.1rem 0}
table{border-collapse:collapse;font-size:.88rem;width:100%;font-variant-numeric:tabular-nums}
caption{caption-side:top;text-align:left;color:var(--soft);padding:0 0 .4rem;font-size:.9rem}
th{text-align:left;font-weight:600;border-bottom:1.5px solid var(--ink);padding:.32rem .55rem;
vertical-align:bottom}
td{padding:.34rem .55rem;border-bottom:1px solid var(--line);vertical-align:top}
tbody tr:nth-child(even){background:var(--zebra)}
th.n,td.n{text-align:right;white-space:nowrap}
q{quotes:"“" "”"}
small{color:var(--soft)}
.badge{display:inline-block;white-space:nowrap;border-radius:999px;padding:.06rem .55rem;
font-size:.82rem;font-weight:600}
.badge i{font-style:normal}
.good{color:var(--good);background:var(--goodb)}
.fair{color:var(--fair);background:var(--fairb)}
.bad{color:var(--bad);background:var(--badb)}
.none{color:var(--none);background:var(--noneb)}
.tally{display:flex;flex-wrap:wrap;gap:.4rem;margin:.8rem 0}
figure{margin:1.6rem 0;padding:.9rem .9rem .8rem;border:1px solid var(--line);border-radius:8px;
background:var(--card)}
figure img{display:block;width:100%;height:auto;background:#fff;border-radius:4px}
figcaption{margin-top:.7rem;font-size:.9rem;color:var(--ink)}
details{margin:1rem 0}
td details{margin:.25rem 0 0;font-size:.82rem}
td ul{margin:.2rem 0;padding:0 0 0 1rem;min-width:14rem}
summary{cursor:pointer;color:var(--accent)}
footer{margin-top:3rem;color:var(--soft);font-size:.88rem}
@media print{nav{display:none}body{display:block}figure,tr{break-inside:avoid}}
""".replace("\n", "")
