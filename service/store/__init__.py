"""What Routeproof knows, in PostgreSQL."""

from service.store.board import Board, View
from service.store.probers import Sign
from service.store.store import Store

__all__ = ["Board", "Sign", "Store", "View"]
