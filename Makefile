# What a developer types. `make help` lists it.
#
#   PYTHON       the interpreter that the virtual environment is made from (3.11 or later)
#   VENV         the virtual environment
#   PIP_FLAGS    for pip, e.g. an index with CPU builds of torch
#   PYTEST_FLAGS, JOBS
#   PYTEST_WORKERS  processes that share the Python tests; 0: none but pytest's own, as a debugger needs
#   TEST_CACHE   keeps what compilers make of C++, for later runs and other clones; empty: nothing is kept

PYTHON ?= python3
VENV ?= .venv
PIP_FLAGS ?=
PYTEST_FLAGS ?=
JOBS ?= $(shell nproc)
# Each has torch in its memory.
PYTEST_WORKERS ?= $(shell n=$$(nproc); echo $$((n < 8 ? n : 8)))
TEST_CACHE ?= $(addsuffix /aotpack-tests,$(or $(XDG_CACHE_HOME),$(addsuffix /.cache,$(HOME))))

BIN := $(VENV)/bin
PY := $(BIN)/python
# Most of the modules are never imported: Python compiles those that are.
PIP := $(PY) -m pip --disable-pip-version-check install --quiet --no-compile $(PIP_FLAGS)
# Stamps lie in the environment that they speak of: `make clean` keeps both.
TOOLS := $(VENV)/.aotpack-tools
DEPS := $(VENV)/.aotpack-deps
INSTALLED := $(VENV)/.aotpack-installed
MODULES := $(VENV)/.aotpack-modules

