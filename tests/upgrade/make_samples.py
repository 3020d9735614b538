"""``python -m tests.upgrade.make_samples NAME``: what this version writes, as a new sample. Old ones are never made
anew: they are what older versions wrote."""

from __future__ import annotations

import sys

from stream_calib.transport.embedded_server import EmbeddedServer
from tests.upgrade.acts import acted, text_of
from tests.upgrade.sample import SAMPLES, make


def main() -> None:
    """Refuses a name that is there."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m tests.upgrade.make_samples NAME")
    folder = SAMPLES / sys.argv[1]
    if folder.exists():
        raise SystemExit(f"{folder} is there: a sample is what an older version wrote; give the new one another name")
    with EmbeddedServer() as server:
        make(folder, server.url)
    (folder / "acts.json").write_text(text_of(acted()), encoding="utf-8")


if __name__ == "__main__":
    main()
