"""How long a hard failure takes to be confirmed where a quick re-probe confirms it; about four minutes.

python -m scripts.reliability_breaking
"""

from __future__ import annotations

import asyncio

from service.pacing import JITTER, QUICK
from tests.acceptance.processes import open_folder
from tests.acceptance.reliability.breaking import confirmed_after
from tests.acceptance.reliability.stage import postgresql

INTERVAL = 60


def main() -> None:
    bound = INTERVAL * (1 + 2 * JITTER) + QUICK.total_seconds() * (1 + 2 * JITTER) + 2
    with postgresql() as server, open_folder() as folder:
        found = asyncio.run(confirmed_after(server.fresh(), folder, INTERVAL))
    print(
        f"interval {INTERVAL} s: confirmed {found.waited_s:.1f} s after the route broke; at most {bound:.0f} s are allowed"
    )
    assert found.waited_s <= bound


if __name__ == "__main__":
    main()
