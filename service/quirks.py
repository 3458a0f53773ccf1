"""What each quirk means for a client, in plain words. A quirk never changes a verdict; it trips some clients."""

from __future__ import annotations

from collections.abc import Mapping

EXPLANATIONS: Mapping[str, str] = {
    "flaky": "One and the same question was answered in two ways within one probe. Expect occasional failures.",
    "index_missing": "Pieces of a tool call carry no index. Clients that sort by index may merge or drop calls.",
    "index_reused": "Two calls or blocks share one index. Clients that go by the index alone glue their contents "
    "together.",
    "done_missing": "The stream never sends the closing [DONE]. Clients that wait for it hang or report an error.",
    "done_unexpected": "A closing [DONE] is sent that this API doesn't have. Google's own client fails on it.",
    "content_after_end": "Parts of the answer come behind a finish reason. Clients that stop reading there lose them.",
    "finish_reason_missing": "No finish reason is sent. Clients that wait for one may not dispatch the call.",
    "finish_reason_stop": "A turn with a tool call finishes as a plain answer does (“stop”, “end_turn”). Clients that "
    "dispatch only on “tool_calls” or “tool_use” ignore the call.",
    "name_repeated": "The function's name comes again in later fragments. Clients that append it build a wrong name.",
    "name_fragmented": "The function's name arrives in pieces. Clients that take the first piece call a wrong name.",
    "comment_as_data": "Keep-alive comments arrive as data lines. Clients that parse every data line as JSON fail.",
    "output_index_missing": "Output items carry no output_index. Clients that sort by it may mix items up.",
    "block_index_gap": "Content blocks skip an index. Clients that keep blocks in an array may trip over the gap.",
    "block_start_missing": "Text arrives for a content block that never began. The official client fails on it.",
    "block_stop_missing": "The call's content block is never closed. Clients that dispatch at its end miss the call.",
    "event_name_missing": "Events carry their type in the data only. The official client ignores events without a "
    "name.",
    "message_start_missing": "The stream doesn't begin with message_start. The official client refuses it.",
    "message_stop_missing": "The stream never sends message_stop. Clients that wait for it hang or report an error.",
    "tool_markup_in_content": "Markup of a tool call also shows up in the text, beside the native call. Users may "
    "see it.",
    "usage_missing": "Token usage was asked for and is not reported. Costs and budgets are estimates here.",
    "served_model_differs": "The answer names another model than the one asked for. Check aliases and fallbacks.",
    "stream_options_rejected": "The stream_options field is refused. Turn include_usage off for clients of this route.",
    "value_differs": "The call's argument isn't the literal that was asked for. The call is whole, the model was "
    "loose with it.",
    "unrequested_parallel_calls": "More than one call came back where one was asked for. Clients that take the first "
    "call only lose the others.",
    "deltas_incomplete": "The streamed pieces of the arguments stop short of the whole that is sent at the end. "
    "Clients that only add up pieces get broken JSON.",
    "tool_calls_not_array": "The calls come as one object where the dialect has a list. Clients that loop over them "
    "fail.",
    "parallel_flag_rejected": "The parallel_tool_calls flag is refused; without it calls come. Don't send it here.",
    "forced_choice_ignored": "A forced tool choice is taken and has no effect; under auto the model calls. Clients "
    "that force a tool get text.",
    "forced_call_leaked": "Under a forced tool choice the call comes as text; under auto it is a native one. Don't "
    "force tools here.",
    "max_completion_tokens_wanted": "The route refuses max_tokens by name and takes max_completion_tokens. Configure "
    "token_cap.field so, in clients too.",
}


def explain(quirk: str) -> str:
    """The quirk in plain words. One that isn't known here gets a sentence that says so."""
    return EXPLANATIONS.get(quirk, "No explanation is known for this quirk; a newer version may have one.")
