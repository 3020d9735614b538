"""docs/field-cases.md names each test of a case, and nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = sorted(Path(__file__).parent.glob("test_case_*.py"))


def test_the_page_and_the_modules_agree() -> None:
    page = (ROOT / "docs" / "field-cases.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| `(.+)` \|$", page, re.MULTILINE)
    assert [path for *_, path in rows] == [str(module.relative_to(ROOT)) for module in MODULES]
    for number, fault, what_happens_here, path in rows:
        assert f"test_case_{int(number):02d}_" in path
        assert len(fault) > 10
        assert len(what_happens_here) > 10


def test_each_module_tells_the_fault_in_its_own_words() -> None:
    for module in MODULES:
        told = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
        assert told is not None, module
        assert len(told) > 80, module
