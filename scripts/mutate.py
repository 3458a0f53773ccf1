"""Break the judgment on purpose, one way at a time, and see that the tests notice.

    python scripts/mutate.py            # all mutations; writes docs/mutations.md
    python scripts/mutate.py --list
    python scripts/mutate.py 3 17       # only these

Each mutation is one textual change in a copy of the tree; the tests that hold the judgment run against the copy until the
first that fails. A mutation whose text isn't found, or that no test notices, fails the run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "mutations.md"
UNIT, CORPUS = "tests/unit/test_", "tests/acceptance/test_corpus.py"
TESTS: Mapping[str, tuple[str, ...]] = {
    "service/sse.py": (f"{UNIT}sse.py",),
    "service/seen.py": (f"{UNIT}seen.py", f"{UNIT}native_tools.py"),
    "service/rules.py": (f"{UNIT}rules.py", f"{UNIT}native_tools.py"),
    "service/contracts/ladder.py": (f"{UNIT}native_tools.py", f"{UNIT}agent_turn.py"),
    "service/contracts/native_tools.py": (f"{UNIT}native_tools.py",),
    "service/contracts/agent_turn.py": (f"{UNIT}agent_turn.py",),
    "service/contracts/history.py": (f"{UNIT}history.py",),
    "service/refusal.py": (f"{UNIT}refusal.py",),
    "service/refusal_codes.py": (f"{UNIT}refusal.py",),
    "service/waits.py": (f"{UNIT}waits.py",),
    "service/answer.py": (f"{UNIT}answer.py",),
    "service/transport.py": ("tests/integration/test_transport.py",),
    "service/dialects/base.py": (f"{UNIT}openai_chat.py", f"{UNIT}answer.py", f"{UNIT}fuzz.py"),
    "service/dialects/openai_chat.py": (f"{UNIT}openai_chat.py",),
    "service/dialects/calls.py": (f"{UNIT}calls.py",),
    "service/dialects/leaks.py": (f"{UNIT}leaks.py",),
    "service/redact.py": (f"{UNIT}redact.py",),
    "service/redact_patterns.py": (f"{UNIT}redact.py",),
    "service/probe.py": (),
}
"""The tests that hold a file; the corpus comes after them."""


@dataclass(frozen=True)
class Mutation:
    """`old` becomes `new`, once, in `file`; `what` says it in words."""

    file: str
    old: str
    new: str
    what: str


M = Mutation
MUTATIONS: tuple[Mutation, ...] = (
    # decoder
    M("service/sse.py", 'rb"[\\r\\n]"', 'rb"[\\n]"', "a bare CR no longer ends a line"),
    M("service/sse.py", "self._skip_lf = True", "self._skip_lf = False", "CRLF cut between its bytes makes a blank line"),
    M("service/sse.py", "        if self._buffer.startswith(_BOM):", "        if False:", "a BOM stays in the first line"),
    M("service/sse.py", 'if line.startswith(b":"):', 'if line.startswith(b"::"):', "comments are no longer comments"),
    M("service/sse.py", 'Event("\\n".join(self._data), self._name or "message", unterminated=True)', 'Event("\\n".join(self._data), self._name or "message")', "a cut event passes for a whole one"),
    M("service/sse.py", "if len(buffer) + self._held > self._limit:", "if False:", "the decoder's cap is gone"),
    # how an exchange reads
    M("service/seen.py", "    if reading is None or reading.announced is None:\n        return Seen.EARLY_END\n    if reading.declared", "    if reading is None:\n        return Seen.EARLY_END\n    if reading.declared", "an end that wasn't announced no longer matters"),
    M("service/seen.py", "    if reading is not None and reading.error is not None:", "    if False and reading is not None and reading.error is not None:", "errors inside a stream are overlooked"),
    M("service/seen.py", "return Seen.OWN_CAP if exchange.flowing else Seen.TIMEOUT", "return Seen.TIMEOUT", "a deadline in mid-flow is called a timeout"),
    M("service/seen.py", "if reading.filtered and all(call.problem and call.cut for call in reading.calls):", "if False:", "a filter's end is overlooked"),
    M("service/seen.py", "return Seen.CUT if reading.capped and all(call.cut for call in problems) else Seen.BAD_CALL", "return Seen.BAD_CALL", "our own cap is blamed on the route"),
    M("service/seen.py", "        problems = [call for call in reading.calls if call.problem]\n        if not problems:", "        problems = [call for call in reading.calls if call.problem]\n        if len(problems) < len(reading.calls):", "one whole call hides a broken one"),
    # rules
    M("service/rules.py", "lambda facts: facts.deciding is not None and facts.deciding.cached and facts.seen is not Seen.REFUSED,", "lambda facts: False,", "an answer from a cache counts"),
    M("service/rules.py", "_own_load(facts.deciding) and facts.seen in _SILENCE", "_own_load(facts.deciding) and facts.seen in ()", "our own load is blamed on the route"),
    M("service/rules.py", "lambda facts: facts.circumstances.egress_up is False and facts.seen in", "lambda facts: facts.circumstances.egress_up is True and facts.seen in", "our own network is blamed on the route"),
    M("service/rules.py", "    return lambda facts: facts.seen is word and not facts.control", "    return lambda facts: facts.seen is word", "a broken control is called a broken route"),
    # ladder
    M("service/contracts/ladder.py", "return answered is not None and latest > answered", "return True", "a 5xx counts without being seen again"),
    M("service/contracts/ladder.py", "return bool(taken and exchange and exchange.reading and exchange.reading.has_text)", "return taken", "an answer without text counts as text"),
    M("service/contracts/ladder.py", "            if refusal is not None and refusal.kind is not None:\n                return _other_cap_field(last, refusal)", "            pass", "a settled refusal climbs on"),
    M("service/contracts/ladder.py", "return None if again else replace(last.ask, pause=True)", "return None", "a connection fault isn't asked again"),
    M("service/contracts/ladder.py", "return all(refusal is not None and refusal.hint is hint for refusal in refusals)", "return any(refusal is not None and refusal.hint is hint for refusal in refusals)", "one rung's 503 speaks for all"),
    M("service/contracts/native_tools.py", "        tools=() if control else (TOOL,),", "        tools=(TOOL,),", "the control carries tools"),
    M("service/contracts/native_tools.py", "    max_requests = 5", "    max_requests = 9", "more than five requests a probe"),
    M("service/contracts/native_tools.py", '        "native_tools.auto_call",\n        lambda facts: facts.ladder.seen(FORCED) in NO_CALL and', '        "native_tools.auto_call",\n        lambda facts:', "a call under auto hides that forcing was refused"),
    M("service/contracts/native_tools.py", "refusal is not None and refusal.could_pass is could_pass and", "refusal is not None and not could_pass and", "a passing fault under auto is called a rejection"),
    M("service/contracts/agent_turn.py", "    *GATE,\n", "", "the common rules are missing from the turn's table"),
    M("service/contracts/agent_turn.py", "facts.ladder.seen(AUTO) is Seen.CALL and facts.ladder.has_text(REPLAY)", "facts.ladder.seen(REPLAY) is not None", "a turn without an answer is completed"),
    M("service/contracts/agent_turn.py", "    return any(exchange.ask.rung != REPLAY and see(exchange) in ACCEPTED for exchange in between)", "    return True", "one server fault on the replay is a rejection"),
    M("service/contracts/history.py", "    max_requests = 8", "    max_requests = 3", "a history probe stops after three requests"),
    # refusal reader
    M("service/refusal.py", "    if effective not in (401, 402):", "    if True:", "phrases overrule 401 and 402"),
    M("service/refusal.py", "        if effective != 404 and any(", "        if any(", "a 404 that names the model settles without a control"),
    M("service/refusal.py", "    if effective == 403 and html:", "    if False:", "a firewall's page is called a refused key"),
    M("service/refusal.py", "    if effective is not None and 300 <= effective < 400:", "    if False:", "a redirect isn't a wrong path"),
    M("service/refusal.py", "    405: Refused.PATH,\n", "", "405 climbs"),
    M("service/refusal.py", "    for kind, codes in CODES.items():", "    for kind, codes in reversed(CODES.items()):", "the order of the codes is turned round"),
    M("service/refusal.py", "could_pass=kind is None and", "could_pass=False and", "no refusal could pass"),
    M("service/refusal_codes.py", 'r"insufficient balance"', 'r"insufficient"', "the phrase of credit is widened to a bare word"),
    M("service/refusal_codes.py", 'r"(?:invalid|incorrect) api[ _-]?key"', 'r"api[ _-]?key"', "any mention of an API key is a refused key"),
    M("service/refusal_codes.py", '        "tool_use_failed": "server_side_parse_failure",\n', "", "a failed generation is no longer known"),
    M("service/refusal_codes.py", '        "engine_overloaded_error": None,\n', "", "an overload under 429 is called our rate"),
    M("service/waits.py", "    if seconds > 1e11:", "    if seconds > 1e99:", "an epoch in milliseconds is taken for a wait"),
    # answer
    M("service/answer.py", "ERROR_LIMIT = 64 * 1024", "ERROR_LIMIT = 64 * 1024 * 1024", "error bodies are read whole"),
    M("service/answer.py", "BODY_LIMIT = 8 * 1024 * 1024", "BODY_LIMIT = 32 * 1024 * 1024", "the cap on bodies is four times as high"),
    M("service/transport.py", "follow_redirects=False", "follow_redirects=True", "redirects are followed with the key"),
    M("service/transport.py", "trust_env=False", "trust_env=True", "proxies of the environment are trusted"),
    # reader
    M("service/dialects/openai_chat.py", '_QUIET_ERRORS = frozenset({"error", "network_error", "insufficient_system_resource"})', "_QUIET_ERRORS = frozenset()", "quiet errors announce an end"),
    M("service/dialects/openai_chat.py", "        elif finish:\n", "        else:\n", "an empty finish_reason announces the end"),
    M("service/dialects/openai_chat.py", '        if self.announced is None:\n            return quirks\n        if not self.complete:\n            quirks.add("done_missing")\n', "        if self.announced is None:\n            return quirks\n", "a missing [DONE] is no quirk"),
    M("service/dialects/openai_chat.py", '                self.quirks.add("index_reused")\n                draft = known\n', '                self.quirks.add("index_reused")\n', "calls that share an index are glued together"),
    M("service/dialects/openai_chat.py", "            last = self._by_position.get(position) or self._open\n", "            last = self._open\n", "without an index the position is forgotten"),
    M("service/dialects/base.py", "        if not self.done:\n            self.broken = self.broken or reason", "        self.broken = self.broken or reason", "what follows the end can break the stream"),
    M("service/dialects/base.py", "        self.error_after_delta = self.deltas > 0", "        self.error_after_delta = False", "a late error climbs like a refusal"),
    # calls and leaks
    M("service/dialects/calls.py", "elif any(name.startswith(self.name + fragment) for name in declared):", "elif True:", "names are appended blindly"),
    M("service/dialects/calls.py", "if problem is None and need_ids and not draft.id:", "if False:", "a call without an id passes"),
    M("service/dialects/calls.py", "        if isinstance(value[name], str) and has_call_markup(value[name]):", "        if False:", "markup inside a value passes"),
    M("service/dialects/calls.py", "    if any(name not in value for name in tool.properties):", "    if False:", "a missing argument passes"),
    M("service/dialects/leaks.py", "    (\"json\", _json),\n", "", "bare JSON calls are no leak"),
    M("service/dialects/leaks.py", "        if any(_calls_something(rest, tools) for _, rest in _behind(pattern, text)):", "        if False:", "special tokens are no leak"),
    # redaction
    M("service/redact.py", "shown = _bound(replace(IDENTIFIERS, replace(SECRETS, self._without_own(text))), limit)", "shown = replace(IDENTIFIERS, replace(SECRETS, self._without_own(_bound(text, limit))))", "the bound comes before the redaction"),
    M("service/redact.py", "replace(SECRETS, self._without_own(text))", "replace(SECRETS, text)", "own secrets are searched for by the last check only"),
    M("service/redact.py", "return self._refuse() if self._survives(shown) else Redacted(shown)", "return Redacted(shown)", "the check of the result is gone"),
    M("service/redact.py", "for value in dict.fromkeys(_clean(secret.reveal()).strip() for secret in secrets):", "for value in ():", "no own secret is known"),
    M("service/redact_patterns.py", 'rf"{_START}((?i:bearer)', 'rf"{_START}((?i:bearrer)', "a Bearer credential is shown"),
    M("service/probe.py", "detail=redactor.text(refusal.text) if refusal else \"\",\n            requests", "detail=refusal.text if refusal else \"\",\n            requests", "the detail goes round the one door"),
)  # fmt: skip


def run_tests(tree: Path, tests: Iterable[str]) -> str | None:
    """The first test that fails on this tree, None when all pass."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    for test in tests:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", test]
        try:
            done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return f"{test} (did not end within 300 s)"
        if done.returncode:
            failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.MULTILINE)
            return failed[1] if failed else f"exit {done.returncode}: {done.stdout[-300:]}"
    return None


