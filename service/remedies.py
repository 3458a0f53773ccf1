"""What a verdict means in plain words, and what to do next. Tables only: keyed by status and reason, a refused history
by its contract as well.

A remedy's first sentence is the action and stands alone where space is short; what follows says why.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.model import Outcome

WORDS: Mapping[str, str] = {
    "tools_supported": "Works",
    "forced_tool_choice_rejected": "Works, but not forced",
    "turn_completed": "Whole turn works",
    "history_accepted": "Accepted",
    "parallel_calls_supported": "Works in parallel",
    "tools_payload_rejected": "Tools refused",
    "auto_tool_choice_rejected": "Choice auto refused",
    "token_cap_rejected": "Token cap refused",
    "stream_early_eof": "Stream ends early",
    "malformed_tool_call": "Tool call broken",
    "tool_call_leaked_as_text": "Tool call sent as text",
    "malformed_stream": "Stream broken",
    "stream_ignored": "Doesn't stream",
    "history_rejected": "History refused",
    "endpoint_auth_failed": "Credential refused",
    "quota_or_routing_failed": "Quota or plan exhausted",
    "rate_limited": "Rate limited",
    "model_unavailable": "Model not available",
    "region_blocked": "Place blocked",
    "endpoint_not_found": "Endpoint not found",
    "content_filtered": "Content filtered",
    "unreachable": "Unreachable",
    "timeout": "Timed out",
    "overloaded": "Overloaded",
    "provider_error": "Provider error",
    "inconclusive_no_tool_call": "No tool call made",
    "forced_tool_choice_ignored": "Forced choice ignored",
    "parallel_calls_not_made": "One call instead of two",
    "turn_unfinished": "Turn not finished",
    "probe_cap_reached": "Probe limit reached",
    "own_network": "Own network down",
    "prober_overloaded": "Prober overloaded",
    "answered_from_cache": "Answered from a cache",
    "cancelled": "Probe cancelled",
    "not_sent": "Not asked",
}


def in_words(status: str) -> str:
    """The status in a few plain words; a status that isn't known here is shown as it is, without underscores."""
    return WORDS.get(status, status.replace("_", " ").capitalize())


_BY_OUTCOME: Mapping[Outcome, str] = {
    Outcome.PROVEN: "Nothing to do.",
    Outcome.VIOLATED: "Change the route, the server's flags, or the client. The route itself broke the contract.",
    Outcome.BLOCKED: "Check the key, the plan, the model name and the URL. We were refused before the contract could "
    "be judged.",
    Outcome.UNAVAILABLE: "Wait, or fail over to another route. The route did not answer.",
    Outcome.UNPROVEN: "Nothing yet. The evidence doesn't decide; the last proof keeps ageing.",
}

_CLIENT = "Tell the server's operator, or send tool traffic elsewhere."

