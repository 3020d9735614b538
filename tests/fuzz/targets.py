"""Every reader of bytes that come from outside of the process."""

from __future__ import annotations

from tests.fuzz import event_targets, outer_targets, state_targets

TARGETS = {target.name: target for target in event_targets.TARGETS + state_targets.TARGETS + outer_targets.TARGETS}