def copy_tree(folder: Path) -> Path:
    """A copy of what the tests need."""
    for name in ("service", "tests", "scripts", "migrations"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def try_one(tree: Path, mutation: Mutation) -> str | None:
    """Break the tree, run, mend it. Returns the test that noticed."""
    path = tree / mutation.file
    source = path.read_text(encoding="utf-8")
    if source.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.file}: found {source.count(mutation.old)} times, not once: {mutation.old!r}")
    path.write_text(source.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        return run_tests(tree, (*TESTS[mutation.file], CORPUS))
    finally:
        path.write_text(source, encoding="utf-8")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("numbers", nargs="*", type=int)
    arguments.add_argument("--list", action="store_true")
    given = arguments.parse_args()
    chosen = [(n, m) for n, m in enumerate(MUTATIONS, 1) if not given.numbers or n in given.numbers]
    for _, mutation in chosen:
        if (ROOT / mutation.file).read_text(encoding="utf-8").count(mutation.old) != 1:
            raise SystemExit(f"{mutation.file}: not found once: {mutation.old!r}")
    if given.list:
        print("\n".join(f"{n:3} {m.file}: {m.what}" for n, m in chosen))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder))
        every = dict.fromkeys(test for _, m in chosen for test in (*TESTS[m.file], CORPUS))
        if unbroken := run_tests(tree, every):
            raise SystemExit(f"the tests fail without any mutation: {unbroken}")
        rows = []
        for number, mutation in chosen:
            started = time.monotonic()
            noticed = try_one(tree, mutation)
            rows.append((number, mutation, noticed))
            print(
                f"{number:3} {'noticed' if noticed else 'SURVIVED':8} {time.monotonic() - started:5.0f} s  {mutation.what}  {noticed or ''}",
                flush=True,
            )
    if not given.numbers:
        write_report(rows)
    return 1 if any(noticed is None for _, _, noticed in rows) else 0


def write_report(rows: list[tuple[int, Mutation, str | None]]) -> None:
    noticed = sum(test is not None for _, _, test in rows)
    lines = [
        "# Mutations",
        "",
        "Made by `python scripts/mutate.py`: each row is one way to break the judgment, and the first test that noticed.",
        f"{noticed} of {len(rows)} were noticed.",
        "",
        "| # | where | what is broken | noticed by |",
        "| --- | --- | --- | --- |",
        *(f"| {n} | `{m.file}` | {m.what} | {f'`{test}`' if test else '**nothing**'} |" for n, m, test in rows),
    ]
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
