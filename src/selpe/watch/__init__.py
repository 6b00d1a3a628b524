"""A web page for one run, served to this machine alone."""

from selpe.watch.server import WatchServer
from selpe.watch.view import View, folder_view, live_view

__all__ = ["View", "WatchServer", "folder_view", "live_view"]
