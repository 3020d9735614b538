"""A role process that waits two seconds, not twenty, for its roles to end: `python -m tests.integration.impatient run
--role monitor ...`."""

from __future__ import annotations

from workers import cli, run

if __name__ == "__main__":
    run._STOP_WITHIN_S = 2.0
    cli.main()
