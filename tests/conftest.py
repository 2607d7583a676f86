"""What all tests share."""

import os

from hypothesis import settings

# Tests never judge times: a busy machine is no failure. On CI the same examples are tried every time.
settings.register_profile("mixtree", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("mixtree")
