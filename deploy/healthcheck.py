"""Exit code 0 when the role in this container says at /healthz that its loop comes round; for the image's HEALTHCHECK.

Standard library alone, since it runs every few seconds. The port is the one of STREAM_CALIB_HTTP_LISTEN.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request

_WITHIN_S = 4.0


def main() -> int:
    port = os.environ.get("STREAM_CALIB_HTTP_LISTEN", "").rpartition(":")[2] or "9400"
    # The certificate is for the name that others call us by; this call does not leave the container.
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    faults = []
    for scheme in ("http", "https"):
        try:
            urllib.request.urlopen(f"{scheme}://127.0.0.1:{port}/healthz", timeout=_WITHIN_S, context=unverified)
            return 0
        except urllib.error.HTTPError as error:
            print(f"{error.code}: {error.read(2_000).decode(errors='replace')}")
            return 1
        except OSError as error:
            faults.append(f"{scheme}: {error}")
    print("; ".join(faults))
    return 1


if __name__ == "__main__":
    sys.exit(main())
