"""Listeners: what studies tell the world. Anything that can be called with an event is one.

``run(..., listeners=[print, JsonLines("events.jsonl")])``: every listener gets every event, in order, in the
process of the study and between its rounds, so what a listener takes long for, the study waits for. An
exception in a listener is not swallowed: it stops the study at once, whose finished nodes are in its storage,
and once the listener is mended (or left out) the study can be resumed. A resumed study begins with
``StudyStarted`` again and tells of its earlier nodes once more, marked ``replayed``. A listener that has a
method ``study_over`` is told when a study has ended in whatever way, by an error too.
"""

from mixtree.listeners.text import JsonLines, log_events
from mixtree.listeners.trackers import MLflowListener, TensorBoardListener

__all__ = ["JsonLines", "MLflowListener", "TensorBoardListener", "log_events"]
