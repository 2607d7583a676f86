"""The terminal: no text steers it."""

from __future__ import annotations

import io

from rich.table import Table

from mixtree.listeners.terminal import Terminal


def test_text_is_escaped_and_styles_are_not() -> None:
    out = io.StringIO()
    terminal = Terminal(file=out, force_terminal=True, color_system="standard", width=100)
    table = Table(title="t\x1b[2J")
    table.add_column("h\u202e")
    table.add_row("c\x9b")
    terminal.print("[bold]a\x1b]0;title\x07[/bold]", highlight=False)
    terminal.print("b\x1b[2J", markup=False, highlight=False, style="red")
    terminal.print(table)
    shown = out.getvalue()
    assert "\x1b[1ma\\x1b]0;title\\x07" in shown
    assert "\x1b[31mb\\x1b[2J" in shown
    assert all(each in shown for each in (r"t\x1b", r"h\u202e", r"c\x9b"))
    assert not any(each in shown for each in ("\x1b]", "\x1b[2J", "\u202e", "\x9b", "\x07"))
