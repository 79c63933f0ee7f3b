# make demo    install into .venv, then see one training step of GPT-2 124M on an H200 that is not there
# make test    lint, types, tests
# make help    the rest

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

# Tests start hundreds of Pythons: what one compiled of a module is kept for the next, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test test-cuda-build test-wild test-slow browser test-browser test-gpu fuzz lint bench bench-gpu ptx-forms triton-on-machine golden outputs schema

help:
	@echo "make demo       install, then undertorch see --gpu H200 examples/train_gpt.py"
	@echo "make test       ruff, mypy, pytest"
	@echo "make test-cuda-build  what differs between torch's builds, on PyPI's for Linux (CUDA, 3 GB) without a GPU"
	@echo "make test-wild  scripts on Hugging Face, accelerate, Lightning and timm; installs these"
	@echo "make test-slow  the tests that take minutes"
	@echo "make test-browser  the page and the Perfetto file in a browser; make browser installs one (Debian, as root)"
	@echo "make test-gpu   the tests that ask a GPU of this machine (needs CUDA)"
	@echo "make fuzz       mutated and random kernels on the machine, MINUTES=10"
	@echo "make lint       ruff and mypy alone"
	@echo "make bench      start-up, what seeing costs, predicted beside recorded, the machine's speed; and the docs' tables"
	@echo "make bench-gpu  what takes a GPU of this machine (CUDA): calibration, what seeing costs, the L2"
	@echo "make ptx-forms  which PTX forms the CUDA in FOLDER=… needs, and which of them the machine has"
	@echo "make triton-on-machine  Triton's tutorials in FOLDER=… and liger-kernel in LIGER=… on the machine, and checked"
	@echo "make golden     ask the GPU of this machine again for tests/golden (needs CUDA)"
	@echo "make outputs    put what see really prints into README.md, docs/see.md, examples/see.ipynb, docs/check.md, docs/faults/; docs/ptx-forms.md"
	@echo "make schema     write docs/schemas/see-1.schema.json"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

demo:
	@began=$$(date +%s) && $(MAKE) --no-print-directory install && ready=$$(date +%s) \
	&& $(BIN)/undertorch see --gpu H200 examples/train_gpt.py && ended=$$(date +%s) \
	&& echo && echo "installing took $$((ready - began)) s, seeing took $$((ended - ready)) s"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow and not browser and not wild and not gpu"

# Where pip knows of a CPU build too, `torch==2.13.0` takes that; `===` takes PyPI's own, which users have.
BUILDS := build/cuda
test-cuda-build:
	$(PYTHON) -m venv $(BUILDS)
	sed 's/^torch==/torch===/' requirements-dev.txt > $(BUILDS)/requirements.txt
	$(BUILDS)/bin/pip install --quiet --disable-pip-version-check --requirement $(BUILDS)/requirements.txt
	$(BUILDS)/bin/pip install --quiet --disable-pip-version-check --editable .
	CUDA_VISIBLE_DEVICES= $(BUILDS)/bin/pytest -n 2 --dist worksteal -m "builds and not slow"

test-wild: install
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements-wild.txt
	$(BIN)/pytest -m wild

test-slow: install
	$(BIN)/pytest -m slow

browser:
	apt-get update
	apt-get install --yes --no-install-recommends chromium chromium-driver

test-browser: install
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements-browser.txt
	$(BIN)/pytest -m browser tests/browser

test-gpu: install
	$(BIN)/pytest -m gpu

MINUTES ?= 10
fuzz: install
	$(BIN)/python tests/simt/fuzz.py $(MINUTES) $(FIRST)

bench: install
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/see_cost.py
	$(BIN)/python benchmarks/gpt2_against_h200.py
	$(BIN)/python benchmarks/scripts_against_h200.py
	$(BIN)/python benchmarks/models_against_h200.py
	$(BIN)/python benchmarks/traces.py
	$(BIN)/python benchmarks/machine_speed.py
	$(BIN)/python docs/tables.py

bench-gpu: install
	$(BIN)/python benchmarks/calibration.py
	$(BIN)/python benchmarks/l2_walks.py build/bench && $(BIN)/python benchmarks/l2_walks.py --result build/bench
	$(BIN)/python benchmarks/seeing_cost.py build/bench --limit 120
	$(BIN)/python benchmarks/seeing_cost.py --result build/bench
	$(BIN)/python docs/tables.py

golden: install
	$(BIN)/python benchmarks/golden_ops.py tests/golden/h200_ops.json.gz
	$(BIN)/python benchmarks/golden_edge_cases.py tests/golden/h200_edge_ops.json.gz
	$(BIN)/python benchmarks/golden_gemms.py tests/golden/h200_gemms.json.gz
	$(BIN)/python benchmarks/golden_steps.py tests/golden/h200_steps.json.gz
	$(BIN)/python benchmarks/golden_scripts.py tests/golden/h200_scripts.json
	$(BIN)/python benchmarks/conformance.py build/conformance && cp build/conformance/h200_ptx.json.gz tests/golden/
	PYTHONPATH=tests $(BIN)/python benchmarks/triton_conformance.py build/triton && cp build/triton/h200_triton.json.gz tests/golden/
	PYTHONPATH=tests $(BIN)/python benchmarks/counters.py build/counters && cp build/counters/h200_counters.json.gz tests/golden/

ptx-forms: install
	$(BIN)/python benchmarks/ptx_forms.py $(FOLDER)

triton-on-machine: install
	$(BIN)/python benchmarks/triton_on_machine.py --tutorials $(FOLDER) --liger $(LIGER)
	PYTHONPATH=tests $(BIN)/python benchmarks/check_kernels.py --tutorials $(FOLDER) --liger $(LIGER) --own
	$(BIN)/python docs/tables.py

outputs: install
	$(BIN)/python docs/outputs.py
	$(BIN)/python docs/faults.py
	$(BIN)/python docs/check_sessions.py
	$(BIN)/python docs/ptx_forms.py

schema: install
	$(BIN)/python docs/schemas/write.py
