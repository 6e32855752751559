# make demo | test | check | bench: each sets up .venv by itself, from constraints.txt, the first time.

PYTHON ?= python3.11
PIP := .venv/bin/python -m pip --disable-pip-version-check -q
WORKERS ?= 2
MINUTES ?= 30
EXTRAS := dev,suites,mlflow

# One thread a process: two processes fill two cores, and results do not depend on how many there are.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export NPROC := 1

SETUP := setup.cfg pyproject.toml constraints.txt

.PHONY: help demo test check bench soak clean

help:
	@echo "make demo    run VDN, QMIX and IPPO on a battle of SMAC and write a report (under 15 minutes on 2 cores, installation included)"
	@echo "make test    the test suite (under 10 minutes on 2 cores)"
	@echo "make check   ruff and mypy"
	@echo "make bench   throughput, breakdown, scaling and memory: tables and CSV in reports/bench"
	@echo "make soak    trials killed at random and taken up again, for MINUTES=30: is anything lost? (docs/reliability.md)"

DEMO := suite=smac tasks=3m algorithms=vdn,qmix,ippo seeds=3 name=demo env_steps=50000 eval_every=2500 \
        eval_episodes=32 final_episodes=128

demo: .venv/run
	.venv/bin/harness run $(DEMO)
	.venv/bin/harness report results/demo --out reports/demo

test: .venv/dev
	.venv/bin/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow"

check: .venv/dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: .venv/run
	.venv/bin/python -m benchmarks

soak: .venv/dev
	.venv/bin/python -m benchmarks.soak minutes=$(MINUTES) workers=$(WORKERS)

clean:
	rm -rf .venv .setup.lock build *.egg-info .pytest_cache .mypy_cache .ruff_cache

# The stamps below say what .venv holds: "run" a plain install, "dev" what tests and checks need beside it. The lock keeps
# two makes from installing at once; the one that waited finds the stamp and does nothing.
install = @exec 9> .setup.lock && flock 9 && \
	if [ -e $@ ] && [ -z "$$(find $(SETUP) -newer $@)" ]; then exit 0; fi && \
	echo "setting up .venv ($@)" && \
	{ [ -x .venv/bin/python ] || $(PYTHON) -m venv .venv || \
	  { echo "make needs Python 3.11: make PYTHON=/path/to/python3.11"; exit 1; }; } && \
	$(PIP) install -c constraints.txt setuptools && \
	$(PIP) install -c constraints.txt --no-build-isolation -e '$(1)' && \
	touch $@

.venv/run: $(SETUP)
	$(call install,.)

.venv/dev: $(SETUP) | .venv/run
	$(call install,.[$(EXTRAS)])
