"""Conformance suites: run them over your own partition, search, trainer or storage.

Each raises AssertionError with a sentence that says which promise is broken.
"""

from mixtree.testing.partitions import check_partition
from mixtree.testing.searches import check_search
from mixtree.testing.storages import check_storage
from mixtree.testing.trainers import check_trainer

__all__ = ["check_partition", "check_search", "check_storage", "check_trainer"]
