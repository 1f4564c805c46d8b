# One command each. A fresh machine needs Python 3.11, make and git; the rest is made in ./.venv from pins.lock.
PYTHON ?= python3.11
VENV ?= .venv
EXTRAS ?= .extras-venv
BIN := $(VENV)/bin
ARGS ?=
TOOLS := build/tools

.DEFAULT_GOAL := help
.PHONY: help run compare test lab env bench bench-scale bench-quality bench-search bench-sweep certificate frontier bench-data bench-drift bench-serving bench-ray soak faults agreement qlib-strategy check-power impact-fit fuzz kills mutants size schema lock supply clean bench-outside learners methods trust course docs

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.installed ## orders, training, backtest and report on the synthetic market (ARGS="--set train.iterations=5")
	$(BIN)/rlwb run $(ARGS)

compare: $(VENV)/.installed ## every method of the field on the same orders, in one table (ARGS="--method ppo --method opd")
	$(BIN)/rlwb compare $(ARGS)

test: style $(EXTRAS)/.installed ## style, types and all tests, those of large extras in an environment of their own
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)
	$(if $(ARGS),,$(EXTRAS)/bin/python -m pytest -n 2 --dist worksteal tests/extras)

.PHONY: style browser
style: $(VENV)/.installed ## style and types alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

browser: $(EXTRAS)/.installed ## notebooks and pages in Chromium, and whether all can read them; leaves pictures in build/browser
	$(BIN)/python -m pytest tests/browser $(ARGS)
	$(if $(ARGS),,$(EXTRAS)/bin/python -m pytest tests/extras/test_accessibility.py tests/extras/test_site.py)
	@echo "pictures: $(CURDIR)/build/browser"

lab: $(VENV)/.installed ## JupyterLab, opened at notebooks/
	$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/notebooks $(ARGS)

env: $(VENV)/.installed ## only make the environment

bench: $(VENV)/.installed ## speed beside the peer's, in an environment of its own (ARGS="--no-peer", ARGS="--quick")
	$(BIN)/python -m benchmarks.run --python $(PYTHON) $(ARGS)

bench-scale: $(VENV)/.installed ## how time and memory grow with orders and ticks
	$(BIN)/python -m benchmarks.scale $(ARGS)

bench-quality: $(VENV)/.installed ## how long until a policy is good, beside the peer (some 20 minutes)
	$(BIN)/python -m benchmarks.quality --python $(PYTHON) $(ARGS)

bench-search: $(VENV)/.installed ## samplers of rlwb search beside random search at equal trials (ARGS="--quick")
	$(BIN)/python -m benchmarks.search $(ARGS)

bench-data: $(VENV)/.installed ## how fast bars are read, in how much memory, and whether Qlib's reader agrees
	$(BIN)/python -m benchmarks.data --python $(PYTHON) $(ARGS)

bench-serving: $(VENV)/.installed ## decisions in process and over HTTP, beside plain Flask and FastAPI handlers (ARGS="--quick")
	$(BIN)/python -m benchmarks.serving --python $(PYTHON) $(ARGS)

bench-sweep: $(VENV)/.installed ## a small sweep and its members killed at random moments, and what it comes to (ARGS="--quick")
	$(BIN)/python -m benchmarks.sweep $(ARGS)

bench-outside: $(EXTRAS)/.installed ## Stable-Baselines3, tianshou and a PPO in one file on rlwb's environment, at equal orders
	$(EXTRAS)/bin/python -m benchmarks.outside $(ARGS)

soak: $(VENV)/.installed ## some minutes of load, garbage and kills for a real service (ARGS="--minutes 5")
	$(BIN)/python -m benchmarks.soak $(ARGS)

faults: $(VENV)/.installed ## 2,000 schedules of faults for the service (ARGS="--first 17 --schedules 1" replays one)
	$(BIN)/python -m benchmarks.faults $(ARGS)

agreement: $(VENV)/.installed ## 3,300 orders beside Qlib's own, order by order (ARGS="--quick", ARGS="--record")
	$(BIN)/python -m benchmarks.agreement --python $(PYTHON) $(ARGS)

qlib-strategy: $(VENV)/.installed ## whether a bundle decides inside Qlib's executor as in the backtest (ARGS="--quick")
	$(BIN)/python -m benchmarks.qlib_strategy --python $(PYTHON) $(ARGS)

check-power: $(VENV)/.installed ## whether the data check finds planted faults, and is silent about sound bars (ARGS="--sets synthetic")
	$(BIN)/python -m benchmarks.check_power $(ARGS)

impact-fit: $(VENV)/.installed ## whether impact that was planted in fills is found again (ARGS="--book FOLDER" for order books)
	$(BIN)/python -m benchmarks.impact $(ARGS)

