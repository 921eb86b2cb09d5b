"""A reader walks through the site: finds pages, searches, copies an example that runs, reads on a phone and
in the dark."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

PHONE = {"width": 360, "height": 740}


def pages(site: Path) -> list[str]:
    """All pages of the site that are not files of the repository."""
    found = [str(path.relative_to(site)) for path in site.rglob("*.html")]
    return sorted(path for path in found if not path.startswith("source/"))


def test_the_navigation_leads_from_the_front_page_to_a_reference(page: Page) -> None:
    page.goto("/")
    expect(page.locator("h1")).to_have_text(re.compile("Opsmith"))
    tabs = page.locator(".md-tabs__link")
    assert [text.strip() for text in tabs.all_inner_texts()] == [
        "Home",
        "Tutorial",
        "How-to",
        "Coming from …",
        "Explanation",
        "Reference",
        "Operators",
        "Benchmarks",
    ]
    tabs.get_by_text("Reference").click()
    page.locator(".md-sidebar--primary").get_by_role("link", name="The command line").click()
    expect(page.locator("h1")).to_have_text(re.compile("command line"))
    page.locator(".md-sidebar--secondary").get_by_role("link").first.click()
    assert "#" in page.url


@pytest.mark.parametrize(
    ("words", "found"), [("first op", "first-op.html"), ("register_gradient", "reference/opsmith.html")]
)
def test_the_search_finds_guides_and_the_reference(page: Page, words: str, found: str) -> None:
    page.goto("/")
    page.locator(".md-search__button").click()
    page.get_by_role("combobox").fill(words)
    page.locator(f"a[role=option][href*='{found}']").first.click()
    page.wait_for_url(f"**/{found}*")
    expect(page.locator("h1")).to_be_visible()


def test_a_copied_example_runs(context: BrowserContext, page: Page) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/engine.html")
    copied = []
    for block in page.locator(".highlight").all()[:3]:
        page.evaluate("navigator.clipboard.writeText('')")
        block.locator(".md-code__button[data-md-type=copy]").click()
        page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
        copied.append(page.evaluate("navigator.clipboard.readText()"))
    program = "\n".join([*copied, "print(y.name, product)"])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "[[11.]]" in done.stdout


def test_every_page_is_whole_and_no_wider_than_a_phone(browser: Browser, address: str, site: Path) -> None:
    with browser.new_context(base_url=address, viewport=PHONE, is_mobile=True, has_touch=True) as context:
        page = context.new_page()
        wide, missing = {}, []
        page.on("response", lambda answer: missing.append(answer.url) if answer.status >= 400 else None)
        for path in pages(site):
            page.goto(f"/{path}")
            width = page.evaluate("document.documentElement.scrollWidth")
            if width > PHONE["width"]:
                wide[path] = width
        assert (wide, missing) == ({}, [])
        page.goto("/first-op.html")
        page.locator("label.md-header__button[for=__drawer]").click()
        expect(page.locator(".md-sidebar--primary").get_by_text("Benchmarks")).to_be_in_viewport()


def test_pages_are_dark_where_the_system_is_and_where_the_reader_says(page: Page) -> None:
    def brightness() -> int:
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", color)[:3])

    page.emulate_media(color_scheme="dark")
    page.goto("/")
    assert brightness() < 200
    page.locator("label[title='Light mode']").click()
    page.wait_for_function("document.body.dataset.mdColorScheme === 'default'")
    assert brightness() > 600
    page.goto("/first-op.html")
    assert brightness() > 600


@pytest.mark.parametrize(
    "name", ["opsmith", "opsmith.graph", "opsmith.jit", "opsmith.onnx", "opsmith.testing"]
)
def test_the_reference_has_every_public_name(site: Path, name: str) -> None:
    text = (site / "reference" / f"{name}.html").read_text(encoding="utf-8")
    modules = [path.stem for path in (site / "reference").glob("opsmith*.html")]
    for public in import_module(name).__all__:
        is_told = f'id="{public.lower()}"' in text or f"#{public.lower()}" in text
        assert is_told or f"opsmith.{public}" in modules or public == "libraries", public
