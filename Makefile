# Everything happens in .venv; a stamp per lock file says that it is up to date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# How many processes the tests are shared between. Many of them wait for processes and timers, so more than there are cores.
WORKERS ?= $(shell expr 3 \* $$(nproc))
# Fast tests seldom wait, and each process spends seconds on collecting them: one more than there are cores.
FAST ?= $(shell expr 1 + $$(nproc))
# For folders whose tests share something, each of which may have a cluster: three for two cores, four at most.
SHARERS ?= $(shell expr 3 \* $$(nproc) / 2 \& 3 \* $$(nproc) / 2 \< 4 \| 4)
# Folders whose tests share what is expensive to have: a cluster, an image, a browser, servers. There a file is given
# to one worker as a whole; everywhere else each test goes to whichever worker is free.
SHARING := $(addprefix tests/,browser cluster deploy image monitoring release)
# Left to `make deep` besides: the soak, each benchmark at its smallest size, the site of the docs.
DEEP := $(SHARING) tests/bench tests/site tests/soak
# What `make unit` runs of. With UNIT=tests it runs every fast test, starting processes too.
UNIT ?= $(addprefix tests/,config core export kube node report)
# How many failed tests are run once more, alone, before the run fails, so that one slow test on a busy machine does
# not cost half an hour. Their names are printed.
AGAIN ?= 0
FAILED := build/pytest
PYTEST := $(BIN)/pytest -q
# Runs pytest once for each list of arguments.
define pytest
@rm -rf $(FAILED); status=0; \
for part in $(1); do \
  echo "pytest $$part"; \
  eval "$(PYTEST) --durations=10 $$part" || status=$$?; \
  [ $$status -le 1 ] || break; \
done; \
if [ $$status -eq 1 ] && [ "$$(grep -c : $(FAILED)/v/cache/lastfailed)" -le $(AGAIN) ]; then \
  echo "once more, alone; a test that passes now is unstable and needs fixing:"; \
  status=0; $(PYTEST) -rpfE --lf --lfnf=none || status=$$?; \
fi; exit $$status
endef

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo check compiled unit quick test deep packages release tools programs soak bench gpu fmt docs docs-site pictures plugin lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gpu-memory-watchdog needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Set PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: requirements/run.txt requirements/build.txt pyproject.toml $(VENV)/.created
	@echo "installing gpu-watchdog and what it needs into $(VENV): 18 MB to download, a minute or two"
	$(PIP) install --require-hashes -r requirements/build.txt -r requirements/run.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	@echo "installing what the tests need into $(VENV): 180 MB to download, a minute or two"
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.run
	@echo "installing what builds the site of the docs into $(VENV): 13 MB to download"
	$(PIP) install --require-hashes -r requirements/docs.txt
	@touch $@

setup: $(VENV)/.run ## set up .venv with gpu-watchdog and what it needs at run time
	@echo "ready: $(BIN)/gpu-watchdog"

setup-dev: $(VENV)/.dev ## the same, with what the tests need

demo: $(VENV)/.run ## a simulated GPU shared by three pods, in the terminal
	@$(BIN)/gpu-watchdog demo