REMEDIES: Mapping[tuple[str, str | None], str] = {
    # proven
    ("tools_supported", None): "Nothing to do.",
    ("forced_tool_choice_rejected", None): "Nothing to do unless your client forces tools. A forced choice is refused "
    "here; the same request under auto works.",
    ("turn_completed", None): "Nothing to do.",
    ("history_accepted", None): "Nothing to do.",
    ("parallel_calls_supported", None): "Nothing to do.",
    # violated
    ("tools_payload_rejected", None): "Send tool traffic elsewhere, or turn tool calling on at the server. Requests "
    "with tools are refused, the same request without them is answered. Self-hosted servers need a tool-call parser "
    "or a chat template with tools.",
    ("tools_payload_rejected", "parallel_flag_rejected"): "Remove parallel_tool_calls from the route and from its "
    "clients. Only that flag is refused; tools themselves are accepted.",
    ("auto_tool_choice_rejected", None): "Turn automatic tool choice on at the server. A forced choice is accepted but "
    "auto, which real turns send, is refused. vLLM wants --enable-auto-tool-choice and a --tool-call-parser.",
    ("token_cap_rejected", None): "Set token_cap.field to the field that this route accepts. The configured one is "
    "refused: try max_completion_tokens in place of max_tokens, or the other way round.",
    ("stream_early_eof", None): "Fail over, and check the gateways between you and the model. The stream ends without "
    "announcing its end, so clients can't tell a whole answer from a cut one.",
    ("stream_early_eof", "closed_before_event"): "Fail over, and look for a crash or a limit at the server. The stream "
    "was opened and closed without a single event.",
    ("stream_early_eof", "closed_after_event"): "Fail over, and check time limits of gateways on the way. The stream "
    "began and was closed in the middle, as an idle or response timeout does.",
    ("stream_early_eof", "reset_before_event"): "Fail over, and check the gateway's connection to its upstream. The "
    "connection broke after the headers, before any event.",
    ("stream_early_eof", "reset_after_event"): "Fail over, and check gateways and the server for restarts. The "
    "connection broke in the middle of the stream.",
    ("stream_early_eof", "empty"): "Fail over, and look at the server's log. It answered 200 with an empty body.",
    ("malformed_tool_call", None): f"{_CLIENT} The call can't be dispatched as it was sent; repairing it in a client "
    "hides the fault.",
    ("malformed_tool_call", "arguments_cumulative"): f"{_CLIENT} Every fragment repeats the arguments so far, where "
    "each should carry only what is new.",
    ("malformed_tool_call", "arguments_resent"): f"{_CLIENT} After the fragments the whole arguments are sent once "
    "more, and clients that append them get broken JSON.",
    ("malformed_tool_call", "arguments_doubled"): f"{_CLIENT} The arguments arrive twice, one after the other.",
    ("malformed_tool_call", "arguments_concatenated"): f"{_CLIENT} The arguments of several calls are glued together "
    "in one.",
    ("malformed_tool_call", "arguments_double_encoded"): f"{_CLIENT} The arguments are JSON inside a JSON string.",
    ("malformed_tool_call", "arguments_truncated"): "Look for a token or size limit at the server. The arguments are "
    "cut although the answer claims to be finished.",
    ("malformed_tool_call", "arguments_not_json"): f"{_CLIENT} The arguments aren't JSON.",
    ("malformed_tool_call", "arguments_not_string"): f"{_CLIENT} The arguments come as an object where the dialect "
    "wants a string of JSON.",
    ("malformed_tool_call", "arguments_not_object"): f"{_CLIENT} The arguments are JSON, but not an object.",
    ("malformed_tool_call", "arguments_missing_required"): "Try a stronger model or quantisation. The call lacks an "
    "argument that the declared schema requires.",
    ("malformed_tool_call", "arguments_schema_violation"): "Try a stronger model or quantisation. The arguments don't "
    "satisfy the declared schema.",
    ("malformed_tool_call", "arguments_trailing_text"): "Check the server's tool-call parser. Text follows the JSON of "
    "the arguments.",
    ("malformed_tool_call", "arguments_polluted"): "Check the server's tool-call parser. Markup of the model's call "
    "format got into the arguments.",
    ("malformed_tool_call", "arguments_contradicted"): f"{_CLIENT} The arguments that were streamed and those that are "
    "given at the end say different things.",
    ("malformed_tool_call", "name_missing"): f"{_CLIENT} The call names no function.",
    ("malformed_tool_call", "name_not_declared"): "Check the server's tool-call parser and chat template. The call "
    "names a function that was never declared.",
    ("malformed_tool_call", "id_missing"): f"{_CLIENT} The call has no id, so its result can't be sent back.",
    ("malformed_tool_call", "call_identity_unstable"): f"{_CLIENT} The id or name of a call changes between its "
    "fragments.",
    ("malformed_tool_call", "call_id_duplicated"): f"{_CLIENT} Two calls share one id, so results can't be told apart.",
    ("malformed_tool_call", "server_side_parse_failure"): "Check the server's tool-call parser against the model. The "
    "server says that it couldn't parse the model's call.",
    ("malformed_tool_call", "provider_declared_malformed"): "Retry, then try another model. The provider itself says "
    "that its model's call was malformed.",
    ("tool_call_leaked_as_text", None): "Set the tool-call parser that fits the model at the server. The model makes "
    "the call in its own markup and it reaches clients as plain text.",
    ("tool_call_leaked_as_text", "harmony"): "Use a server that parses the harmony format, and turn its parser on. "
    "The model's call reaches clients as plain text.",
    ("tool_call_leaked_as_text", "hermes"): "Set the hermes tool-call parser at the server. The model's call reaches "
    "clients as plain text in <tool_call> tags.",
    ("tool_call_leaked_as_text", "kimi"): "Set the Kimi tool-call parser at the server. The model's call reaches "
    "clients as plain text.",
    ("tool_call_leaked_as_text", "mistral"): "Set the Mistral tool-call parser at the server. The model's call reaches "
    "clients as plain text.",
    ("tool_call_leaked_as_text", "llama"): "Set the Llama tool-call parser at the server. The model's call reaches "
    "clients as plain text.",
    ("tool_call_leaked_as_text", "deepseek"): "Set the DeepSeek tool-call parser at the server. The model's call "
    "reaches clients as plain text.",
    ("tool_call_leaked_as_text", "dsml"): "Set the DeepSeek (DSML) tool-call parser at the server. The model's call "
    "reaches clients as plain text.",
    ("tool_call_leaked_as_text", "pythonic"): "Set the pythonic tool-call parser at the server. The model's call "
    "reaches clients as plain text.",
    ("tool_call_leaked_as_text", "xml_invoke"): "Set a tool-call parser for the XML invoke format at the server. The "
    "model's call reaches clients as plain text.",
    ("tool_call_leaked_as_text", "fenced"): "Check that the chat template shows the tools to the model. It writes the "
    "call into a fenced block of its text, as models do that were never told of native tools.",
    ("tool_call_leaked_as_text", "json"): "Check that the chat template shows the tools to the model. It writes the "
    "call as bare JSON into its text, and no parser picks it up.",
    ("tool_call_leaked_as_text", "function_call"): "Move the server or gateway to the tools API. The call came in the "
    "old function_call field, which clients of tools don't read.",
    ("malformed_stream", None): "Fail over, and check gateways that rewrite the stream. Its framing or order of "
    "events is broken, so nothing in it can be trusted.",
    ("malformed_stream", "not_an_event_stream"): "Check what answers at base_url, and proxies on the way. The answer "
    "is labelled as an event stream, and what came isn't one.",
    ("malformed_stream", "http_framing"): "Check proxies on the way. The chunks of the HTTP body can't be read.",
    ("malformed_stream", "content_encoding"): "Fix the gateway's content-encoding. The body isn't encoded as its "
    "header says.",
    ("malformed_stream", "data_not_json"): "Check gateways that rewrite the stream. An event in mid-stream isn't JSON, "
    "as when something cuts events or mixes text of its own in.",
    ("malformed_stream", "event_not_object"): "Check gateways that rewrite the stream. An event is JSON, but not an "
    "object.",
    ("malformed_stream", "choice_not_object"): "Check gateways that rewrite the stream. A choice of an event is no "
    "object.",
    ("malformed_stream", "candidate_not_object"): "Check gateways that rewrite the stream. A candidate of an event is "
    "no object.",
    ("malformed_stream", "message_not_delta"): "Make the server or gateway send deltas. Whole messages came where the "
    "stream should carry pieces, and clients that wait for deltas read nothing.",
    ("malformed_stream", "foreign_dialect"): "Set the dialect that this route speaks. The events are those of another "
    "API.",
    ("malformed_stream", "event_type_missing"): f"{_CLIENT} Events carry no type, so nobody can tell what they are.",
    ("malformed_stream", "delta_without_start"): f"{_CLIENT} A piece of a call's input came for a block that never "
    "began, so the call's name is lost.",
    ("malformed_stream", "delta_of_other_block"): f"{_CLIENT} A piece of a call's input came for a block of another "
    "kind.",
    ("malformed_stream", "too_many_blocks"): f"{_CLIENT} The answer opens content blocks without end.",
    ("malformed_stream", "too_many_calls"): f"{_CLIENT} The answer opens calls without end, as a fragment without an "
    "identity of its own does when each one is taken for a call.",
    ("stream_ignored", None): "Turn streaming on at the gateway or server. The request asked for a stream and got one "
    "JSON body.",
    ("stream_ignored", "json_completion"): "Turn streaming on at the gateway or server. The request asked for a stream "
    "and got one whole completion as JSON.",
    ("stream_ignored", "json_body"): "Check what answers at base_url. The request asked for a stream and got JSON that "
    "is neither a completion nor an error.",
    ("history_rejected", None): "Change what the client sends. This shape of history is refused, the same one put "
    "right is accepted.",
    ("history_rejected", "reasoning_replay_required"): "Replay the assistant's reasoning fields with its calls. The "
    "route refuses a history without them.",
    ("history_rejected", "reasoning_replay_invalid"): "Replay the assistant's reasoning unchanged, or leave it out. "
    "The route refuses the reasoning that it sent itself.",
    # blocked
    ("endpoint_auth_failed", None): "Rotate or fix the key. The provider refuses the credential.",
    ("quota_or_routing_failed", None): "Add credit or raise the plan. The provider says that credit, plan or billing "
    "is exhausted.",
    ("quota_or_routing_failed", "no_route_for_model"): "Add a channel for this model at the gateway. The gateway has "
    "none that it can use.",
    ("quota_or_routing_failed", "plan_window_exhausted"): "Wait for the plan's window to reset, or raise the plan. Its "
    "allowance for the current window is used up.",
    ("rate_limited", None): "Ask less often, or raise the limit. Requests or tokens per minute are used up; other "
    "traffic may share this key.",
    ("rate_limited", "request_exceeds_rate_budget"): "Raise the token limit of the plan. A single request is larger "
    "than the whole budget per minute, so waiting doesn't help.",
    ("model_unavailable", None): "Fix the model's name, or ask for access to it. The provider doesn't know or offer "
    "it to this key.",
    ("model_unavailable", "dialect_not_supported"): "Configure another dialect or another model. The model exists but "
    "isn't offered in this dialect.",
    ("model_unavailable", "not_deployed"): "Deploy or load the model. The server knows it but doesn't run it.",
    ("region_blocked", None): "Move the prober, or ask the provider to allow its address. The place or network is "
    "refused; the key is fine.",
    ("region_blocked", "edge_page"): "Move the prober, or ask the provider to allow its address. A firewall's page "
    "answered in place of the API; the key is fine.",
    ("endpoint_not_found", None): "Fix base_url and dialect. What answers there isn't an API of this dialect.",
    ("endpoint_not_found", "html_page"): "Fix base_url. A web page answers there instead of the API.",
    ("endpoint_not_found", "redirect"): "Set base_url to the address that it redirects to. Redirects are never "
    "followed, so that a key can't travel to another host.",
    ("content_filtered", None): "Relax the content filter for this key, or exempt the probe. The probe's plain text "
    "was refused by a filter.",
    # unavailable
    ("unreachable", None): "Check the host and the network, or fail over. There was no HTTP answer at all.",
    ("unreachable", "dns"): "Check the host's name in base_url and the resolver. The name doesn't resolve.",
    ("unreachable", "refused"): "Start the server, or fix the port in base_url. The connection was refused.",
    ("unreachable", "reset"): "Check firewalls and the server, or fail over. The connection was broken before an "
    "answer came.",
    ("unreachable", "closed"): "Check firewalls and the server, or fail over. The connection was closed without an "
    "answer.",
    ("unreachable", "not_http"): "Fix the scheme or the port in base_url. What answers there doesn't speak HTTP.",
    ("unreachable", "connect"): "Check the host and the network, or fail over. No connection could be made.",
    ("unreachable", "no_path_to_host"): "Check the network between the prober and the host. There is no way to it.",
    ("unreachable", "proxy"): "Check the configured proxy. It refused, or couldn't make, the connection.",
    ("unreachable", "tls"): "Check TLS at the server and on the way to it. The handshake failed.",
    ("unreachable", "tls_certificate"): "Fix the certificate, or set ca_file for a private authority. The server's "
    "certificate isn't trusted.",
    ("timeout", None): "Fail over, and see whether the provider is slow. Our deadline passed and nothing useful was "
    "coming.",
    ("timeout", "no_headers"): "Fail over, and look for a queue at the server. Not even headers came within the "
    "deadline.",
    ("timeout", "no_event"): "Fail over, and look for a queue at the server. Headers came, but no event within the "
    "deadline.",
    ("timeout", "stalled"): "Fail over, and look at the server. The stream began and then stood still until the "
    "deadline.",
    ("overloaded", None): "Wait, or fail over. The provider says that it is out of capacity.",
    ("provider_error", None): "Wait, or fail over, and see the provider's status page. Requests fail with and without "
    "tools alike.",
    ("provider_error", "http_4xx"): "Check the route's configuration: the request is refused in every form. Waiting "
    "won't help; the detail below is what the provider said.",
    ("provider_error", "error_in_stream"): "Wait, or fail over, and see the provider's status page. The answer began "
    "and an error came in its middle.",
    ("provider_error", "control_empty"): "Look at the server, or fail over. Tools were refused, and the same request "
    "without them brought no text either.",
    # unproven
    ("inconclusive_no_tool_call", None): "Nothing yet. The model answered in text instead of calling; try a stronger "
    "model if it stays so.",
    ("inconclusive_no_tool_call", "token_cap"): "Raise token_cap.value for this route. Our own cap cut the answer "
    "before a whole call, as with long reasoning.",
    ("inconclusive_no_tool_call", "text_under_auto"): "Nothing yet. Under auto the model answered in text, as it may; "
    "try a stronger model if it stays so.",
    (
        "inconclusive_no_tool_call",
        "undecided",
    ): "Nothing yet. What was seen decides nothing; the ladder below shows it.",
    ("inconclusive_no_tool_call", "control_cut"): "Raise token_cap.value for this route. Our own cap cut the control's "
    "answer before it said anything, as with long reasoning.",
    (
        "forced_tool_choice_ignored",
        None,
    ): "Check that the server passes tools on to the model. Forcing was accepted "
    "and ignored, and nothing was called under auto either.",
    ("parallel_calls_not_made", None): "Nothing yet. Two calls were asked for and one came; the model may not make "
    "them in parallel.",
    ("turn_unfinished", None): "Nothing yet. The turn was accepted but brought no answer.",
    ("turn_unfinished", "empty"): "Nothing yet, but look at the server if it stays so. The turn was accepted and the "
    "answer was empty.",
    ("turn_unfinished", "another_call"): "Nothing yet, but try a stronger model if it stays so. Where an answer was "
    "due the model called the tool again.",
    ("turn_unfinished", "token_cap"): "Raise token_cap.value for this route. Our own cap cut the answer before any "
    "text, as with long reasoning.",
    ("turn_unfinished", "control_empty"): "Nothing yet, but look at the server if it stays so. The shape was refused, "
    "and the same history put right brought no answer.",
    ("probe_cap_reached", None): "Nothing yet; raise the deadline if it stays so. Our own limit on bytes, requests or "
    "time stopped the probe while answers still came.",
    ("probe_cap_reached", "deadline"): "Raise the route's deadline. Answers were still flowing when ours passed.",
    ("probe_cap_reached", "bytes"): "Nothing yet; look at the server if it stays so. The answer went on beyond our "
    "limit of 8 MiB.",
    ("probe_cap_reached", "requests"): "Nothing yet; look at the ladder if it stays so. The answers changed so often "
    "that our limit on requests was spent.",
    ("probe_cap_reached", "time"): "Raise the route's deadline. The probe's time was spent before the claim was "
    "decided.",
    ("own_network", None): "Check the prober's own network. The route didn't answer, and neither did our own check of "
    "the way out.",
    ("prober_overloaded", None): "Give the prober more CPU, or fewer routes. It was late itself, so nothing is said of "
    "the route.",
    ("prober_overloaded", "event_loop_lag"): "Give the prober more CPU, or fewer routes. Its event loop was late by "
    "more than a second, so nothing is said of the route.",
    ("prober_overloaded", "resolver_queue"): "Look at the prober's name servers. Names that don't resolve kept this "
    "one waiting for more than a second, so nothing is said of the route.",
    ("answered_from_cache", None): "Turn caching off for the probe's key at the gateway. Yesterday's answer proves "
    "nothing about today.",
    ("cancelled", None): "Nothing to do. The probe was stopped by a shutdown or by an operator.",
    ("not_sent", None): "See why nothing was sent. No request went out, so nothing is proven.",
    ("not_sent", "credential_missing"): "Set the key's variable or file for this route. It is named in the "
    "configuration and can't be read, so nothing was sent.",
    ("not_sent", "budget_spent"): "Raise the route's budget, or wait for the next UTC day. It is spent, and the last "
    "proof keeps ageing.",
    ("not_sent", "paused"): "End the pause to have the route asked again. Probing is paused.",
    ("not_sent", "not_in_dialect"): "Drop this contract from the route, or leave it. Its dialect has no such message, "
    "so nothing is asked.",
}


