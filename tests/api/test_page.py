"""The dashboard in a real browser: what is on it, and that text from strangers stays text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.browser import Browser
from tests.api.serving import Served, serving, token
from tests.api.worlds import Fleet

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    async with Browser(tmp_path / "profile") as found:
        yield found


async def test_the_page_shows_the_fleet_and_runs_nothing_from_labels(served: Served, browser: Browser) -> None:
    await browser.open(f"{served.url}/")
    await browser.until("document.querySelectorAll('#jobs tbody tr').length === 20")
    text = await browser.value("document.body.innerText")
    for shown in (
        "34", "running", "unroutable", "rocm-lab runs its max_runners 2", "linux.smal", "$18,495 left", "2 of 2",
        "outside Mon-Fri 22:00-06:00 Europe/Berlin", "no capacity for c5.4xlarge", "<script>alert(1)</script>",
        "<b>bold</b>", "leading",
    ):  # fmt: skip
        assert shown in text, shown
    assert browser.said == []

    served.fleet.job(9001)
    served.fleet.plan()
    await browser.until("document.querySelector('#tiles').innerText.includes('10\\n')")

    await browser.value("location.hash = '#job/2602.1'")
    await browser.until("document.querySelector('#why').open")
    assert "Nothing will start it" in await browser.value("document.querySelector('#why').innerText")
    assert await browser.value("document.querySelectorAll('#why b, main script').length") == 0
    assert browser.said == []


@pytest.mark.parametrize("width", [390, 1280])
async def test_nothing_is_wider_than_the_screen(served: Served, browser: Browser, width: int) -> None:
    for path in ("/", "/#job/2108.1"):
        await browser.open("about:blank")
        await browser.open(f"{served.url}{path}", width=width)
        await browser.until("document.querySelector('#jobs tbody tr')")
        assert await browser.value("document.documentElement.scrollWidth") <= width


async def test_a_token_is_asked_for_and_opens_the_page(fleet: Fleet, browser: Browser) -> None:
    async with serving(fleet, (token("bob", "read"),)) as served:
        await browser.open(f"{served.url}/")
        await browser.until("document.querySelector('#ask').open")
        await browser.value("document.querySelector('#ask-token').value = 'bob-token'")
        await browser.value("document.querySelector('#ask button').click()")
        await browser.until("document.querySelector('#jobs tbody tr')")
        assert not any("dialog" in said for said in browser.said)


async def test_a_lost_connection_is_told_and_mended(served: Served, browser: Browser) -> None:
    await browser.open(f"{served.url}/")
    await browser.until("document.querySelector('#state').innerText.includes('leading')")
    served.source.away = True
    await browser.until("document.querySelector('#banners').innerText.includes('does not answer')")
    served.source.away = False
    await browser.until("document.querySelector('#state').innerText.includes('leading')")
