"""The contracts that a route can be held to, one line each."""

from __future__ import annotations

from collections.abc import Mapping

from service.contracts.base import Contract
from service.contracts.native_tools import NativeTools

CONTRACTS: Mapping[str, Contract] = {
    NativeTools.name: NativeTools(),
}

__all__ = ["CONTRACTS", "Contract"]