_FAITHFUL = "The turn was replayed exactly as it came, so no client can do better."

HISTORY_REMEDIES: Mapping[tuple[str, str | None], str] = {
    ("agent_turn", None): f"{_CLIENT} The route refuses its own call when it comes back with a result. {_FAITHFUL}",
    ("agent_turn", "reasoning_replay_required"): "Look for a gateway on the way that drops reasoning. The route wants "
    f"reasoning back that it didn't send. {_FAITHFUL}",
    ("agent_turn", "reasoning_replay_invalid"): "Look for a gateway on the way that alters reasoning. The route "
    f"refuses the reasoning that it sent itself. {_FAITHFUL}",
    ("undeclared_tool_history", None): "Declare the tools again, or flatten calls and results to text. A history with "
    "calls is refused when the request declares no tools, as requests for titles and summaries do.",
    ("displaced_tool_results", None): "Hoist the results: every result right behind its calls. The user's message goes "
    "behind the last of them, or behind the answer to them.",
    ("missing_tool_results", None): "Send a result for every call. One that says that the run was cancelled will do.",
    ("orphaned_tool_results", None): "Drop a result whose call is gone, or keep its call. Cut a history in front of a "
    "call, never between a call and its result.",
    ("duplicate_tool_results", None): "Keep the last result of a call only. Two results for one call are refused.",
    ("tool_choice_none_history", None): "Leave tool_choice out, or flatten calls and results to text. A history with "
    "calls is refused together with tool_choice none.",
    ("mixed_result_carrier", None): "Send the user's words in a message of their own. Beside a result in one message "
    "they are refused.",
}
"""What a client must do where a contract's history is refused, by contract and reason."""


