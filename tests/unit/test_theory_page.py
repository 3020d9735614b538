"""docs/theory.md: every statement says why it holds and which tests check it, and its figures are right."""

from __future__ import annotations

import ast
import re
from functools import cache
from math import ceil, exp, log
from pathlib import Path

import numpy as np
import pytest

from stream_calib.calibration import GIRB
from stream_calib.demo.flights import day_index, load_flights

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
STATEMENTS = re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
NAMED = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", PAGE)


@cache
def names_of_tests(module: str) -> frozenset[str]:
    """Names of its tests, of those in classes as `Class::test`."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    found = [("", node) for node in tree.body]
    found += [(f"{node.name}::", inner) for node in tree.body if isinstance(node, ast.ClassDef) for inner in node.body]
    return frozenset(prefix + node.name for prefix, node in found if isinstance(node, ast.FunctionDef))


def test_every_test_that_is_named_is_there() -> None:
    assert len(NAMED) >= 30
    missing = [f"{module}::{name}" for module, name in NAMED if not (ROOT / module).exists()]
    missing += [f"{m}::{n}" for m, n in NAMED if (ROOT / m).exists() and n not in names_of_tests(m)]
    assert missing == []


def test_a_name_that_is_no_test_is_noticed() -> None:
    here = "tests/unit/test_theory_page.py"
    assert "test_a_name_that_is_no_test_is_noticed" in names_of_tests(here)
    assert not {"test_that_is_not_there", "names_of_tests::test"} & names_of_tests(here)


@pytest.mark.parametrize(("title", "body"), STATEMENTS, ids=[title for title, _ in STATEMENTS])
def test_every_statement_has_a_proof_or_a_source_and_a_test(title: str, body: str) -> None:
    assert "**Statement" in body
    assert "**Proof.**" in body or "**Source.**" in body
    _, checks = body.split("**Checked by**")
    assert re.search(r"^\* `tests/", checks, re.MULTILINE)
    assert all(re.fullmatch(r"\* `tests/[\w/]+\.py::test_\w+`|\* `tests/[\w/]+\.py::Test\w+::test_\w+`|", line)
               for line in checks.splitlines())  # fmt: skip


def test_every_part_is_in_the_list_of_parts() -> None:
    parts = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert parts == re.findall(r"^\* \[(.*?)\]\(#", PAGE, re.MULTILINE)
    assert len(STATEMENTS) >= 20


def test_figures_of_the_page_are_what_their_formulas_give() -> None:
    alpha, gamma = 0.05, 0.02
    text = " ".join(PAGE.split())

    def hoeffding(tau: float) -> float:
        """Rows until 10,000 quantities in [-1, 1] are all within tau with probability .95."""
        return 2 * log(2 * 10_000 / 0.05) / tau**2

    assert f"n = {hoeffding(alpha * gamma / 17) / 1e9:.1f} x 10^9 rows" in text
    assert f"({hoeffding(alpha * gamma / 8) / 1e9:.1f} x 10^9 at alpha gamma / 8)" in text
    assert f"{2.08 / (gamma * alpha**2):,.0f} Phi(f0) rounds" in text
    # Bernstein: exp(-n tau^2 / (2 variance + 4 / 3 tau)) for deviations of terms that are within 2 of their mean.
    tau = alpha * gamma / 17
    bernstein = log(2 * 10_000 / 0.05) * (2 * gamma / 4 + 4 / 3 * tau) / tau**2
    assert round(hoeffding(tau) / bernstein, -2) == 200
    assert "some 200 times fewer" in text

    assert 28 / 9 < 3.12 < 28 / 9 * 1.003
    assert 1088 / 525 < 2.08 < 1088 / 525 * 1.004
    confirmation = 2.33**2 / (gamma * alpha**2)
    assert f"{round(1.8 * confirmation * 0.18, -3):,.0f} rows for half shifts" in text
    assert f"{round(4 * confirmation * 0.18, -3):,.0f} for whole ones" in text
    assert f"needs {round(1.8 * confirmation * 0.167, -3):,.0f}." in text
    assert f"16/9 = {16 / 9:.2f} for half" in text

    flights = load_flights()
    rate, days = flights.label.mean(), np.unique(day_index(flights.score_time_ms))
    fitted = GIRB().fit(score := flights.score[flights.label_row], flights.label).predict(score)
    assert round(rate * (1 - rate), 2) == 0.18
    assert round((fitted * (1 - fitted)).mean(), 3) == 0.167
    assert f"{round(len(flights.label) / len(days) * 14, -2):,.0f} labelled rows in all" in text

    width = 0.05
    assert f"{width**2 * exp(2 * width) / 32 * 1e5:.1f} x 10^-5" in text
    assert ceil(1e5 * width**2 * exp(2 * width) / 32) < 10
