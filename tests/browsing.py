"""A browser for tests of what a person sees: Debian's chromium, driven through its chromedriver.

`make browser` installs them; where they are not, these tests are skipped, and say so.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: make test-browser does so")
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
NEEDS_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="no chromium and chromedriver here: run `make browser`"),
]

LAPTOP, PHONE = (1280, 800), (390, 844)

OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # nothing leaves this machine
)


@contextmanager
def driven(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser with a profile of its own, and its console."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def one(driver, selector):
    """The first element that the selector finds."""
    return driver.find_element("css selector", selector)


def opened(driver, path: Path, size=LAPTOP, theme="light"):
    """Shows a file on a screen of that size to somebody whose system has that theme."""
    width, height = size
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    wishes = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}  # nothing moves under a click
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    driver.get(path.as_uri())
    return driver


def complaints(driver):
    """What the console has to say since it was last asked."""
    return [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def open_everything(driver):
    """Every line, every stretch of source, every list of small kernels."""
    for selector in (".file .all", ".fill", ".reveal"):
        for button in driver.find_elements("css selector", selector):
            driver.execute_script("arguments[0].click()", button)
