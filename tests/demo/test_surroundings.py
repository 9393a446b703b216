"""What the demo puts around the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from autoscaler.clock import Clock
from autoscaler.sandbox.demo_world import OWNERS, policy_text
from autoscaler.sandbox.surroundings import Surroundings
from autoscaler.settings import from_env
from providers.base import ProviderConfig
from providers.sim import KIND


@pytest.fixture
async def surroundings(tmp_path: Path) -> AsyncIterator[Surroundings]:
    made = Surroundings(Clock(speed=60), tmp_path, seed=3)
    now_ms = made.clock.now_ms()
    await made.start(lambda url: policy_text(seed=3, clouds_url=url, now_ms=now_ms), OWNERS)
    yield made
    await made.close()


async def test_serve_can_be_started_with_its_environment(surroundings: Surroundings) -> None:
    env = surroundings.environment()
    settings = from_env(env)
    assert settings.policy == surroundings.policy_path
    assert settings.fleet == "demo"
    assert settings.port > 0
    assert settings.public_url.endswith(f":{settings.port}")
    assert [app.app_id for app in settings.github_apps] == [1]
    assert settings.github_url == surroundings.github.url


async def test_the_policy_is_sound_and_every_account_is_reachable(surroundings: Surroundings) -> None:
    assert list(surroundings.clouds) == ["aws", "gcp", "rocm-lab", "arm-cloud"]
    for name, account in surroundings.clouds.items():
        policy = surroundings.policy.providers[name]
        config = ProviderConfig(name, "demo", policy.regions, policy.endpoint, account.settings, {})
        provider = KIND.build(config, surroundings.clock)
        async with asyncio.timeout(10):
            assert await provider.offers()
            assert await provider.instances() == []
        await provider.close()
    assert surroundings.existing() == []


async def test_secrets_are_readable_by_their_owner_only(surroundings: Surroundings) -> None:
    for name in ("fleet.key", "webhook.secret", "app.pem"):
        assert (surroundings.directory / name).stat().st_mode & 0o077 == 0
