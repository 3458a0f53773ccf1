"""What came of judging stored verdicts again, for people or for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, TextIO

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from service.facts import Lack
from service.rejudge import Change, Changed, Tally, Words
from service.rules import RULESET

_LACKS: Mapping[Lack, str] = {
    Lack.NO_FACTS: "no facts were stored with them",
    Lack.TOO_OLD: "recorded by a version that kept less than judging needs now",
    Lack.TOO_NEW: "recorded by a newer version, in words that this one doesn't know",
    Lack.NAMES_REDACTED: "redaction changed a model's name in them, so that names can't be compared",
    Lack.UNKNOWN_CONTRACT: "this version has no such contract",
}


def as_json(tally: Tally) -> str:
    """One object and nothing else."""
    shown = {
        "ruleset": RULESET,
        "read": tally.read,
        "same": tally.same,
        "changed": tally.changed,
        "changes": [_object(change, changed) for change, changed in tally.most_first()],
        "not_judged": {lack.value: count for lack, count in tally.not_judged.most_common()},
    }
    return json.dumps(shown, indent=2, ensure_ascii=False)


def _object(change: Change, changed: Changed) -> dict[str, Any]:
    return {
        "contract": change.contract,
        "count": changed.count,
        "from": asdict(change.then),
        "to": asdict(change.now),
        "quirks_gained": list(change.quirks_gained),
        "quirks_lost": list(change.quirks_lost),
        "first_at": changed.first_at.isoformat(),
        "last_at": changed.last_at.isoformat(),
        "examples": [str(example) for example in changed.examples],
    }


def print_text(tally: Tally, out: TextIO = sys.stdout) -> None:
    """For people: each change with what it would turn into what, the rest as numbers, a sentence at the end."""
    console = Console(file=out, highlight=False, soft_wrap=False)
    for change, changed in tally.most_first():
        _print_change(console, change, changed)
    if unjudged := tally.not_judged.total():
        console.print(Text(f"{_verdicts(unjudged)} can't be judged again:", "yellow"))
        for lack, count in tally.not_judged.most_common():
            _indent(console, f"{count}: {_LACKS[lack]}")
    judged = tally.same + tally.changed
    if not judged:
        console.print("No stored verdict could be judged again." if unjudged else "There are no stored verdicts here.")
    elif not tally.changed:
        console.print(Text(f"{_verdicts(judged)} judged again: all read the same.", "green"))
    else:
        console.print(Text(f"{_verdicts(judged)} judged again: {tally.changed} would read differently.", "bold red"))


def _print_change(console: Console, change: Change, changed: Changed) -> None:
    console.print(Text.assemble((change.contract, "bold"), f"  {_verdicts(changed.count)}"))
    _indent(console, _words("from", change.then))
    _indent(console, _words("to  ", change.now))
    for word, quirks in (("gained", change.quirks_gained), ("lost", change.quirks_lost)):
        if quirks:
            _indent(console, f"quirks {word}: {', '.join(quirks)}")
    _indent(console, f"observed {_times(changed.first_at, changed.last_at)}", "dim")
    _indent(console, f"such as {', '.join(map(str, changed.examples))}", "dim")


def _words(before: str, words: Words) -> Text:
    reason = f" · {words.reason}" if words.reason else ""
    return Text.assemble((f"{before} ", "dim"), words.status, reason, (f"  {words.rule_id}", "dim"))


def _times(first: datetime, last: datetime) -> str:
    shown = [f"{at:%Y-%m-%d %H:%M} UTC" for at in (first, last)]
    return shown[0] if shown[0] == shown[1] else f"from {shown[0]} to {shown[1]}"


def _indent(console: Console, text: str | Text, style: str = "") -> None:
    console.print(Padding(Text(text, style) if isinstance(text, str) else text, (0, 0, 0, 2), expand=False))


def _verdicts(number: int) -> str:
    return f"{number} verdict" + ("" if number == 1 else "s")