def remedy(status: str, reason: str | None, outcome: Outcome | None = None, contract: str | None = None) -> str:
    """What to do about a verdict. Looked up by status and reason, then the reason's family, then the status alone;
    a refused history also by its contract, which goes before the status alone.

    `outcome` is the last resort for a status that this version doesn't know, as a newer one may have stored.
    """
    for key in _reasons(reason):
        if status == "history_rejected" and contract is not None and (contract, key) in HISTORY_REMEDIES:
            return HISTORY_REMEDIES[contract, key]
        if (status, key) in REMEDIES:
            return REMEDIES[status, key]
    if outcome is not None:
        return _BY_OUTCOME[outcome]
    return "See the verdict's detail. This version doesn't know its status."


def first_step(text: str) -> str:
    """The first sentence of a remedy: the action, where space is short."""
    head, stop, _ = text.partition(". ")
    return head + "." if stop else head


_COULD_PASS = frozenset({"http_408", "http_425", "http_429"})


def _reasons(reason: str | None) -> tuple[str | None, ...]:
    """The keys to try, the finest first: `http_422` also as `http_4xx`, `tls_expired` also as `tls`.

    A refusal that could pass by waiting is no `http_4xx`.
    """
    if reason and reason.startswith("http_4") and reason not in _COULD_PASS:
        return reason, "http_4xx", None
    if reason and reason.startswith("tls_"):
        return reason, "tls", None
    return reason, None
