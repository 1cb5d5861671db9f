"""What GitLab and GitHub would make of a note: CommonMark with tables, searched as their filters search.

The filters look through text nodes that are not within code or links, after Markdown's escapes are gone. Their patterns
are written anew here, each at least as wide as the documented syntax.
"""

import re
from html.parser import HTMLParser

from markdown_it import MarkdownIt

RENDERER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
TAGS = frozenset({"h2", "h3", "p", "ul", "li", "strong", "code", "pre", "table", "thead", "tbody", "tr", "th", "td"})
TAGS |= {"blockquote", "details", "summary", "span", "a", "img"}
"""What a note is made of; `a` and `img` are counted one by one."""

FOUND_IN_TEXT = {
    "mention": r"(?<!\w)@[\w.]",
    "issue": r"#\d",
    "merge request": r"!\d",
    "snippet": r"\$\d",
    "epic": r"&\d",
    "label": r"~[\w\"]",
    "milestone": r"%[\w\"]",
    "alert": r"\^alert#\d",
    "iteration": r"\*iteration:",
    "typed reference": r"\[[a-z_]+:[^\]]*\d\]",
    "project": r"[\w.-]>",
    "commit": r"[0-9a-fA-F]{7,40}",
    "tracker": r"\b[A-Z][A-Z0-9_]*-\d",
    "emoji": r":[a-z0-9_+-]+:",
    "link": r"\w://|\bwww\.|\bmailto:|\bxmpp:|\w@\w",
    "page": r"\[\[",
    "contents": r"\[TOC\]|\[\[?_TOC_",
    "difference": r"[\[{][+-].*?[+-][\]}]",
    "placeholder": r"%\{",
    "footnote": r"\[\^[^\]]+\]",
    "mathematics": r"(?<!\\)\$\$",
    "mathematics of GitHub": r"\$[^\s$]",
    "alert of GitHub": r"\[!\w+\]",
}
TASK = re.compile(r"^\s*\[[ xX~]\]\s")
COLOUR = re.compile(r"(?i)^(#[0-9a-f]{3,8}|(rgb|hsl)a?\(.*\))$")
COMMAND = re.compile(r"(?m)^/\w+|^::include\{")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.comments = [], [], []
        self.texts, self.codes, self.addresses, self.shown = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "img":
            self.open.append(tag)
        self.addresses += [value for name, value in attrs if name in {"href", "src"}]

    def handle_endtag(self, tag):
        assert tag == "img" or self.open.pop() == tag, "elements are nested"

    def handle_comment(self, data):
        self.comments.append(data)

    def handle_data(self, data):
        self.shown.append(data)
        within = self.codes if {"code", "pre", "a"} & set(self.open) else self.texts
        within.append((self.open[-1] if self.open else "", data))


def read(markdown: str) -> _Reader:
    reader = _Reader()
    reader.feed(RENDERER.render(markdown))
    reader.close()
    assert reader.open == []
    return reader


def findings(markdown: str) -> list[tuple[str, str]]:
    """(what GitLab or GitHub would make of it, place) for everything but plain text; links and pictures by address."""
    reader = read(markdown)
    problems = [("command", line) for line in COMMAND.findall(markdown)]
    problems += [("element", tag) for tag in reader.tags if tag not in TAGS]
    problems += [("comment", text) for text in reader.comments if not text.strip().startswith("perfci:")]
    for where, shown in reader.texts:
        problems += [(name, shown) for name, pattern in FOUND_IN_TEXT.items() if re.search(pattern, shown)]
        problems += [("task", shown)] if where in {"li", "p"} and TASK.match(shown) else []
    problems += [("colour", shown) for _, shown in reader.codes if COLOUR.match(shown.strip())]
    return problems


def seen(markdown: str) -> str:
    """What a reader reads of text within a line."""
    reader = _Reader()
    reader.feed(RENDERER.renderInline(markdown))
    reader.close()
    return "".join(reader.shown).replace("\u200b", "")
