# Needs Python 3.11 or newer, make and a package index; everything is installed into .venv, once. Set-up talks on
# stderr and recipes are silent, so that `make demo ARGS="--exit --json"` leaves one document on stdout.

PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)
PIP = .venv/bin/python -m pip --quiet --disable-pip-version-check
UV_LOCK = pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-annotate \
    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

.SILENT:
.PHONY: help demo test check docs simulate storm soak bench release-check lock clean

help:  ## say what can be made
	awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "make %-15s%s\n", $$1, $$2 }' Makefile

demo: .venv/demo  ## run the whole path on this machine: ARGS="--jobs 200 --exit --json"
	.venv/bin/autoscaler demo $(ARGS)

test: .venv/dev  ## pass every test that needs no root: ARGS="-k name"
	.venv/bin/python -m pytest $(ARGS)

check: .venv/dev  ## linters, types and the layering of the rooms
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports

simulate: .venv/dev  ## the real daemon through 10,000 schedules of faults in virtual time: ARGS="--first 0"
	.venv/bin/python -m tests.simulation --schedules 10000 $(ARGS)

storm: .venv/dev  ## 5,000 jobs on three replicas that are killed 200 times: ARGS="--jobs 500 --kills 20"
	.venv/bin/python -m benchmarks.storm $(ARGS)

soak: .venv/dev  ## 100,000 queued jobs: memory, idle CPU and reaction time
	.venv/bin/python -m benchmarks.soak $(ARGS)

bench: .venv/dev  ## all benchmarks, one table: ARGS="--quick" (15 minutes) ARGS="--only plan,reaction"
	.venv/bin/python -m benchmarks.bench $(ARGS)

release-check: .venv/dev  ## known vulnerabilities, version, and the list of parts in dist/sbom.cdx.json
	.venv/bin/python -m tests.repository.release

docs: .venv/dev  ## write the generated parts of ARCHITECTURE.md again
	.venv/bin/python -m tests.repository.generated

lock:  ## pin the dependencies again: ARGS=--upgrade takes newer releases
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	$(PYTHON) -m venv "$$dir" >&2 && "$$dir/bin/python" -m pip --quiet --disable-pip-version-check install uv >&2 && \
	lock() { "$$dir/bin/uv" $(UV_LOCK) $(ARGS) --group build pyproject.toml "$$@" >&2; } && \
	lock --extra dev -o requirements-dev.lock && \
	lock --extra all --extra planner -c requirements-dev.lock -o requirements.lock && \
	lock -c requirements.lock -o requirements-demo.lock

clean:  ## remove .venv and everything built or cached; data directories stay
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The demo needs no cloud's SDK, so it starts from the shortest lock; the others hold it. Locks are complete, hence --no-deps.
.venv/demo: requirements-demo.lock pyproject.toml
	$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "make: this needs Python 3.11 or newer; name one with PYTHON=..." >&2; exit 1; }
	echo "make: installing into .venv (half a minute, once)" >&2
	$(PYTHON) -m venv .venv >&2
	$(PIP) install --no-deps --require-hashes -r requirements-demo.lock >&2
	$(PIP) install --no-deps --no-build-isolation --editable . >&2
	touch $@

.venv/dev: .venv/demo requirements-dev.lock
	echo "make: installing the SDKs, linters and test tools into .venv (a minute, once)" >&2
	$(PIP) install --no-deps --require-hashes -r requirements-dev.lock >&2
	touch $@