# What the installed package is compiled from; Python sources are used in place.
NATIVE := $(wildcard CMakeLists.txt cmake/*) \
          $(shell find csrc \( -name '*.cpp' -o -name '*.h' -o -name '*.hpp' -o -name '*.map' -o -name '*.inc' -o -name CMakeLists.txt \) 2>/dev/null)
CPP_SOURCES = $(shell git ls-files '*.cpp' '*.h' '*.hpp' | grep -v -e dlpack.h -e third_party)

DOCTEST := doctest/doctest.h
DOCTEST_LOCAL := build/deps/usr/include
# Never the system's: another version compiles everything again.
CMAKE := $(CURDIR)/$(BIN)/cmake
CTEST := $(CURDIR)/$(BIN)/ctest
, := ,
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Processes that may not keep bytecode compile torch's modules again, each for seconds.
unexport PYTHONDONTWRITEBYTECODE

# Compilers take most of the time of the C++ tests, and a third of that of the Python tests, which build archives. Both
# caches know an object file by the contents of all that it is made from.
ifneq ($(TEST_CACHE),)
export CCACHE_DIR := $(abspath $(TEST_CACHE))/ccache
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
export CCACHE_MAXSIZE := 2G
export CCACHE_SLOPPINESS := pch_defines,time_macros
# CMake takes it when it first configures a folder; without ccache it has to be empty.
export CMAKE_CXX_COMPILER_LAUNCHER = $(shell command -v ccache || true)
export CMAKE_C_COMPILER_LAUNCHER = $(CMAKE_CXX_COMPILER_LAUNCHER)
test-py: export AOTPACK_TEST_CACHE := $(abspath $(TEST_CACHE))/build-cache
endif

.PHONY: help tools sanitized setup demo test test-native test-py test-cpp test-asan test-tsan test-fuzz fuzz lint format bench wheel clean doctest ccache
.NOTPARALLEL:

help:
	@echo "make setup      creates the virtual environment with torch, the package and the test dependencies"
	@echo "make demo       trains and builds a model and runs it without torch, from Python and C++"
	@echo "make test       all tests: C++ (plain, ASan+UBSan, TSan) and Python"
	@echo "make test-py    Python tests only; PYTEST_FLAGS='-k name' selects a subset"
	@echo "make test-cpp   C++ tests only; test-asan and test-tsan run them with sanitizers"
	@echo "make fuzz       every fuzzer for FUZZ_SECONDS (3600), ASan+UBSan; test-fuzz: a fixed number of runs"
	@echo "make lint       ruff, mypy, clang-format"
	@echo "make format     formats the sources with ruff and clang-format"
	@echo "make bench      compares aotpack with eager, AOTInductor and ONNX Runtime; BENCH_FLAGS='--quick --models mlp'"
	@echo "make wheel      dist/*.whl with the compiled kernels of every CPU target (minutes)"
	@echo "make clean      removes build outputs; keeps $(VENV)"

# ---- set-up ---------------------------------------------------------------------------------------------------------

setup: $(INSTALLED)

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "aotpack needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "hint: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch comes first and alone, from the constraint: no other package gets to choose which build it is.
$(DEPS): constraints.txt pyproject.toml Makefile $(TOOLS)
	@echo "installing build and test dependencies (takes minutes the first time)"
	$(PIP) -c constraints.txt torch
	$(PIP) -c constraints.txt scikit-build-core nanobind numpy
	@touch $@

# What compiles C++ tests without the package.
tools: $(TOOLS) | doctest ccache

$(TOOLS): constraints.txt | $(PY)
	$(PIP) -c constraints.txt cmake ninja
	@touch $@

# An editable install knows files and folders by their names when it was made.
$(MODULES): FORCE | $(PY)
	@now=$@.$$$$; find aotpack -name '*.py' | sort >$$now; cmp -s $$now $@ && rm $$now || mv $$now $@

# With warnings as errors in CI (WERROR=ON), so that test-cpp has nothing to compile again.
WERROR ?=
define install_package
	$(PIP) -c constraints.txt --no-build-isolation --config-settings=build-dir=build/python \
	  $(if $(WERROR),--config-settings=cmake.define.AOTPACK_WERROR=$(WERROR)) -e '.[build,test,examples,bench,dev]'
	@touch $(INSTALLED)
endef

$(INSTALLED): $(DEPS) $(NATIVE) $(MODULES) | doctest ccache
	$(install_package)

# After `make clean`, which leaves the installed package.
build/python/CMakeCache.txt: | $(INSTALLED)
	$(install_package)

doctest:
	@if [ -e /usr/include/$(DOCTEST) ] || [ -e $(DOCTEST_LOCAL)/$(DOCTEST) ]; then exit 0; fi; \
	echo "fetching the doctest header"; \
	if [ "$$(id -u)" = 0 ]; then apt-get install -y -qq doctest-dev >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq doctest-dev >/dev/null; }; \
	else mkdir -p build/deps && cd build/deps && apt-get download -qq doctest-dev && dpkg -x doctest-dev_*.deb .; fi || { \
	  echo "the C++ tests need doctest: install the package doctest-dev" >&2; exit 1; }

# Nothing needs it: where only an administrator can install it, every run compiles.
ccache:
	@[ -z "$(TEST_CACHE)" ] || command -v ccache >/dev/null || [ "$$(id -u)" != 0 ] || apt-get install -y -qq ccache >/dev/null 2>&1 || true

# ---- use ------------------------------------------------------------------------------------------------------------

demo: setup
	$(PY) examples/digits/demo.py

# Not from build/python, which is configured for an editable installation.
wheel: $(DEPS)
	$(PY) -m pip --disable-pip-version-check wheel $(PIP_FLAGS) --no-deps --no-build-isolation -w dist \
	  --config-settings=cmake.define.AOTPACK_OBJECTS=ON .

# As a wheel has them: what a user's first build compiles is measured. Those that are there and the same stay.
bench: setup
	$(PY) -m aotpack.building.objects aotpack/_objects
	$(PY) -m bench.overhead
	$(PY) -m bench.run $(BENCH_FLAGS)

# ---- tests ----------------------------------------------------------------------------------------------------------

# OpenMP threads that spin while they wait make a shared machine crawl.
test-cpp test-asan test-tsan test-py test-fuzz fuzz: export OMP_WAIT_POLICY := passive
# Threads of numpy's products wait for each other with the processor, thirty times as long as such products take.
test-py: export OPENBLAS_NUM_THREADS := 1
# As `aotpack build` has it.
test-py: export SYMPY_CACHE_SIZE := 20000
# Compilers take a third of the time of the tests. Operators and architectures are tested as users build them.
test-py: export AOTPACK_OPT_LEVEL ?= 1

CPP_PHASES := test-cpp test-asan test-tsan test-fuzz

# The C++ phases beside the Python tests: links, and tests of one thread, leave cores idle. What they print comes after.
# Nothing is installed meanwhile.
test: setup build/python/CMakeCache.txt
	@$(MAKE) --no-print-directory test-native >build/test-native.log 2>&1 & native=$$!; \
	trap 'kill $$native 2>/dev/null' EXIT; python=0; \
	began=$$(date +%s); $(MAKE) --no-print-directory test-py || python=$$?; \
	echo "test-py took $$(($$(date +%s) - began)) s"; \
	wait $$native; status=$$?; cat build/test-native.log; \
	[ $$python = 0 ] || echo "The Python tests failed (above the C++ tests)." >&2; \
	[ $$status = 0 ] || echo "The C++ tests failed." >&2; \
	[ $$python = 0 ] && [ $$status = 0 ]
	@echo "C++ tests passed: plain, ASan+UBSan, TSan. Fuzzers found nothing. Python tests passed (summary above)."

test-native: setup
	@for phase in $(CPP_PHASES); do \
	  began=$$(date +%s); $(MAKE) --no-print-directory $$phase || exit 1; \
	  echo "$$phase took $$(($$(date +%s) - began)) s"; done

test-py: setup
	$(PY) -m pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder --durations=25 $(PYTEST_FLAGS) tests

# $(call build_cpp_tests,source folder,build folder,build type,other options)
define build_cpp_tests
	$(CMAKE) -S $(1) -B build/$(2) -G Ninja -DCMAKE_BUILD_TYPE=$(3) $(4) \
	  -DCMAKE_INCLUDE_PATH=$(CURDIR)/$(DOCTEST_LOCAL) >/dev/null
	$(CMAKE) --build build/$(2) -j $(JOBS)
endef
define run_cpp_tests
	$(call build_cpp_tests,$(1),$(2),$(3),$(4))
	$(CTEST) --test-dir build/$(2) --output-on-failure --no-tests=error
endef
RUNTIME_TESTS := -DAOTPACK_BUILD_TESTS=ON -DAOTPACK_WERROR=ON
# With the fuzzers, so that these compile the runtime no second time.
RUNTIME_SANITIZED := $(RUNTIME_TESTS) -DAOTPACK_BUILD_FUZZERS=ON -DAOTPACK_SANITIZE='address$(,)undefined'
# Of these, `run` or `build`.
asan = $(call $(1)_cpp_tests,.,asan,RelWithDebInfo,$(RUNTIME_SANITIZED))
asan_kernels = $(call $(1)_cpp_tests,tests/cpp_kernels,asan-kernels,Release,-DAOTPACK_SANITIZE=ON -DAOTPACK_KERNEL_MARCHS=native)
tsan = $(call $(1)_cpp_tests,.,tsan,RelWithDebInfo,$(RUNTIME_TESTS) -DAOTPACK_SANITIZE=thread)

# Compiles what needs a compiler alone: CI does so while pip, which has use for one core, installs the rest.
sanitized: tools
	$(call tsan,build)
	$(call asan,build)
	$(call asan_kernels,build)

# The runtime, from the objects of the installed package; then the kernels that go into archives.
test-cpp: setup build/python/CMakeCache.txt
	$(CMAKE) -S . -B build/python $(RUNTIME_TESTS) -DCMAKE_INCLUDE_PATH=$(CURDIR)/$(DOCTEST_LOCAL) >/dev/null
	$(CMAKE) --build build/python -j $(JOBS) --target aotpack_cpp_tests aotpack
	$(CTEST) --test-dir build/python --output-on-failure --no-tests=error
	$(call run_cpp_tests,tests/cpp_kernels,cpp-kernels,Release)

test-asan: setup
	$(call asan,run)
	$(call asan_kernels,run)

# Not the kernels: their threads are libgomp's, whose synchronisation TSan does not see.
test-tsan: setup
	$(call tsan,run)

# libFuzzer with clang, a driver of random inputs with GCC; CXX chooses.
FUZZ_SECONDS ?= 3600
define build_fuzzers
	$(CMAKE) -S . -B build/asan -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo $(RUNTIME_SANITIZED) \
	  -DCMAKE_INCLUDE_PATH=$(CURDIR)/$(DOCTEST_LOCAL) >/dev/null
	$(CMAKE) --build build/asan -j $(JOBS) --target fuzz_container fuzz_manifest fuzz_code fuzz_run
endef
# Runs, then seconds.
fuzz_options = $(if $(wildcard build/asan/tests/fuzz/libfuzzer),-seed=1 -runs=$(1) -max_total_time=$(2),--runs $(1) --seconds $(2))

# The same inputs every time. Python's fuzzers are among the tests of test-py.
test-fuzz: setup
	$(call build_fuzzers)
	build/asan/tests/fuzz/fuzz_container $(call fuzz_options,10000,0)
	build/asan/tests/fuzz/fuzz_manifest $(call fuzz_options,3000,0)
	build/asan/tests/fuzz/fuzz_code $(call fuzz_options,50000,0)
	build/asan/tests/fuzz/fuzz_run $(call fuzz_options,1000,0)
	build/asan/tests/fuzz/fuzz_code --emit 20000 1 | $(PY) -m tests.fuzz.codes

fuzz: setup
	$(call build_fuzzers)
	for name in container manifest code run; do \
	  build/asan/tests/fuzz/fuzz_$$name $(if $(wildcard build/asan/tests/fuzz/libfuzzer),-max_total_time=$(FUZZ_SECONDS),--seed $$(date +%s) --seconds $(FUZZ_SECONDS)) || exit 1; done
	build/asan/tests/fuzz/fuzz_code --emit 1000000 $$(date +%s) | $(PY) -m tests.fuzz.codes
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(PY) -m pytest -n 0 --timeout=0 tests/fuzz

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict aotpack
	@echo $(BIN)/clang-format --dry-run --Werror  '# all C++ sources'
	@$(BIN)/clang-format --dry-run --Werror $(CPP_SOURCES)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_SOURCES)

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis examples/*/build examples/*/*.aotpack
	find aotpack bench examples tests -name __pycache__ -prune -exec rm -rf {} +

FORCE:
