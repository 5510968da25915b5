"""The small book with the pages that list everything, with and without a public address."""

from __future__ import annotations

import shutil
from pathlib import Path

from conftest import ROOT, Book, make_fixture_book

LISTS = ("figures", "numbers")
BASE = "https://book.example/kv/"
REPOSITORY = "https://github.com/example/kv"
#: What the real configuration says of launching, so that the test is of that.
LAUNCH = """launch_buttons:
  notebook_interface: jupyterlab
  binderhub_url: https://mybinder.org
  colab_url: https://colab.research.google.com
"""


def make_site_book(target: Path, *, baseurl: str = "", repository: str = "") -> Book:
    """Lay the small book out as a site; nothing is built yet."""
    book = make_fixture_book(target)
    for name in LISTS:
        shutil.copyfile(ROOT / "chapters" / f"{name}.md", target / "chapters" / f"{name}.md")
    entries = "".join(f"      - file: chapters/{name}\n" for name in ("notes", *LISTS))
    book.edit("_toc.yml", "      - file: chapters/notes\n", entries)
    extension = "    - proofbook.pages.extension\n"
    book.edit("_config.yml", extension, f"{extension}    - proofbook.pages.site\n")
    book.edit("_config.yml", "html:\n", f'html:\n  baseurl: "{baseurl}"\n')
    book.edit("_config.yml", "launch_buttons:\n", LAUNCH)
    book.edit("_config.yml", '  url: ""\n', f'  url: "{repository}"\n  branch: main\n')
    return book


def built(book: Book) -> Book:
    """Build a book that has nothing wrong with it."""
    book.done()
    return book


def made_public(nowhere: Book, target: Path) -> Book:
    """Give a built book an address and a repository; its notebooks need not run again."""
    book = nowhere.copy(target)
    book.edit("_config.yml", 'baseurl: ""', f'baseurl: "{BASE}"')
    book.edit("_config.yml", '  url: ""', f'  url: "{REPOSITORY}"')
    return built(book)
