"""Time as an event loop lives through it: what a machine takes away from it, being busy or stopped, doesn't count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_TICK_S = 0.05


class Lived:
    """`seconds` that a timer of the loop has counted: never more than have passed, and fewer on a machine that let the
    loop wait. What ends by a timer of the same loop ends on time by it."""

    seconds = 0.0

    async def count(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.seconds += _TICK_S


@asynccontextmanager
async def lived() -> AsyncIterator[Lived]:
    """The time that the loop lives through from here on."""
    time = Lived()
    counting = asyncio.create_task(time.count())
    try:
        yield time
    finally:
        counting.cancel()
