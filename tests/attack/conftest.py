"""The attacks run in a process of their own, which the tests start."""

collect_ignore = ["calls.py", "commands.py", "harness.py", "run.py"]
