"""PostgreSQL away for 30 s under load, three ways; about four minutes.

python -m scripts.reliability_outage
"""

from __future__ import annotations

import asyncio
import shutil

from tests.acceptance.processes import open_folder
from tests.acceptance.reliability.outage import Size, direct, outage
from tests.acceptance.reliability.stage import pgbouncer, postgresql

SIZE = Size(cells=200, interval=10, away_s=30)
WAYS = [("running on", direct, False), ("killed meanwhile", direct, True), ("through pgbouncer", pgbouncer, False)]


def main() -> None:
    print(SIZE)
    with postgresql() as server:
        for name, way, kill in WAYS:
            if way is pgbouncer and shutil.which("pgbouncer") is None:
                print(f"{name}: left out, pgbouncer isn't installed")
                continue
            with open_folder() as folder:
                found = asyncio.run(outage(server.fresh(), folder, SIZE, way=way, kill=kill))
            print(f"{name}: {found}", flush=True)
            assert found.stored.exact
            assert found.spooled > 0


if __name__ == "__main__":
    main()
