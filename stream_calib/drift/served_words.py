"""What the step's alerts call served, and how that reads where it is not served yet.

Outcomes are held against the calibrator that is current where the pane is decided. Of history it is known only then, a
horizon behind the pane.
"""

from __future__ import annotations

WAS_SERVED = "was served"
"""Behind a probability."""
WHAT_IS_SERVED = "what is served"


def before_the_first_serves(diagnosis: str) -> str:
    """A diagnosis by a calibrator in whose stead the scores were served."""
    return diagnosis.replace(WAS_SERVED, "was said by a calibrator not yet in use").replace(
        WHAT_IS_SERVED, "what a calibrator not yet in use says"
    )
