"""Places and names as text: URLs without what only their owner may know, names without what a terminal or a
page would obey, names of studies as names of files."""

from __future__ import annotations

import re
from hashlib import blake2b
from urllib.parse import quote, unquote

LONGEST_FILE_NAME = 255
"""Bytes; what the common file systems allow."""

_URL = re.compile(r"[a-z0-9.+-]*://\S*", re.IGNORECASE)
# A port is no password, and the brackets of an IPv6 address hold none.
_USER = re.compile(r"(?P<user>[^/@:?#\[]*):(?!\d+(?:[/?#]|$))(?:[^/]*|.*)@", re.DOTALL)
_SECRET = re.compile("pass|pwd|secret|token|key|sig|cred|auth", re.IGNORECASE)
# What steers a terminal, turns the direction of writing, parts lines, or is not seen at all; half characters.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_MARKDOWN = re.compile(r"[\\`*|\[\]]")


def without_secrets(url: str) -> str:
    """A URL as it may be shown and written down: without a password, and without secrets in its query.

    >>> without_secrets("sftp://me:secret@host/models")
    'sftp://me@host/models'
    >>> without_secrets("postgresql://host/base?password=secret&sslmode=require")
    'postgresql://host/base?sslmode=require'
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    rest = _USER.sub(r"\g<user>@", rest, count=1) if _USER.match(rest) else rest
    place, _, query = rest.partition("?")
    kept = [part for part in re.split("[&;]", query) if part and not _is_secret(part)]
    return f"{scheme}://{place}{'?' if kept else ''}{'&'.join(kept)}"


def said(text: str) -> str:
    r"""A message as it may be shown, whatever names are in it: URLs without secrets, and escaped what a
    terminal would obey or a reader would not see.

    >>> said("cannot reach mysql://me:secret@host/base: refused")
    'cannot reach mysql://me@host/base: refused'
    >>> print(said("source \x1b[31mred, file \udcff.csv"))
    source \x1b[31mred, file \xff.csv
    """
    if "://" in text:
        text = _URL.sub(lambda found: without_secrets(found[0]), text)
    return text if text.isascii() and text.isprintable() else _OBEYED.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    sign = ord(found[0])
    if 0xDC80 <= sign <= 0xDCFF:  # how Python holds a byte that was no UTF-8
        sign -= 0xDC00
    return chr(sign).encode("ascii", "backslashreplace").decode() if sign > 0x7F else f"\\x{sign:02x}"


def in_markdown(text: str) -> str:
    r"""A message as one line of a Markdown page, in which nothing of it is markup or HTML.

    >>> print(in_markdown("<script> of *a|b*"))
    &lt;script&gt; of \*a\|b\*
    """
    line = _MARKDOWN.sub(r"\\\g<0>", " ".join(said(text).split()))
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def is_text(name: object) -> bool:
    """Whether it is text that files, databases and other programs can hold: not a byte that was no UTF-8."""
    return isinstance(name, str) and "\0" not in name and name.encode(errors="ignore").decode() == name


def file_name(name: str) -> str:
    """A study's name as that of a file or folder of its own; a long one ends in a digest.

    >>> file_name("one/two"), file_name(".."), len(file_name("名" * 100))
    ('one%2Ftwo', '%2E%2E', 197)
    """
    text = quote(name, safe=" ")
    if not text.strip("."):
        return text.replace(".", "%2E")  # ".." is another folder
    if len(text) > LONGEST_FILE_NAME:
        # A sign that no shorter name has in it: a name and its short form cannot be mistaken for each other.
        text = f"{text[:180]}={blake2b(name.encode(), digest_size=8).hexdigest()}"
    return text


def _is_secret(part: str) -> bool:
    return _SECRET.search(unquote(part.partition("=")[0])) is not None
