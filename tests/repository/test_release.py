"""What `make release-check` finds, in reports as pip-audit 2.10 prints them."""

from __future__ import annotations

from tests.repository.release import audit_problems, version_problems

UNASKED = {"name": "aiohttp", "skip_reason": "Dependency not found on PyPI and could not be audited: aiohttp"}
SOUND = {"name": "redis", "version": "8.1.0", "vulns": []}
FLAWED = {
    "name": "requests",
    "version": "2.31.0",
    "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["2.32.0"], "aliases": [], "description": "x"}],
}


def test_a_release_has_a_dated_heading() -> None:
    assert version_problems("0.1.0", "# Changelog\n\n## 0.1.0 (2026-12-01)\n") == []
    for changelog in ("## 0.1.0 (unreleased)", "## 0.2.0 (2026-12-01)\n## 0.1.0 (2026-12-01)", "# Changelog"):
        [problem] = version_problems("0.1.0", changelog)
        assert "expected '## 0.1.0 (YYYY-MM-DD)'" in problem


def test_a_vulnerable_package_is_named_with_its_remedy() -> None:
    [problem] = audit_problems({"dependencies": [SOUND, FLAWED]})
    assert "requests 2.31.0 has PYSEC-2026-1, mended in 2.32.0" in problem
    assert audit_problems({"dependencies": [SOUND]}) == []


def test_a_package_that_nobody_was_asked_about_is_no_success() -> None:
    """pip-audit says "No known vulnerabilities found" and exits 0 where a package proxy answers 404."""
    [problem] = audit_problems({"dependencies": [SOUND, UNASKED]})
    assert "1 of 2 packages were NOT checked for vulnerabilities (aiohttp)" in problem
    assert audit_problems({"dependencies": []})