fuzz: $(VENV)/.installed ## damaged and odd inputs for readers, configurations and runs (ARGS="--minutes 60", ARGS="--quick")
	$(BIN)/python -m benchmarks.fuzz $(ARGS)

kills: $(VENV)/.installed ## kill a small run before every change to its files, resume, compare (ARGS="--quick", ARGS="--minutes 5")
	$(BIN)/python -m benchmarks.kills $(ARGS)

mutants: $(VENV)/.installed ## whether the tests notice changes in the code (half an hour; ARGS="--targets engine")
	$(BIN)/python -m benchmarks.mutants $(ARGS)

size: $(VENV)/.installed ## lines of code and docstrings by part (ARGS=REVISION to compare with)
	$(BIN)/python -m benchmarks.size $(ARGS)

bench-ray: $(EXTRAS)/.installed ## sweeps, collects, backtests and DQN on Ray with 1 and 2 workers, and with one killed (ARGS="--quick")
	$(EXTRAS)/bin/python -m benchmarks.ray_jobs $(ARGS)

bench-drift: $(VENV)/.installed ## false alarms and power of the drift test, beside a fixed index (ARGS="--quick", ARGS="--data DIR")
	$(BIN)/python -m benchmarks.drift $(ARGS)

frontier: $(VENV)/.installed ## mean against risk: how near learners with a dial come to a known frontier
	$(BIN)/python -m benchmarks.frontier $(ARGS)

learners: $(VENV)/.installed ## learners on several market and training seeds, beside the simple rule and the attainable (ARGS="--missing")
	$(BIN)/python -m benchmarks.learners $(ARGS)

methods: $(VENV)/.installed ## methods over five seeds, on the embedded market and on two real sets (ARGS="--quick", ARGS="--missing")
	$(BIN)/python -m benchmarks.methods $(ARGS)

trust: $(VENV)/.installed ## coverage of intervals, verdicts with and without a signal, planted faults (ARGS="--parts planted", ARGS="--missing")
	$(BIN)/python -m benchmarks.trust $(ARGS)

course: $(VENV)/.installed ## every notebook of the course, and which answers its checks accept (ARGS="--only 01 --survivors")
	$(BIN)/python -m benchmarks.course $(ARGS)

certificate: $(VENV)/.installed ## how near the learners come to optima that are known exactly
	$(BIN)/python -m benchmarks.certificate $(ARGS)

docs: $(EXTRAS)/.installed ## the site in build/docs; a warning is an error (ARGS="-D nb_execution_mode=off" runs no notebook)
	MPLBACKEND=Agg $(EXTRAS)/bin/python -m sphinx -c docs -b html -D nb_execution_mode=cache -W --keep-going -q $(ARGS) . build/docs
	@echo build/docs/index.html

schema: $(VENV)/.installed ## write docs/config.schema.json anew, after a setting or its docstring changed
	$(BIN)/rlwb config --schema > docs/config.schema.json

lock: $(TOOLS)/.installed ## lock the packages of pins.txt and pins-extras.txt with the hashes of their files
	rm -f pins.lock pins-extras.lock
	for pins in pins pins-extras; do \
		$(TOOLS)/bin/uv pip compile $$pins.txt --no-deps --generate-hashes --python-version 3.11.9 --no-annotate --quiet \
			--no-emit-package torch --custom-compile-command "make lock" --output-file $$pins.lock || exit; \
	done

supply: $(VENV)/.installed $(TOOLS)/.installed ## known vulnerabilities of the packages, and their bill of materials in build/
	@mkdir -p build
	$(TOOLS)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible \
		--output-file build/rlwb.cdx.json
	$(BIN)/python -m benchmarks.supply $(TOOLS)/bin/pip-audit

$(TOOLS)/.installed: Makefile
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9 pip-audit==2.10.1 cyclonedx-bom==7.5.0
	@touch $@

# The stamp is written last, so an installation that was cut short is done again.
$(VENV)/.installed: pins.txt pins.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make needs Python 3.11 as $(PYTHON); name yours with make PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r pins.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint pins.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# The extras lie on top of the environment, which they see by a line that Python reads at its start.
$(EXTRAS)/.installed: pins-extras.txt pins-extras.lock $(VENV)/.installed
	$(PYTHON) -m venv --clear $(EXTRAS)
	$(BIN)/python -c "import sysconfig; print(f'import site; site.addsitedir({sysconfig.get_path(\"purelib\")!r})')" \
		> $$($(EXTRAS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/base.pth
	$(EXTRAS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r pins-extras.lock
	@touch $@

clean: ## remove the environment and caches; runs/ stays
	rm -rf $(VENV) $(EXTRAS) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
