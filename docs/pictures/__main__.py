"""Makes the pictures of docs/calibration.md: `python docs/pictures [FOLDER]`, by default into docs/images."""

from __future__ import annotations

import sys
from pathlib import Path

from certificate_picture import certificate_picture
from ece_picture import ece_picture
from flight_weeks import labelled_flights, predict_weeks
from girb_picture import girb_picture
from methods_picture import methods_picture
from offsets_picture import offsets_picture
from reliability_picture import reliability_picture
from strict_picture import strict_picture

IMAGES = Path(__file__).parents[1] / "images"


def make_pictures(folder: Path) -> None:
    """Writes every picture, as calibration-*.svg."""
    flights = labelled_flights()
    evaluated, probabilities = predict_weeks(flights)
    made = {
        "certificate": certificate_picture(flights),
        "ece": ece_picture(evaluated, probabilities["Multicalibrator"]),
        "girb": girb_picture(flights),
        "methods": methods_picture(evaluated, probabilities),
        "offsets": offsets_picture(flights),
        "reliability": reliability_picture(evaluated, probabilities),
        "strict": strict_picture(flights),
    }
    for name, text in made.items():
        (folder / f"calibration-{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    make_pictures(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
