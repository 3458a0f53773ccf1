"""Refresh the exact versions in pyproject.toml (`[tool.uv] constraint-dependencies`) from what uv resolves now.

`uv.lock` records download addresses, so it is no part of the repository; these pins are. Run it after a dependency was
added or when a newer release is wanted: `python scripts/pin.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BEGIN, _END = "# pins: made by scripts/pin.py\n", "# end of pins\n"
_BLOCK = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END), re.DOTALL)
_LINE = re.compile(r"^([A-Za-z0-9._-]+==[^ ;]+)(?: ; (.*))?$")


def resolve(pyproject: str) -> list[str]:
    """Every direct and indirect requirement of all platforms, pinned."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pyproject.toml"
        source.write_text(_BLOCK.sub("", pyproject), encoding="utf-8")
        command = [
            "uv",
            "pip",
            "compile",
            "--universal",
            "--all-extras",
            "--no-annotate",
            "--no-header",
            "-q",
            str(source),
        ]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line.replace('"', "'") for line in found.splitlines() if _LINE.match(line)]


def main() -> int:
    path = ROOT / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    if not _BLOCK.search(text):
        print(f"{path} has no block between the lines of pins", file=sys.stderr)
        return 1
    pins = resolve(text)
    block = _BEGIN + "constraint-dependencies = [\n" + "".join(f'  "{pin}",\n' for pin in pins) + "]\n" + _END
    path.write_text(_BLOCK.sub(lambda _: block, text), encoding="utf-8")
    print(f"{len(pins)} pins")
    return 0


if __name__ == "__main__":
    sys.exit(main())
