"""docs/calibration.md: its programs print what it shows, its pictures are made by the script, and say what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/calibration.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
PICTURES = re.findall(r"^!\[(.*?)\]\(images/(calibration-\w+\.svg)\)\n\n\*(.*?)\*$", PAGE, re.DOTALL | re.MULTILINE)
SVG = "{http://www.w3.org/2000/svg}"
NUMBER = r"[-+]?\d[\d,]*\.?\d*(?:e[-+]\d+)?"


def parts(output: str) -> tuple[list[str], list[float]]:
    """Words, a space for each run of them, and numbers."""
    words = [" ".join(word.split()) for word in re.split(NUMBER, output)]
    return words, [float(found.replace(",", "")) for found in re.findall(NUMBER, output)]


def test_every_program_shows_what_it_prints() -> None:
    assert len(PROGRAMS) == PAGE.count("```python") >= 6


@pytest.mark.parametrize(("program", "shown"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_programs_print_what_is_shown(program: str, shown: str) -> None:
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    printed_words, printed_numbers = parts(printed)
    shown_words, shown_numbers = parts(shown)
    assert printed_words == shown_words
    # Another processor may round elsewhere, and a fold may then fall out a little differently.
    assert printed_numbers == pytest.approx(shown_numbers, rel=0.02, abs=0.002)


def test_a_number_or_a_word_that_differs_is_noticed() -> None:
    assert parts("origin=JFK  1,234  -0.5 +- 1e-06")[1] == [1234.0, -0.5, 1e-06]
    assert parts("a  1\nb 2")[0] == parts("a 3 b   4")[0] != parts("a 1 c 2")[0]


def texts(picture: Path) -> str:
    return "\n".join(element.text or "" for element in ElementTree.parse(picture).iter(f"{SVG}text"))


@pytest.mark.parametrize(("name", "file", "caption"), PICTURES, ids=[file for _, file, _ in PICTURES])
def test_pictures_are_drawn_and_described(name: str, file: str, caption: str) -> None:
    picture = ElementTree.parse(ROOT / "docs/images" / file).getroot()
    assert picture.tag == f"{SVG}svg"
    assert picture.get("aria-label")
    assert name
    assert len(caption) > 60
    width, height = float(picture.get("width", 0)), float(picture.get("height", 0))
    for element in picture.iter(f"{SVG}text"):
        classes = (element.get("class") or "").split()
        x, y = float(element.get("x", "nan")), float(element.get("y", "nan"))
        # Nothing is cut off at the margins: widths of letters in the widest of the fonts.
        reach = len(element.text or "") * (8.4 if "panel-name" in classes else 6.5)
        before = reach if "end" in classes else reach / 2 if "middle" in classes else 0.0
        assert x - before >= 0, element.text
        assert x - before + reach <= width, element.text
        assert 0 < y < height, element.text


def test_the_script_makes_the_pictures_of_the_page(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "docs/pictures"), str(tmp_path)], check=True)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == sorted(file for _, file, _ in PICTURES)
    assert made == sorted(path.name for path in (ROOT / "docs/images").glob("calibration-*.svg"))
    for name in made:
        words, numbers = parts(texts(tmp_path / name))
        stored_words, stored_numbers = parts(texts(ROOT / "docs/images" / name))
        assert words == stored_words
        assert numbers == pytest.approx(stored_numbers, rel=0.05, abs=0.2)


def test_figures_of_the_captions_are_in_the_pictures() -> None:
    captions = {file: caption for _, file, caption in PICTURES}
    methods, strict = (texts(ROOT / f"docs/images/calibration-{name}.svg") for name in ("methods", "strict"))
    raw, *of_score, of_groups = [float(found) for found in re.findall(r"^\d+\.\d$", methods, re.MULTILINE)]
    assert f"error of {raw} %" in captions["calibration-methods.svg"].replace("\n", " ")
    assert all(raw / 2.5 < worst < raw / 1.9 for worst in of_score)
    assert of_groups < 0.8 * min(of_score)
    (values, *_) = re.findall(r"([\d,]+) different values", strict)
    assert f"{values} different scores" in captions["calibration-strict.svg"]
