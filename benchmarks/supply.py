"""Known vulnerabilities of the pinned packages, by pip-audit: none, named, or not answered.

pip-audit passes over a package that its service does not know and reports success; here that is no success.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PINS = Path(__file__).resolve().parents[1] / "pins.txt"
OUTPUT = PINS.parent / "build" / "audit.json"


def verdict(packages: list[dict[str, Any]]) -> tuple[int, str]:
    """Return the exit code and the sentence for what pip-audit found, from the `dependencies` of its JSON output."""
    vulnerable = [f"{one['name']} {one['version']}: {each['id']}" for one in packages for each in one.get("vulns", ())]
    skipped = [one["name"] for one in packages if "skip_reason" in one]
    if vulnerable:
        return 1, f"known vulnerabilities; raise them in pins.txt and run make lock: {', '.join(vulnerable)}"
    if len(skipped) == len(packages):
        return 0, "not audited: the advisory service knows none of the packages, or cannot be reached from here"
    if skipped:
        return 1, f"{len(skipped)} of {len(packages)} packages were not audited: {', '.join(skipped)}"
    return 0, f"no known vulnerabilities in {len(packages)} packages"


def main(pip_audit: str) -> int:
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.unlink(missing_ok=True)
    command = [pip_audit, "--disable-pip", "--no-deps", "-r", str(PINS), "--format", "json", "-o", str(OUTPUT)]
    done = subprocess.run([*command, "--progress-spinner", "off"], stderr=subprocess.PIPE, text=True, check=False)
    if OUTPUT.is_file():
        code, said = verdict(json.loads(OUTPUT.read_text())["dependencies"])
    elif "ConnectionError" in done.stderr or "ServiceError" in done.stderr:
        code, said = verdict([])
    else:
        code, said = 1, f"pip-audit failed: {done.stderr.strip()[-2000:]}"
    print(f"supply: {said}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
