"""The commit hook: a subject of at most 72 characters, and an empty line before the body."""

from __future__ import annotations

import sys
from pathlib import Path

LONGEST = 72


def fault(message: str) -> str | None:
    """What is wrong with a commit message, or None."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if not subject.strip():
        return "the commit has no subject"
    if len(subject) > LONGEST:
        return f"the subject has {len(subject)} characters, at most {LONGEST}: {subject}"
    if len(lines) > 1 and lines[1].strip():
        return "leave the line after the subject empty"
    return None


if __name__ == "__main__":
    sys.exit(fault(Path(sys.argv[1]).read_text(encoding="utf-8")))
