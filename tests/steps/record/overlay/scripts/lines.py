"""Changes things at lines that say what a report is to say of them."""
# As scripts are written.
# ruff: noqa: PLW1510, PTH102, PTH105, PTH123, SIM115

import json
import os
import subprocess
import tempfile
import threading
from pathlib import Path

from undertorch.steps.record.overlay.begin import begin
from undertorch.steps.record.places import Places

UNDERTORCH = Path(begin.__code__.co_filename).parents[3]
changes = begin(os.environ["UNDERTORCH_RUN"], 1 << 30, Places([UNDERTORCH], lambda code: None, Path.cwd()))


def work():
    Path("by_thread").write_text("x")  # 1 file written
    os.mkdir("made_by_thread")  # 1 folder made


for number in range(3):
    with open(f"file-{number}", "w") as file:  # 3 files written
        file.write("x")
for _ in range(5):
    json.dump({}, open("same", "w"))  # 1 file written
os.replace("same", "other")  # 1 renamed
thread = threading.Thread(target=work)
thread.start()
thread.join()
with tempfile.TemporaryDirectory():  # 1 file written, 1 folder made and 2 removed
    pass
subprocess.run(["true"])  # ran
subprocess.run(["true"], preexec_fn=lambda: None)  # ran
os.system("true")  # ran true;

for one in changes.assumptions():
    print(one.where.line, one.what)
