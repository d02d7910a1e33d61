#!/usr/bin/env python3
"""Opens sample reports in headless Chromium: no console message, no network, the curves are there, the script ran.

Usage: report_browser_test.py REPORT_SAMPLES [CHROMIUM]. Exit code 77 (skipped) when no Chromium is installed.
"""
import html.parser
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--v=0",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom"]

TRAINED = ["command", "test-score", "curve-loss", "curve-metric", "curve-learning-rate", "metrics", "config"]
EXPECTED = {
    "regression": TRAINED + ["scatter-0", "residuals-0", "worst"],
    "many_targets": TRAINED + ["scatter-0", "scatter-4", "residuals-4", "targets", "worst"],
    "binary": TRAINED + ["roc", "precision-recall", "tasks", "confusion"],
    "many_tasks": TRAINED + ["roc", "precision-recall", "tasks"],
    "nodes": TRAINED + ["confusion", "classes"],
    "multiclass": TRAINED + ["confusion", "classes"],
    "hostile": ["command", "test-score", "curve-loss", "curve-metric", "scatter-0", "worst", "config"],
    "diverged": ["command", "test-score", "curve-loss", "curve-learning-rate", "metrics", "config"],
    "one_epoch": TRAINED + ["roc"],
    "empty": [],
}


class Dom(html.parser.HTMLParser):
    """What the checks ask for: ids, lines per chart, scripts, and addresses that would leave the page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.lines, self.outside, self.tags, self.copy_hidden, self.svg = [], {}, [], [], None, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        if "id" in values:
            self.ids.append(values["id"])
        if values.get("id") == "copy":
            self.copy_hidden = "hidden" in values
        if tag == "svg":
            self.svg = values.get("id")
        if tag == "path" and "line" in values.get("class", "").split() and values.get("d"):
            self.lines[self.svg] = self.lines.get(self.svg, 0) + 1
        for name in ("src", "href", "action", "data"):
            if name in values and not values[name].startswith("data:"):
                self.outside.append(f"{tag} {name}={values[name]}")


def open_page(chromium, page):
    """The page's DOM after its scripts ran, and what it wrote to the console."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run([chromium, *FLAGS, f"--user-data-dir={profile}", page.as_uri()], capture_output=True,
                              text=True, errors="replace", timeout=120)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console


def problems(chromium, page):
    text, console = open_page(chromium, page)
    dom = Dom(text)
    yield from (f"console: {line}" for line in console)
    yield from (f"#{name} is missing" for name in EXPECTED[page.stem] if name not in dom.ids)
    yield from (f"#{name} twice" for name in set(dom.ids) if dom.ids.count(name) > 1)
    yield from (f"{name} has no line" for name in dom.ids if name.startswith("curve-") and not dom.lines.get(name))
    yield from (f"points outside: {address}" for address in dom.outside)
    if dom.tags.count("script") != 1 or "img" in dom.tags:
        yield "holds a script or an image that is not the page's own"
    if "command" in dom.ids and dom.copy_hidden is not False:
        yield "the copy button stayed hidden: the script did not run (does the content policy have its hash?)"


def main():
    chromium = sys.argv[2] if len(sys.argv) > 2 else shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        print("skipped: chromium is not installed")
        sys.exit(77)
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([os.path.abspath(sys.argv[1]), str(folder)], check=True)
        # The check of the check: a page with an error must be seen as one.
        broken = folder / "broken.htm"
        broken.write_text("<!DOCTYPE html><script>undefined_function()</script>", encoding="utf-8")
        if not open_page(chromium, broken)[1]:
            print("this Chromium does not report console errors: nothing can be concluded")
            sys.exit(1)
        pages = {page.stem: page for page in folder.glob("*.html")}
        if set(pages) != set(EXPECTED):
            print(f"samples {sorted(pages)}, expected {sorted(EXPECTED)}")
            failed = True
        for stem in sorted(set(pages) & set(EXPECTED)):
            found = list(problems(chromium, pages[stem]))
            failed = failed or bool(found)
            print(f"{stem}: {'ok' if not found else ''}", *found, sep="\n  " if found else "")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
