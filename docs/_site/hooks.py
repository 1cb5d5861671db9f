"""What mkdocs cannot be told in mkdocs.yml."""

import logging
import re
import sys
from copy import copy
from pathlib import Path

CHINESE = "中文"


def on_startup(**_):
    """Let the search find the words of Chinese in silence, and the hooks import what makes schemas and tables."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    logging.getLogger("jieba").setLevel(logging.WARNING)


def on_post_build(config):
    """Put the schemas of stored files beside the pages."""
    from tests.schemas import publish

    publish(Path(config.site_dir) / "schemas")


def on_page_markdown(markdown, page, config, **_):
    """Render what perfci folds in a report: GitLab does so by itself. Nested lists have four spaces here.

    On the page of an op its text beside the kernel takes the place of the links to it, so that it is written once.
    The pages of the reference get their tables.
    """
    from tests.reference_pages import PAGES, fill

    if page.file.src_uri.startswith("ops/"):
        return show_ops(markdown, Path(config.docs_dir).parent)
    if page.file.src_uri in PAGES:
        return fill(markdown, PAGES[page.file.src_uri])
    if page.file.name != "report":
        return markdown
    folded = markdown.replace("<details>", "<details markdown>")
    return re.sub(r"^( +)- ", lambda indent: f"{indent[1] * 2}- ", folded, flags=re.MULTILINE)


def show_ops(markdown, root):
    """The page of an op with the texts that its first paragraph links to, one below the other."""
    title, links, rest = markdown.split("\n\n", 2)
    texts = [(root / path).read_text(encoding="utf-8") for path in re.findall(r"\(\.\./\.\./(kernels/[^)]+)\)", links)]
    return "\n\n".join([title, *(text.partition("\n")[2].strip() for text in texts), rest])


def on_page_context(context, page, config, nav):
    """Show the tabs of one language, and the theme's words in it."""
    chinese = page.file.src_uri.startswith("zh/")
    config.theme["language"] = "zh" if chinese else "en"
    [section] = [item for item in nav.items if item.title == CHINESE]
    context["nav"] = copy(nav)
    context["nav"].items = section.children if chinese else [item for item in nav.items if item is not section]
    for other in ("previous_page", "next_page"):
        neighbour = getattr(page, other)
        if neighbour and neighbour.file.src_uri.startswith("zh/") != chinese:
            setattr(page, other, None)
    return context
