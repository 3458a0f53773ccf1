"""The data of the refusal reader: codes and narrow phrases, and what each of them settles.

Codes are compared in lower case with `-` and spaces as `_`. A phrase is added only with a case in the corpus;
words about tools, and the bare words "insufficient", "quota", "unsupported", "invalid" and "model", settle nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from service.model import Refused

# Specific kinds come first: where a body carries several codes (a generic type beside a precise reason), the
# earliest kind in this order counts.
CODES: Mapping[Refused, Mapping[str, str | None]] = {
    Refused.BROKEN_CALL: {
        "tool_use_failed": "server_side_parse_failure",
        "output_parse_failed": "server_side_parse_failure",
        "malformed_function_call": "provider_declared_malformed",
    },
    Refused.CREDIT: {
        "insufficient_quota": None,
        "insufficient_user_quota": None,
        "pre_consume_token_quota_failed": None,
        "insufficient_balance": None,
        "insufficient_balance_error": None,
        "insufficient_credits": None,
        "insufficient_g1_credits_balance": None,
        "billing_disabled": None,
        "budget_exceeded": None,
        "personal_team_blocked:spending_limit": None,
        "credit_balance_too_low": None,
        "exceeded_current_quota_error": None,
        "billing_not_active": None,
        "billing_error": None,
        "billing_hard_limit_reached": None,
        "payment_required": None,
        "arrearage": None,
        "accountoverdueerror": None,
        "prepaidbilloverdue": None,
        "postpaidbilloverdue": None,
        "allocationquota.freetieronly": None,
        "usage_limit_reached": "plan_window_exhausted",
        "usage_limit_exceeded": "plan_window_exhausted",
        "base_resp:1008": None,
        "base_resp:2056": "plan_window_exhausted",
        "1113": None,
        "1308": "plan_window_exhausted",
        "1309": None,
        "1310": "plan_window_exhausted",
    },
    Refused.NO_CHANNEL: {
        "no_available_channel": "no_route_for_model",
        "get_channel_failed": "no_route_for_model",
    },
    Refused.PLACE: {
        "unsupported_country_region_territory": None,
        "unsupported_region": None,
        "region_not_supported": None,
        "cloudflare:1005": None,
        "cloudflare:1006": None,
        "cloudflare:1007": None,
        "cloudflare:1008": None,
        "cloudflare:1009": None,
        "cloudflare:1010": None,
        "cloudflare:1020": None,
    },
    Refused.MODEL: {
        "model_not_found": None,
        "modelnotfound": None,
        "model_not_supported": None,
        "model_not_available": None,
        "model_not_exist": None,
        "model_decommissioned": None,
        "unsupported_model": None,
        "unknown_model": None,
        "invalid_model": None,
        "unavailable_model": None,
        "modelnotopen": None,
        "invalidendpointormodel.notfound": None,
        "deploymentnotfound": "not_deployed",
        "unsupported_api_for_model": "dialect_not_supported",
        "operationnotsupported": "dialect_not_supported",
        "1211": None,
    },
    Refused.FILTER: {
        "content_filter": None,
        "content_filter_error": None,
        "responsibleaipolicyviolation": None,
        "content_policy_violation": None,
        "data_inspection_failed": None,
        "datainspectionfailed": None,
        "sensitive_words_detected": None,
        "invalid_prompt": None,
        "prompt_blocked": None,
        "flagged_input": None,
        "sensitivecontentdetected": None,
        "inputtextsensitivecontentdetected": None,
        "outputtextsensitivecontentdetected": None,
        "inputtextriskdetection": None,
        "outputtextriskdetection": None,
        "base_resp:1026": None,
        "base_resp:1027": None,
        "1301": None,
    },
    Refused.OVERLOAD: {
        "engine_overloaded": None,
        "engine_overloaded_error": None,
        "overloaded": None,
        "overloaded_error": None,
        "server_overloaded": None,
        "serveroverloaded": None,
        "server_is_overloaded": None,
        "slow_down": None,
        "model_overloaded": None,
        "model_capacity_exhausted": None,
        "capacity_exceeded": None,
        "service_tier_capacity_exceeded": None,
        "insufficient_system_resource": None,
        "1305": None,
    },
    Refused.CREDENTIAL: {
        "invalid_api_key": None,
        "invalidapikey": None,
        "incorrect_api_key": None,
        "incorrect_api_key_error": None,
        "api_key_invalid": None,
        "api_key_expired": None,
        "invalid_api_token": None,
        "invalid_token": None,
        "token_expired": None,
        "expired_token": None,
        "authentication_error": None,
        "authenticationerror": None,
        "expired_key": None,
        "token_not_found_in_db": None,
        "invalid_authentication": None,
        "invalid_authentication_error": None,
        "account_deactivated": None,
        "unauthorized": None,
        "unauthenticated": None,
        "oauth.v2.invalidapikey": None,
        "unrecognizedclientexception": None,
        "expiredtokenexception": None,
        "base_resp:1004": None,
        "base_resp:2049": None,
        "cloudflare:10000": None,
    },
    Refused.PATH: {
        "unknown_url": None,
        "url.not_found": None,
        "cloudflare:7000": None,
        "cloudflare:7001": None,
        "cloudflare:7003": None,
    },
    Refused.RATE: {
        "rate_limit_exceeded": None,
        "rate_limit_error": None,
        "rate_limit_reached_error": None,
        "rate_limited": None,
        "ratelimitexceeded": None,
        "too_many_requests": None,
        "throttlingexception": None,
        "throttling": None,
        "throttling.ratequota": None,
        "throttling.allocationquota": None,
        "limit_requests": None,
        "limit_burst_rate": None,
        "resource_exhausted": None,
        "base_resp:1002": None,
        "base_resp:1039": None,
        "1302": None,
        "1303": None,
        "1304": None,
        "cloudflare:1015": None,
    },
}

PHRASES: tuple[tuple[Refused, str | None, re.Pattern[str]], ...] = tuple(
    (kind, reason, re.compile(pattern, re.IGNORECASE))
    for kind, reason, pattern in (
        (Refused.CREDIT, None, r"insufficient balance"),
        (Refused.CREDIT, None, r"credit balance is too low"),
        (Refused.CREDIT, None, r"(?:does not|doesn['’]t) have any credits"),
        (Refused.CREDIT, None, r"used all available credits"),
        (Refused.CREDIT, None, r"requires more credits"),
        (Refused.CREDIT, None, r"billing (?:is )?not enabled"),
        (Refused.NO_CHANNEL, "no_route_for_model", r"no available channels?\b"),
        (Refused.NO_CHANNEL, "no_route_for_model", r"无可用渠道"),
        (Refused.CREDENTIAL, None, r"(?:invalid|incorrect) api[ _-]?key"),
        (Refused.CREDENTIAL, None, r"api key not valid"),
        (Refused.CREDENTIAL, None, r"no auth credentials"),
        (Refused.CREDENTIAL, None, r"token expired or incorrect"),
        (Refused.PLACE, None, r"location is not supported"),
        (Refused.PLACE, None, r"banned the country"),
        (Refused.PLACE, None, r"country[\w ,]{0,40} banned"),
        (Refused.PLACE, None, r"you have been blocked"),
    )
)

_NAME = r"[`'\"“]?[\w./:@+-]{1,150}[`'\"”]?"

# The model is said to be missing. Under 404 these don't settle, they are what is said at the ladder's end.
MODEL_PHRASES: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\bmodels?[:/\s]\s*{_NAME} (?:is |was )?not found",
        rf"\bmodels?[:/\s]\s*{_NAME} (?:does not|doesn['’]t) exist",
        r"no models loaded",
        r"not a valid model id",
    )
)

# Under 404 alone these are said at the ladder's end too; elsewhere they are no more than words.
MODEL_HINTS: tuple[re.Pattern[str], ...] = (
    re.compile(r"^(?:the )?(?:requested )?model (?:is |was )?(?:not found|does not exist)\b", re.IGNORECASE),
    re.compile(r"^not found the model \S", re.IGNORECASE),
)

# A 404 whose text is a router's own, and so speaks of the path.
ROUTER_TEXT = re.compile(
    r"^\W*(?:404\W*)?(?:(?:page |path |route (?:\S{1,200} )?|endpoint |file |resource "
    r"|the requested (?:url|resource) )?(?:was )?not[ _]?found"
    r"|cannot post \S*|invalid url \([^)]{1,200}\)|no route matched[^.]{0,200}"
    r"|unknown (?:path|route|endpoint|url)[^.]{0,200})"
    r"\W*(?:nginx\W*)?$",
    re.IGNORECASE,
)


def token_cap_refused(text: str, field: str) -> bool:
    """Whether a message says that the parameter `field` itself (not its value) isn't supported."""
    bare = re.escape(field)
    name = rf"['\"`]?\b{bare}\b['\"`]?"
    of_value = (
        r"\W{1,3}(?:for )?(?:values?|to|above|over|beyond|greater|larger|higher|more|less|must|should)\b|\s?[=<>]"
    )
    patterns = (
        r"(?:unsupported|unrecogni[sz]ed|unknown|unexpected|extra|extraneous|does not support|doesn['’]t support)"
        r"(?: request| keyword)? (?:parameter|argument|field|name|input|propert(?:y|ie)|key)(?:s|\(s\))?"
        rf"(?: supplied| in object)?\s?:?\s?[\[{{(]?\s?{name}(?!{of_value})",
        rf"{name}:? (?:parameter |field |argument )?(?:extra inputs? )?(?:is |are |was |were )?"
        r"(?:not supported|unsupported|not permitted|not allowed|unexpected|unknown|unrecogni[sz]ed)\b"
        rf"(?!{of_value})",
        rf"extra inputs are not permitted, field: {name}",
        rf"extra_forbidden['\"], ['\"]loc['\"]: [(\[][^)\]]{{0,100}}['\"]{bare}['\"],?[)\]]",
    )
    return any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)
