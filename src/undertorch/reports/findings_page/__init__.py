"""Findings as one HTML file that works offline: source, evidence, remedy, pictures of banks, sectors and lanes."""

from undertorch.reports.findings_page.write import findings_page

__all__ = ["findings_page"]
