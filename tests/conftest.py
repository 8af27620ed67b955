"""What takes minutes, and proves in another way what others prove, is run when it is asked for."""

from __future__ import annotations

import os
import signal
from typing import List

import pytest


def pytest_configure() -> None:
    """What a shell starts in the background, or nohup, is deaf to some signals, and all that it starts."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Skips what is marked `long`, unless CBT_PLUGINS_LONG is set."""
    if not os.environ.get("CBT_PLUGINS_LONG"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="CBT_PLUGINS_LONG=1 asks for what takes minutes"))
