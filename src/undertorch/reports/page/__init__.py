"""Steps as one HTML file that works offline: the source with its kernels drawn, timeline, roofline, memory."""

from undertorch.reports.page.write import write_page

__all__ = ["write_page"]
