"""The contracts that a route can be held to, one line each."""

from __future__ import annotations

from collections.abc import Mapping

from service.contracts import (
    displaced_tool_results,
    duplicate_tool_results,
    missing_tool_results,
    mixed_result_carrier,
    orphaned_tool_results,
    tool_choice_none_history,
    undeclared_tool_history,
)
from service.contracts.agent_turn import AgentTurn
from service.contracts.base import Contract
from service.contracts.native_tools import NativeTools
from service.contracts.parallel_tool_calls import ParallelToolCalls

CONTRACTS: Mapping[str, Contract] = {
    contract.name: contract
    for contract in (
        NativeTools(),
        AgentTurn(),
        undeclared_tool_history.CONTRACT,
        displaced_tool_results.CONTRACT,
        missing_tool_results.CONTRACT,
        orphaned_tool_results.CONTRACT,
        duplicate_tool_results.CONTRACT,
        tool_choice_none_history.CONTRACT,
        mixed_result_carrier.CONTRACT,
        ParallelToolCalls(),
    )
}

__all__ = ["CONTRACTS", "Contract"]
