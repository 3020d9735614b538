"""The command line with a refit whose lease ends after six seconds, not thirty, when it is killed:
`python -m tests.crash.hasty_refit run --role refit ...`."""

from __future__ import annotations

from workers import cli, refit

if __name__ == "__main__":
    refit._LEASE_MS = 6_000
    refit._RENEW_AT_WORK_S = 2.0
    cli.main()
