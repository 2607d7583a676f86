"""The terminal: what is printed there comes from names, files and databases of anybody's."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from mixtree.places import said


class Terminal(Console):
    """A console in which no text steers the terminal; styles do."""

    def __init__(self, **how: Any) -> None:
        super().__init__(emoji=False, **how)

    def render_str(self, text: str, **how: Any) -> Text:
        """Every text that is printed or laid out in a table comes by here."""
        return super().render_str(said(text), **how)
