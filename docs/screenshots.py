"""Takes the pictures of docs/view.md again: `make screenshots`. The runs are those of the README, with the scripted
model, so the pictures show what a reader gets."""

import base64
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from support.browser import CHROMIUM

REPOSITORY = Path(__file__).parents[1]
SIZE = {"width": 1200, "height": 760}
QUALITY = 92
SHARPEN = """sharpen examples/sharpen/short-answers examples/sharpen/questions.jsonl --agent chat
  --model scripted:examples/sharpen/model.toml --proposer rules:examples/sharpen/rules.txt --out OUT/sharpened"""
SKILLS = """run examples/questions.jsonl --agent chat --model scripted --samples 3
  --skill none,examples/skills/careful-shell --out OUT/skills"""
RUNS = ("run examples/tasks --agent loop --model scripted --samples 2 --out OUT/first", SKILLS, SHARPEN)


def main(to: Path) -> None:
    """Make the runs, open their pages, and write the pictures."""
    to.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for words in RUNS:
            argv = [sys.executable, "-m", "whet", *words.replace("OUT", folder).split()]
            subprocess.run(argv, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
        argv = [sys.executable, "-m", "whet", "view", folder, "--no-open", "--port", "0"]
        server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            take_pictures(server.stdout.readline().strip(), to)
        finally:
            server.terminate()
            server.wait()


def take_pictures(url: str, to: Path) -> None:
    """Open each page by its links, as a reader does."""
    origin = url.partition("/?")[0]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
        page.goto(url)
        page.goto(f"{origin}/runs/skills")
        take(page, to / "run.webp")
        page.goto(f"{origin}/runs/first/rollouts")
        page.locator("a.row-link").first.click()
        page.get_by_role("link", name="Trace", exact=True).click()
        page.wait_for_selector("article.step")
        take(page, to / "trace.webp")
        page.goto(f"{origin}/skills/sharpened/certificate")
        take(page, to / "certificate.webp")
        browser.close()


def take(page: Page, file: Path) -> None:
    """Write what is in sight."""
    session = page.context.new_cdp_session(page)
    taken = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    file.write_bytes(base64.b64decode(taken["data"]))
    session.detach()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
