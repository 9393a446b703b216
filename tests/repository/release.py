"""`make release-check`: what must be true of a release, each problem in a line; and its list of parts (SBOM).

The version has a dated heading in CHANGELOG.md, no pinned package has a known vulnerability, and what the lock
pins is written to `dist/sbom.cdx.json` (CycloneDX). A package that could not be asked about counts as a problem:
behind a proxy that knows nothing of vulnerabilities, pip-audit itself reports success.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOCK = "requirements.lock"
SBOM = Path("dist/sbom.cdx.json")
ELSEWHERE = "Run this where pypi.org's vulnerability service can be reached."
AUDIT = ("pip_audit", "--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json")
PARTS = ("cyclonedx_py", "requirements", "--pyproject", "pyproject.toml", "--output-reproducible")


def version_problems(version: str, changelog: str) -> list[str]:
    """`version` as in pyproject.toml; the first heading of the changelog must be `## VERSION (YYYY-MM-DD)`."""
    heading = next((line for line in changelog.splitlines() if line.startswith("## ")), "no heading")
    if re.fullmatch(rf"## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", heading):
        return []
    return [f"CHANGELOG.md begins with {heading!r}, expected '## {version} (YYYY-MM-DD)' as in pyproject.toml"]


def audit_problems(report: dict[str, Any]) -> list[str]:
    """`report` is pip-audit's JSON: vulnerable packages, and those that nobody knew anything about."""
    packages = report["dependencies"]
    found = []
    for package in packages:
        for flaw in package.get("vulns", ()):
            mended = ", ".join(flaw["fix_versions"]) or "no release yet"
            found.append(f"{LOCK}: {package['name']} {package['version']} has {flaw['id']}, mended in {mended}")
    unasked = [package["name"] for package in packages if "skip_reason" in package]
    if unasked or not packages:
        names = ", ".join([*unasked[:3], "..."] if len(unasked) > 3 else unasked)
        count = f"{len(unasked)} of {len(packages)} packages were NOT checked for vulnerabilities ({names})"
        found.append(f"{LOCK}: {count}: the service knows nothing of them. {ELSEWHERE}")
    return found


def audit() -> list[str]:
    """Ask about everything that the lock pins."""
    done = _run(*AUDIT, "-r", LOCK)
    try:
        return audit_problems(json.loads(done.stdout))
    except ValueError:
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        return [f"{LOCK}: NO package was checked for vulnerabilities: {last}. {ELSEWHERE}"]


def write_sbom() -> list[str]:
    (ROOT / SBOM).parent.mkdir(exist_ok=True)
    done = _run(*PARTS, "--output-file", str(SBOM), LOCK)
    return [] if done.returncode == 0 else [f"{SBOM} could not be written: {done.stderr.strip()}"]


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def main() -> int:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    checks: dict[str, Sequence[str]] = {
        "version": version_problems(version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")),
        "parts": write_sbom(),
        "vulnerabilities": audit(),
    }
    for name, problems in checks.items():
        print(f"{name:16} {'ok' if not problems else 'NOT OK'}{f'  {SBOM}' if name == 'parts' else ''}")
        for problem in problems:
            print(f"  {problem}")
    return 1 if any(checks.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
