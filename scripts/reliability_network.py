"""Our own network away, with nothing shortened, with an egress check and without; about four minutes.

python -m scripts.reliability_network
"""

from __future__ import annotations

import asyncio

from tests.acceptance.processes import open_folder
from tests.acceptance.reliability.network import away
from tests.acceptance.reliability.stage import postgresql


def main() -> None:
    with postgresql() as server:
        for guarded in (True, False):
            with open_folder() as folder:
                wanted = away(server.fresh(), folder, guarded=guarded, interval=15, cells=20, rounds=3, env={})
                found = asyncio.run(wanted)
            print(f"egress check {'configured' if guarded else 'not configured'}: {found}; no regression", flush=True)


if __name__ == "__main__":
    main()
