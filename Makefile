# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# Meson does the work, this is the front door: make help

BUILD  ?= build
prefix ?= /usr/local
SETUP  ?=
TEST   ?=
FUZZ_SECONDS ?= 60
FUZZ_RUNS ?=
# Of libraries, for the page: the same for every build.
PAGE_SOURCES = $(CURDIR)/build-page-sources

WERROR = $(if $(CI),-Dwerror=true)

all: engines ## build what is installed: the engines whose libraries are there
	ninja -C $(BUILD) installed
	@grep . $(BUILD)/engines-left-out || :

# Left alone, Meson takes lib64 on a Debian without dpkg-dev, where nobody looks for libraries.
LIBDIR = $(patsubst %,--libdir=lib/%,$(shell cc -print-multiarch))

$(BUILD)/build.ninja: | deps-build
	meson setup $(BUILD) --prefix=$(prefix) $(LIBDIR) $(WERROR) $(SETUP)
	@echo "$(prefix)" >$(BUILD)/.prefix
	@tools/deps --present engines >$(BUILD)/.libraries

# Ninja does not notice libraries that came or went; Meson has to look again.
engines: $(BUILD)/build.ninja
	@tools/deps --present engines >$(BUILD)/.libraries.now
	@cmp -s $(BUILD)/.libraries.now $(BUILD)/.libraries || { \
	    meson configure --clearcache $(BUILD) && meson setup --reconfigure $(BUILD) && \
	    mv $(BUILD)/.libraries.now $(BUILD)/.libraries; }

# A build directory made before the test packages were there has no tests in it. In CI an engine that
# is left out is a failure, as a skipped test is.
$(BUILD)/.with-checks: | deps-check engines
	meson configure $(BUILD) -Dtests=enabled $(if $(CI),-Dauto_features=enabled)
	touch $@
# Without the sources of libraries there is no page to test; in CI that is a failure.
$(BUILD)/.with-tests: | deps-test $(BUILD)/.with-checks
	@tools/page-sources $(PAGE_SOURCES) || [ -z "$(CI)" ]
	meson setup --reconfigure $(BUILD) $$(test ! -e $(PAGE_SOURCES)/protobuf-c || echo -Dpage_sources=$(PAGE_SOURCES))
	touch $@

deps-build:
	@tools/deps build
deps-check:
	@tools/deps build engines check
deps-test:
	@tools/deps build engines test page
deps-bench:
	@tools/deps build engines bench
deps-fuzz:
	@tools/deps build engines test fuzz
deps-format:
	@tools/deps format

run: $(BUILD)/build.ninja ## twenty copies of a cron job, one of them runs
	ninja -C $(BUILD) cli/stile
	@tools/demo $(BUILD)/cli/stile

check: deps-check engines $(BUILD)/.with-checks ## build, run the tests that need no server (a minute)
	ninja -C $(BUILD)
	@tools/tally $(BUILD) --suite check $(TEST)

test: deps-test engines $(BUILD)/.with-tests ## build, run every test
	ninja -C $(BUILD)
	@tools/npm-clients $(BUILD)
	@tools/tally $(BUILD) $(TEST)

asan: ## every test with AddressSanitizer and UndefinedBehaviorSanitizer
	$(MAKE) --no-print-directory test BUILD=build-asan TEST="-t 5 $(TEST)" \
	    SETUP="-Db_sanitize=address,undefined -Db_lundef=false $(SETUP)"

tsan: ## every test with ThreadSanitizer
	$(MAKE) --no-print-directory test BUILD=build-tsan TEST="-t 10 $(TEST)" \
	    SETUP="-Db_sanitize=thread -Db_lundef=false $(SETUP)"

soak: ## the same tests, with many more rounds
	tools/reproducible
	STILE_SOAK=1 $(MAKE) --no-print-directory test TEST="-t 30 $(TEST)"

mutants: deps-test ## break one rule at a time; a test must notice
	tools/mutants build-mutants $(MUTANTS)

fuzz: deps-fuzz ## each fuzz target for FUZZ_SECONDS, or all of them for FUZZ_RUNS inputs together
	test -f build-fuzz/build.ninja || CC=clang CXX=clang++ meson setup build-fuzz -Dfuzz=true \
	    -Dtests=enabled -Db_sanitize=address,undefined -Db_lundef=false
	ninja -C build-fuzz
	tools/fuzz build-fuzz $(FUZZ_SECONDS) $(FUZZ_RUNS)

bench: deps-bench engines ## our figures beside bare limits and peers
	ninja -C $(BUILD)
	bench/run $(BUILD)

bench-peers: deps-bench engines ## other clients of the same locks beside ours, and a picture
	ninja -C $(BUILD)
	@tools/npm-clients $(BUILD)
	bench/peers_run.py $(BUILD) --picture $(BUILD)/bench/peers.svg

# The prefix is compiled in, so it is set before the build.
install: engines ## prefix=/usr/local DESTDIR=
	@[ "$$(cat $(BUILD)/.prefix)" = "$(prefix)" ] || meson configure $(BUILD) -Dprefix=$(prefix)
	@echo "$(prefix)" >$(BUILD)/.prefix
	ninja -C $(BUILD) installed
	meson install -C $(BUILD) --no-rebuild
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig
	@grep . $(BUILD)/engines-left-out || :

page: engines ## build the page of `stile play`, with the library in WebAssembly
	@tools/deps page
	@tools/page-sources $(PAGE_SOURCES)
	meson setup --reconfigure $(BUILD) -Dpage_sources=$(PAGE_SOURCES) >/dev/null
	ninja -C $(BUILD) web/play.html

deb: ## Debian packages in build-deb/, tried in a fresh root
	@tools/deps build engines deb
	tools/deb build-deb

uninstall: ## remove what make install has put there: prefix= DESTDIR=
	@tools/uninstall $(BUILD) "$(DESTDIR)"
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

static: deps-build ## build-static/stile: one file that runs on any Linux of this processor
	@tools/static build-static

format: deps-format ## clang-format on every C file
	git ls-files '*.c' '*.h' '*.cpp' '*.hpp' | xargs clang-format -i

clean: ## remove every build directory
	rm -rf build build-asan build-tsan build-fuzz build-mutants build-static build-deb $(BUILD)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' Makefile | expand -t 20

.PHONY: all engines run test check page asan tsan soak mutants fuzz bench bench-peers install uninstall static deb \
    format clean help \
    deps-build deps-check deps-test deps-bench deps-fuzz deps-format
.NOTPARALLEL:
.DELETE_ON_ERROR:
