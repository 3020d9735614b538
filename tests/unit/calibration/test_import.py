import subprocess
import sys


def test_the_calibrator_is_imported_without_any_service_or_configuration() -> None:
    script = (
        "import sys; from stream_calib.calibration import GIRB; "
        "print([m for m in ('redis', 'kafka', 'pydantic', 'msgspec', 'workers') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "[]"
