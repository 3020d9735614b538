"""Makes the pictures of docs/backtest.md from a result: `stream-calib backtest ... --json RESULT`, then
`python docs/pictures/backtest_picture.py RESULT [FOLDER]`."""

from __future__ import annotations

import re
import sys
from importlib import resources
from pathlib import Path

from svg_page import svg_page

from stream_calib.backtest.document import BacktestDocument, decode_document
from stream_calib.backtest.report.choice import chosen
from stream_calib.backtest.report.differences import difference_chart
from stream_calib.backtest.report.reliability import reliability_charts
from stream_calib.backtest.report.time_line import time_line
from stream_calib.pages.svg import Drawing

IMAGES = Path(__file__).parents[1] / "images"


def pictures(document: BacktestDocument) -> dict[str, str]:
    """The report's charts as files of their own, by the name of the file."""
    shown = chosen(document)
    made = {
        "time-line": time_line(shown.current, shown.best, document.pane_ms),
        "reliability": _beside([chart.drawing for chart in reliability_charts(shown)]),
    }
    if len(document.table) > 1:
        made["differences"] = difference_chart(shown)
    style = "".join(
        resources.files(package).joinpath(name).read_text(encoding="utf-8")
        for package, name in (("stream_calib.pages", "page.css"), ("stream_calib.backtest", "report.css"))
    )
    return {f"backtest-{name}.svg": _file(chart, style, name) for name, chart in made.items()}


def _file(chart: Drawing, style: str, name: str) -> str:
    # What a picture in a page cannot show: the words of each mark under the pointer.
    elements = [re.sub("<title>.*?</title>", "", element) for element in chart.elements]
    css = "chart times" if name == "time-line" else "chart"
    return svg_page(chart.width, chart.height, chart.label, [f'<g class="{css}">', *elements, "</g>"], style)


def _beside(drawings: list[Drawing]) -> Drawing:
    out, left = [], 0.0
    for one in drawings:
        out.append(f'<g transform="translate({left:g} 0)">{"".join(one.elements)}</g>')
        left += one.width + 20
    label = "; ".join(one.label for one in drawings)
    return Drawing(left - 20, max(one.height for one in drawings), label, out)


if __name__ == "__main__":
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else IMAGES
    for name, text in pictures(decode_document(Path(sys.argv[1]).read_bytes())).items():
        (folder / name).write_text(text, encoding="utf-8")
