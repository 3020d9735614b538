import subprocess
import sys
from importlib import import_module

import pytest

from stream_calib import calibration

SERVICES = ("redis", "kafka", "pydantic", "msgspec", "workers")
"""What calibration knows nothing of."""
HEAVY = ("sklearn", "scipy.sparse", "scipy.optimize", "scipy.stats")
"""What takes long to import and no one needs who only serves."""


def imported(statement: str, modules: tuple[str, ...]) -> list[str]:
    """Which of the modules a new process has after the statement."""
    script = f"import sys; {statement}; print(*[m for m in {modules!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    return shown.split()


def test_calibrators_are_imported_without_any_service_or_configuration() -> None:
    assert imported("from stream_calib.calibration import *", SERVICES) == []


def test_what_serves_is_imported_without_what_fits() -> None:
    served = "from stream_calib.calibration import BaseMap, FamilyShift, MapParts, ServedMap, TimeAttributes, explain"
    assert imported(served, HEAVY) == []
    assert imported("from stream_calib.calibration import GIRB", HEAVY[:1]) == ["sklearn"]


@pytest.mark.parametrize("role", ["calibrate", "monitor", "alert", "serve"])
def test_roles_that_do_not_fit_start_without_what_fits(role: str) -> None:
    assert imported(f"import workers.{role}", HEAVY) == []


@pytest.mark.parametrize("name", calibration.__all__)
def test_every_public_name_is_there_and_listed(name: str) -> None:
    assert hasattr(calibration, name)
    assert name in dir(calibration)


def test_the_overview_names_only_what_is_there() -> None:
    words = (calibration.__doc__ or "").split("`")[1::2]
    assert len(words) > 40
    for word in words:
        assert word in calibration.__all__ or _module_or_member(word), word


def _module_or_member(word: str) -> bool:
    module, _, member = word.partition(".")
    found = import_module(f"stream_calib.calibration.{module}")
    return not member or hasattr(found, member)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'stream_calib\.calibration' has no attribute 'Grib'"):
        calibration.Grib  # noqa: B018  # looking it up is the test
