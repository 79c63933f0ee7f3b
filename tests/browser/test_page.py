"""The page in a browser. Each test also finds no error on the console."""

from dataclasses import replace

import pytest

from browsing import LAPTOP, NEEDS_BROWSER, PHONE, one, open_everything, opened, webdriver
from steps_by_hand import NOTHING, STEP
from undertorch import gpus
from undertorch.reports.page import write_page

pytestmark = NEEDS_BROWSER
LONG = "kernel_of_a_very_long_name<" + "int, " * 300 + ">"


@pytest.fixture
def shown(silent, tmp_path):
    """Shows the page of some steps."""

    def show(*steps, size=LAPTOP, theme="light"):
        path = tmp_path / "page.html"
        write_page(path, steps, {"H200": gpus.find("H200"), "A100-40GB": gpus.find("A100-40GB")})
        return opened(silent, path, size, theme)

    return show


def painted(driver):
    """How many colours the timeline's canvas shows."""
    return driver.execute_script(
        "const c = document.querySelector('canvas');"
        "const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);"
        "return new Set(d).size"
    )


def background(driver):
    return driver.execute_script("return getComputedStyle(document.body).backgroundColor")


def past_the_screen(driver):
    """Elements that reach past the right edge and are not in something that scrolls by itself."""
    return driver.execute_script(
        "const scrolls = (e) => e && (['auto', 'hidden', 'scroll'].includes(getComputedStyle(e).overflowX)"
        " || scrolls(e.parentElement));"
        "return [...document.body.querySelectorAll('*')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1"
        " && e.checkVisibility() && !scrolls(e) && !e.closest('svg'))"
        ".map((e) => `${e.tagName} ${e.className} ${e.textContent.slice(0, 40)}`)"
    )


@pytest.mark.parametrize("key", ["\ue007", " "], ids=["Enter", "Space"])
def test_a_line_opens_and_closes_from_the_keyboard(shown, key):
    driver = shown(STEP)
    button = one(driver, ".unfold")
    under = driver.find_element("id", button.get_attribute("aria-controls"))
    assert not under.is_displayed()
    button.send_keys(key)
    assert button.get_attribute("aria-expanded") == "true"
    assert under.is_displayed()
    assert "cunn_SoftMaxForward" in under.text
    button.send_keys(key)
    assert not under.is_displayed()


def test_a_click_anywhere_in_a_line_opens_it(shown):
    driver = shown(STEP)
    one(driver, ".hot .code").click()
    assert one(driver, ".under").is_displayed()
    one(driver, ".file .all").click()
    assert all(row.is_displayed() for row in driver.find_elements("css selector", ".file:first-of-type .under"))


def test_the_theme_follows_the_system_until_it_is_chosen_and_the_choice_stays(shown):
    light = background(shown(STEP))
    dark = background(shown(STEP, theme="dark"))
    assert light != dark
    driver = shown(STEP)
    one(driver, "#theme").click()
    assert background(driver) == dark
    driver.refresh()
    assert background(driver) == dark
    one(driver, "#theme").click()
    assert background(driver) == light


def test_the_timeline_draws_and_answers_to_keys(shown):
    driver = shown(STEP)
    assert painted(driver) > 8
    canvas = one(driver, "canvas")
    canvas.send_keys("\ue014", "\ue014")  # arrow right
    readout = one(driver, ".timeline .readout")
    assert readout.text.startswith("nvjet_forward · 300 µs predicted · model.py:4 · forward · aten::addmm")
    assert "20.2 % of the peak" in readout.text
    canvas.send_keys("+", "+", "-", "0", "\ue007")
    row = one(driver, "#s0-f1-l4")
    assert row.find_element("css selector", ".unfold").get_attribute("aria-expanded") == "true"
    assert driver.switch_to.active_element == row.find_element("css selector", ".unfold")


def test_a_tiny_launch_is_there_to_be_seen(shown):
    """One that reaches a thousandth of the GPU's peak still has 5 of the lane's 84 pixels."""
    (first, *_) = STEP.launches
    tiny = replace(first, kernel=replace(first.kernel, min_bytes_read=1_000_000, min_bytes_written=0), time_us=1000)
    driver = shown(replace(STEP, launches=(tiny,), idle=()))
    height = driver.execute_script(
        "const c = document.querySelector('canvas');"
        "const lane = new Uint32Array(c.getContext('2d').getImageData(c.width / 4, 24, 1, 84).data.buffer);"
        "return lane.filter((pixel) => pixel === lane[83]).length"
    )
    assert height == 5


def test_a_click_on_a_launch_goes_to_its_line(shown):
    """The update takes 1480 to 1880 of 2000 µs."""
    driver = shown(STEP)
    canvas = one(driver, "canvas")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", canvas)
    place = canvas.size["width"] * (1700 / 2000 - 0.5), 0
    webdriver.ActionChains(driver).move_to_element_with_offset(canvas, *place).click().perform()
    assert one(driver, "#s0-f0-l12 .unfold").get_attribute("aria-expanded") == "true"


def test_a_gap_is_filled_with_its_lines(shown):
    driver = shown(STEP)
    one(driver, ".fill").click()
    filled = one(driver, ".filled")
    assert "model = Model().cuda()" in filled.text
    assert filled.text.startswith("1\n2\n3")
    one(driver, ".fill").click()
    assert driver.find_elements("css selector", ".filled") == []


def test_several_steps_take_turns(shown):
    driver = shown(STEP, replace(STEP, gpu="A100-40GB"))
    first, second = driver.find_elements("css selector", ".step")
    assert (first.is_displayed(), second.is_displayed()) == (True, False)
    driver.find_elements("css selector", ".choose")[1].click()
    assert (first.is_displayed(), second.is_displayed()) == (False, True)
    assert one(driver, ".bar nav a").get_attribute("href").endswith("#s1-timeline")


def test_the_head_leads_to_the_line_that_takes_most_time(shown):
    """The head of the model, 900 µs."""
    driver = shown(STEP)
    one(driver, ".hottest a").click()
    assert one(driver, "#s0-f1-l4 .unfold").get_attribute("aria-expanded") == "true"


def test_links_lead_to_open_lines(shown):
    driver = shown(STEP)
    one(driver, "dl.figures .place").click()
    assert one(driver, "#s0-f0-l9 .unfold").get_attribute("aria-expanded") == "true"
    driver.get(driver.current_url.split("#")[0] + "#s0-f1-l4")
    driver.refresh()
    assert one(driver, "#s0-f1-l4 .unfold").get_attribute("aria-expanded") == "true"


LONG_NAMES = replace(
    STEP,
    launches=tuple(replace(launch, kernel=replace(launch.kernel, name=LONG)) for launch in STEP.launches),
    environment=replace(STEP.environment, script="a" * 300 + ".py", arguments=("b" * 200,)),
)


@pytest.mark.parametrize("size", [LAPTOP, (820, 1180), PHONE, (320, 640)], ids=lambda size: str(size[0]))
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((STEP,), id="by hand"),
        pytest.param((NOTHING,), id="nothing ran"),
        pytest.param((LONG_NAMES,), id="long names"),
        pytest.param((STEP, replace(STEP, gpu="A100-40GB")), id="two steps"),
    ],
)
def test_nothing_reaches_past_the_screen(shown, steps, size):
    driver = shown(*steps, size=size)
    open_everything(driver)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= size[0]
    assert past_the_screen(driver) == []
