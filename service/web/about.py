"""What pages say of the contracts themselves: each module's own docstring, and the order in which they are told."""

from __future__ import annotations

import inspect
import sys

from service.contracts import CONTRACTS

_ORDER = {name: place for place, name in enumerate(CONTRACTS)}


def paragraphs(contract: str) -> tuple[str, ...]:
    """The docstring of the contract's module, each paragraph in one line; the first one is the claim. Nothing for a
    contract that this version doesn't know."""
    text = sys.modules[f"service.contracts.{contract}"].__doc__ if contract in CONTRACTS else None
    return tuple(" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n") if part)


def example(contract: str) -> str:
    """The history put right, as JSON; empty where there is none."""
    return CONTRACTS[contract].example if contract in CONTRACTS else ""


def place(contract: str) -> tuple[int, str]:
    """A sort key: the same order on every page, contracts of a newer version last."""
    return _ORDER.get(contract, len(_ORDER)), contract