check: setup-dev ## formatting, lint, types, import contracts, spelling, Dockerfiles and links
	@$(BIN)/ruff format --check --quiet . || { echo "formatting differs: make fmt"; exit 1; }
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-logo > /dev/null || $(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(BIN)/hadolint Dockerfile .devcontainer/Dockerfile
	$(BIN)/lychee -qq --offline --include-fragments --exclude-path docs/templates '*.md' 'docs/**/*.md'

# pytest compiles a test file when it first imports it: once here, instead of in six workers at the same time.
compiled: setup-dev
	@$(BIN)/pytest -q --collect-only tests > /dev/null

unit: setup-dev ## the tests of what needs no other process: a minute
	$(call pytest,"-n $(FAST) --dist worksteal -m 'not (slow or node or gpu or cluster)' $(UNIT)")

quick: check unit ## `make check` and the fast tests: a few minutes

test: setup-dev tools check ## every check, and every test that `make deep` does not run; needs root, cgroups and a C compiler for all of them
	$(call pytest,"-n $(WORKERS) --dist worksteal $(DEEP:%=--ignore=%)")

deep: export HYPOTHESIS_PROFILE := full
deep: setup-dev $(VENV)/.docs tools programs ## the slow tests: a real Kubernetes, image, release, browser, Prometheus, more examples, planted faults
	$(call pytest,"-n $(WORKERS) --dist worksteal tests/bench tests/site tests/soak" \
	  "-n auto --dist worksteal -m hypothesis $(DEEP:%=--ignore=%)" \
	  "-n $(SHARERS) --dist loadfile --no-loadscope-reorder $(SHARING)")

packages: ## install what `make deep` needs from the distribution: Debian and Ubuntu, as root
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends containerd runc \
	  containernetworking-plugins iproute2 iptables openssl prometheus prometheus-alertmanager fonts-dejavu-core buildah \
	  debootstrap jq curl $$(command -v chromium > /dev/null || echo chromium) \
	  $$(command -v java > /dev/null || echo default-jre-headless) $$(command -v npm > /dev/null || echo npm) > /dev/null

tools:
	@command -v cc > /dev/null || { echo "make test needs a C compiler for its stub of NVML; on Debian and Ubuntu: apt-get install gcc libc6-dev"; exit 1; }

programs: setup-dev
	@$(BIN)/python -m tools.programs

soak: setup-dev ## a simulated node through a million steps against the laws, and every planted fault: half an hour
	$(BIN)/python -m tests.soak --faults 40

bench: setup-dev tools ## the benchmarks, alongside other programs that run at the same time: writes docs/benchmarks.md
	@command -v openssl > /dev/null || { echo "make bench needs openssl; on Debian and Ubuntu: apt-get install openssl"; exit 1; }
	$(BIN)/python -m bench

gpu: setup-dev ## the tests that need a real NVIDIA GPU, and what the daemon costs there
	$(BIN)/pytest -q -m gpu tests/gpu
	$(BIN)/python -m bench.gpu

fmt: setup-dev ## format the code
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

docs: setup-dev ## write the generated parts of docs/, README and deploy/ again
	$(BIN)/python -m tools.policy_reference
	$(BIN)/python -m tools.doctor_reference
	$(BIN)/python -m tools.metrics_reference
	$(BIN)/python -m tools.dashboard
	$(BIN)/python -m tools.rights
	$(BIN)/python -m tools.prometheusrule
	$(BIN)/python -m tools.chart
	$(BIN)/python -m tools.chart_reference
	$(BIN)/python -m tools.cli_reference
	$(BIN)/python -m tools.kustomize
	$(BIN)/python -m tools.layers
	$(BIN)/python -m tools.readme

docs-site: $(VENV)/.docs ## build the site of the docs, with search: build/site/index.html
	@rm -rf build/site
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs -d build/doctrees . build/site

pictures: setup-dev tools programs ## take the pictures of the docs again: page, terminal, dashboard; needs root, Chromium, Prometheus
	$(BIN)/python -m tests.pictures.page docs/pictures
	$(BIN)/python -m tests.pictures.top docs/pictures
	$(BIN)/python -m tests.pictures.dashboard docs/pictures

release: setup-dev programs ## wheel, image, chart, manifests, SBOMs and checksums of this commit: docs/release.md
	$(BIN)/python -m tools.release $(if $(IMAGE),--image '$(IMAGE)') \
	  $(if $(PROJECT_URL),--url '$(PROJECT_URL)') $(if $(BASE),--base '$(BASE)') \
	  $(if $(RUN_BASE),--run-base '$(RUN_BASE)') $(if $(PLATFORM),--platform '$(PLATFORM)')

plugin: setup-dev ## the program for people's own machines, build/kubectl-gpu_watchdog: docs/install.md
	@mkdir -p build
	$(BIN)/python -m tools.release.plugin build

lock: setup-dev ## compile requirements/*.txt again from pyproject.toml
	$(BIN)/python -m tools.lock

clean: ## remove .venv and build/
	rm -rf $(VENV) build
