"""The clock that spans of time are measured by."""

from __future__ import annotations

import time


def suspended_clock() -> float:
    """Seconds of a monotonic clock that counts the time in which the machine slept, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
