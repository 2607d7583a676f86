"""Places as text: URLs without what only their owner may know, names of studies as names of files."""

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
    """A message with the URLs in it as they may be shown.

    >>> said("cannot reach mysql://me:secret@host/base: refused")
    'cannot reach mysql://me@host/base: refused'
    """
    return _URL.sub(lambda found: without_secrets(found[0]), text) if "://" in text else text


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
