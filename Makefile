# Penstock: see README.md; `make help` lists the goals. Each variant (VARIANT=release asan tsan clang
# fuzz analyzer debug coverage) builds in build/<variant>/, so nothing ever needs `make clean`.
# A goal first installs the Debian packages it needs and the machine lacks (.ci/deps).

VARIANT ?= release
# How many at a time where a goal builds a whole variant for itself (lint, the sanitizers).
JOBS ?= $(shell nproc)
B := build/$(VARIANT)

# ---- what there is, in reading order -------------------------------------------------------------
BASE := check clock hash text parse log json_scan json_text
SHARED := segment lock roster slots seq_sort queue_order wait_queue leases gate gate_journal flow_queue flow_clients flow_rows flow_told flow_turn flow_wait flow flow_end flow_estimate flow_memory admit sources source_rows breaker bucket calibration adaptive adaptive_window adaptive_pace adaptive_signals owners journal counters snapshot \
	ledger ledger_row ledger_rows ledger_stale ledger_read ledger_retain ledger_schema
# the life of one request first, in the order of the table of steps in worker/request.c
STEPS := accept identify receive route admission attempts relay respond settle
WORKER := request $(STEPS) attempt attempt_book lanes candidates plan plan_verdict endpoint intent tool_choice answer_options estimate token_count pin model_edit usage_option body_reader upstream_id ticket fault flow_call flow_usage flow_head upstream upstream_head watchers heartbeat reason \
	multipart sse usage_strip pictures answer_events answer_text spool client_watch bell door refuser fastcgi fastcgi_call fastcgi_head fastcgi_pieces http_client \
	http_connection http_exchange http_head http_idle http_pool http_request http_response http_trust \
	judge judge_body judge_hints ratelimit_headers \
	options options_memory options_file options_input options_env options_value options_secret \
	options_check options_scope options_hedge options_flow options_effect options_pair options_report options_print flow_watch flow_state flow_reload serve scribe scribe_config scribe_repair hedge_advice diagnose diagnose_advice diagnose_report try_fallback control_ask status status_call status_answer status_flows status_html metrics metrics_flows \
	monitor master generations reload seat activation
PROGRAMS := penstockd penstockctl
MAIN_penstockd := worker/main
MAIN_penstockctl := worker/control

# Each tests/tools/NAME.c is a program; the folders beside them hold what is more than one file. A unit
# test that wants a fake instead of the real file gets a line of its own below "fakes".
TOOLS := $(patsubst tests/tools/%.c,%,$(wildcard tests/tools/*.c))
TOOL_PARTS := $(patsubst %.c,%,$(wildcard tests/tools/*/*.c))
# Likewise tests/bench/NAME.c; load_client is made of the parts beside it, and fast_clock is preloaded.
BENCH_TOOLS := $(filter-out fast_clock,$(patsubst tests/bench/%.c,%,$(wildcard tests/bench/*.c)))
BENCH_PARTS := $(patsubst %.c,%,$(wildcard tests/bench/*/*.c))
SCENARIO_PARTS := $(patsubst %.c,%,$(wildcard tests/scenarios/scenario_*.c))
FUZZERS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
UNIT_TESTS := $(patsubst tests/%.c,%,$(wildcard tests/base/test_*.c tests/shared/test_*.c tests/worker/test_*.c \
	tests/scenarios/run_*.c))
# tests/processes/lib*.sh is what the scripts share.
PROCESS_TESTS := $(filter-out tests/processes/lib%,$(sort $(wildcard tests/processes/*.sh)))
CHECKS := $(sort $(wildcard tests/checks/*.sh))

UNITS := $(BASE:%=base/%) $(SHARED:%=shared/%) $(WORKER:%=worker/%)
LIB := $(B)/libpenstock.a
OBJECTS := $(UNITS:%=$(B)/%.o) $(foreach p,$(PROGRAMS),$(B)/$(MAIN_$(p)).o)
TEST_OBJECTS := $(UNIT_TESTS:%=$(B)/tests/%.o) $(SCENARIO_PARTS:%=$(B)/%.o) $(TOOLS:%=$(B)/tests/tools/%.o) $(TOOL_PARTS:%=$(B)/%.o) \
	$(FUZZERS:%=$(B)/tests/fuzz/%.o) $(patsubst %.c,$(B)/%.o,$(wildcard tests/fakes/*.c)) \
	$(BENCH_TOOLS:%=$(B)/tests/bench/%.o) $(BENCH_PARTS:%=$(B)/%.o)

# ---- how it is compiled --------------------------------------------------------------------------
CC := gcc
WARN := -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wsign-conversion -Wcast-qual \
	-Wcast-align -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wundef -Wvla \
	-Wformat=2 -Wnull-dereference -Wpointer-arith -Wwrite-strings -Wimplicit-fallthrough \
	-Wswitch-enum -Wredundant-decls -Wbad-function-cast -fno-common
WARN_gcc := -Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wjump-misses-init \
	-Wformat-signedness -Warith-conversion
WARN_clang := -Wcomma -Wunreachable-code -Wmissing-variable-declarations
HARDEN := -fstack-protector-strong -fstack-clash-protection -fcf-protection=full \
	-fno-strict-overflow -fPIE -fvisibility=hidden
CFLAGS_release := -O2 -g -D_FORTIFY_SOURCE=3 -ftrivial-auto-var-init=zero $(HARDEN)
CFLAGS_asan := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
CFLAGS_tsan := -O1 -g -fsanitize=thread -fno-omit-frame-pointer
CFLAGS_coverage := -O0 -g --coverage
CFLAGS_debug := -O1 -g -fno-omit-frame-pointer
CFLAGS_analyzer := -O1 -g -fanalyzer
CFLAGS_clang := -O2 -g -D_FORTIFY_SOURCE=2 $(filter-out -fstack-clash-protection,$(HARDEN))
CFLAGS_fuzz := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
LDFLAGS_release := -pie -Wl,-z,relro,-z,now,-z,noexecstack,--as-needed
LDFLAGS_asan := -fsanitize=address,undefined
LDFLAGS_tsan := -fsanitize=thread
LDFLAGS_coverage := --coverage
LDFLAGS_clang := $(LDFLAGS_release)
LDFLAGS_fuzz := -fsanitize=fuzzer,address,undefined
ifneq ($(filter clang fuzz,$(VARIANT)),)
CC := clang
endif
CFLAGS := -std=c17 -D_GNU_SOURCE -I. -pthread $(WARN) $(WARN_$(CC)) $(CFLAGS_$(VARIANT)) -MMD -MP
LDFLAGS := -pthread $(LDFLAGS_$(VARIANT))
LDLIBS := -lfcgi -lcurl -ljson-c -lsqlite3 -lcrypto -lssl

# ---- where it is installed -----------------------------------------------------------------------
prefix := /usr/local
sbindir := $(prefix)/sbin
bindir := $(prefix)/bin
mandir := $(prefix)/share/man
docdir := $(prefix)/share/doc/penstock
systemdir := $(prefix)/lib
sysconfdir := /etc

# ---- packages each goal needs, as groups of .ci/deps ---------------------------------------------
NEEDS_run := build run
NEEDS_check := build run test
NEEDS_suite := $(NEEDS_check)
NEEDS_check-processes := $(NEEDS_check)
NEEDS_flow-storm := $(NEEDS_check)
NEEDS_check-front := build front
NEEDS_valgrind-suite := build valgrind
NEEDS_fuzz-run := build fuzz
NEEDS_bench := build bench
NEEDS_bench-deps := build bench
NEEDS_bench-gate := build bench
NEEDS_bench-flow := build bench
NEEDS_bench-compare := build bench
NEEDS_lint := build lint
NEEDS_objects := build lint
NEEDS_tidy := build lint
NEEDS_checks := build test
NEEDS_format := lint
NEEDS_format-check := lint
NEEDS_docs := test
NEEDS_deps := build run test front lint fuzz valgrind bench
NEEDS := $(sort $(or $(foreach goal,$(MAKECMDGOALS),$(NEEDS_$(goal))),build))

export BUILD := $(B)
export ASAN_OPTIONS ?= abort_on_error=0:detect_leaks=1:strict_string_checks=1
export UBSAN_OPTIONS ?= print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS ?= halt_on_error=0:second_deadlock_stack=1

.DEFAULT_GOAL := all
.PHONY: all tools help run check check-quick check-unit check-processes flow-storm check-front check-asan check-tsan \
	check-valgrind suite tsan-suite valgrind-suite fuzz fuzz-run fuzz-keep fuzz-seeds bench bench-deps bench-gate bench-compare bench-flow bench-tools \
	lint lint-warnings lint-tidy lint-cppcheck lint-analyzer objects lint-objects tidy format format-check \
	checks docs install uninstall deb deps coverage clean

all: $(PROGRAMS:%=$(B)/%) ## build penstockd and penstockctl
tools: $(TOOLS:%=$(B)/tools/%) ## build the test tools (simulated upstream, web-server stand-in)
deps: ## install what the goals on the command line need (alone: everything)
	@.ci/deps $(NEEDS)
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "  %-16s %s\n", $$1, $$2 }'

print-%: ; @echo $($*)

run: all tools ## start Caddy, Penstock and a simulated upstream, make some calls, stay until interrupted
	@tests/tools/run_demo.sh

# ---- tests ---------------------------------------------------------------------------------------
UNIT_PROGRAMS := $(UNIT_TESTS:%=$(B)/tests/bin/%)
REPLAYS := $(FUZZERS:%=$(B)/tests/bin/fuzz/%)

check: suite ## unit tests, tests with real processes, checks of the tree: the one to run
suite: all tools $(UNIT_PROGRAMS) $(REPLAYS)
	@tests/run.sh $(UNIT_PROGRAMS) $(REPLAYS) $(PROCESS_TESTS) $(if $(filter release,$(VARIANT)),$(CHECKS))
check-quick: $(UNIT_PROGRAMS) ## unit tests and checks, no processes
	@tests/run.sh $(UNIT_PROGRAMS) $(CHECKS)
check-unit: $(UNIT_PROGRAMS) $(REPLAYS) ## unit tests and fuzz seeds only
	@tests/run.sh $(UNIT_PROGRAMS) $(REPLAYS)
check-processes: all tools ## storms, kill -9, reloads between real processes
	@tests/run.sh $(PROCESS_TESTS)
flow-storm: all tools ## quotas and shares of flow control, half an hour with a worker killed every 5 s; SECONDS_LONG=1800
	@SECONDS_LONG=120 bash tests/processes/test_flow_shares.sh
	@SECONDS_LONG=$${SECONDS_LONG:-1800} bash tests/processes/test_flow_storm.sh
check-front: all tools ## the real Apache, Caddy and nginx with the official SDK
	@tests/front/run.sh
check-asan: ## unit and process tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@TEST_TIME_FACTOR=3 $(MAKE) -j$(JOBS) --no-print-directory VARIANT=asan suite
# TSan needs the address layout of old kernels: setarch -R where it is allowed.
check-tsan: ## shared/ between threads under ThreadSanitizer
	@$(MAKE) -j$(JOBS) --no-print-directory VARIANT=tsan tsan-suite
tsan-suite: $(filter $(B)/tests/bin/shared/%,$(UNIT_PROGRAMS))
	@setarch -R true 2>/dev/null && export TEST_WRAPPER="setarch -R"; TEST_TIME_FACTOR=3 tests/run.sh $^
check-valgrind: ## unit tests under valgrind
	@$(MAKE) --no-print-directory VARIANT=debug valgrind-suite
valgrind-suite: $(UNIT_PROGRAMS)
	@TEST_TIME_FACTOR=10 TEST_WRAPPER="valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite" \
		tests/run.sh $^
checks: | deps ## what keeps the words about the tree true (tests/checks)
	@tests/run.sh $(CHECKS)

# What a fuzzer newly finds stays in build/fuzz/found; fuzz-keep adds what widens the coverage to the tree.
FUZZ_SECONDS ?= 60
fuzz: ## fuzz each target for FUZZ_SECONDS (60)
	@$(MAKE) --no-print-directory VARIANT=fuzz fuzz-run
fuzz-run: $(FUZZERS:%=$(B)/fuzz/%)
	@for name in $(FUZZERS); do echo "== $$name, $(FUZZ_SECONDS) s"; \
		found=$(B)/found/$$name; mkdir -p $$found; \
		$(B)/fuzz/$$name -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
			-artifact_prefix=$(B)/found/crash-$$name- $$found tests/fuzz/corpus/$$name >$$found.log 2>&1 || \
			{ tail -n 60 $$found.log; exit 1; }; \
		grep -E 'stat::(number_of_executed_units|new_units_added)' $$found.log; done
fuzz-keep: ## add what `make fuzz` found to tests/fuzz/corpus
	@for name in $(FUZZERS); do \
		build/fuzz/fuzz/$$name -merge=1 tests/fuzz/corpus/$$name build/fuzz/found/$$name 2>&1 | tail -n 1; done
fuzz-seeds: $(REPLAYS) ## replay the kept seeds
	@tests/run.sh $(REPLAYS)

bench: all tools bench-tools ## measure beside nginx, HAProxy, Caddy, Apache and a Node gateway
	@tests/bench/run.sh
bench-deps: ## install what `make bench` measures against
	@tests/bench/deps.sh
bench-gate: all tools bench-tools ## the image gate and hedging: P5, P6, P8
	@tests/bench/gate.sh
bench-compare: all tools bench-tools ## P1 to P4 beside an older build (BEFORE=its build directory), or FLOW=1 beside flow off
	@tests/bench/compare.sh
bench-flow: all tools bench-tools ## the strategies of flow control against an upstream with limits, in fast time
	@tests/bench/flow.sh
bench-tools: $(BENCH_TOOLS:%=$(B)/bench/%) $(B)/bench/fast_clock.so

# ---- lint ----------------------------------------------------------------------------------------
lint: lint-warnings lint-tidy lint-cppcheck lint-analyzer format-check ## all compilers' and linters' opinions, as errors
objects: $(OBJECTS) $(TEST_OBJECTS) $(B)/bench/fast_clock.so
lint-warnings:
	@$(MAKE) -j$(JOBS) --no-print-directory VARIANT=release objects
	@$(MAKE) -j$(JOBS) --no-print-directory VARIANT=clang objects
lint-tidy:
	@$(MAKE) -j$(JOBS) --no-print-directory VARIANT=clang tidy
tidy: $(OBJECTS:%.o=%.tidy)
lint-analyzer:
	@$(MAKE) -j$(JOBS) --no-print-directory VARIANT=analyzer lint-objects
lint-objects: $(OBJECTS)
lint-cppcheck: | deps
	@mkdir -p build/cppcheck
	@cppcheck --quiet --std=c11 --language=c -D_GNU_SOURCE -I. --enable=warning,performance,portability \
		--inline-suppr --suppressions-list=tests/checks/cppcheck.txt \
		--cppcheck-build-dir=build/cppcheck --error-exitcode=1 base shared worker
C_FILES = $(filter-out %_list.h,$(shell tests/checks/files '*.c' '*.h'))
format: | deps ## clang-format over the whole tree
	@clang-format -i $(C_FILES)
format-check: | deps
	@clang-format --dry-run -Werror $(C_FILES)

coverage: ## lines that unit and process tests reach, file by file
	@$(MAKE) --no-print-directory VARIANT=coverage suite
	@gcov -n $(patsubst %,build/coverage/%.o,$(UNITS)) 2>/dev/null | awk -F"[':%]" \
		'/^File/ { f = $$2 } /^Lines/ && f ~ /^(base|shared|worker)\/.*c$$/ { printf "%6.1f %%  %s\n", $$3, f; f = "" }' | sort -n

compile_commands.json: Makefile ## for clangd and other tools
	@{ echo '['; for f in $(UNITS:%=%.c); do \
		printf '{"directory":"%s","file":"%s","command":"%s -c %s"},\n' "$(CURDIR)" $$f \
			'$(filter-out -MMD -MP,$(CC) $(CFLAGS))' $$f; done | sed '$$ s/,$$//'; echo ']'; } >$@

# ---- documents, installation ---------------------------------------------------------------------
MAN_PAGES := $(wildcard docs/*.[158])
docs: | deps ## the man pages as HTML in build/docs
	@mkdir -p build/docs
	@for page in $(MAN_PAGES); do mandoc -Thtml -O man=%N.%S.html $$page >build/docs/$${page##*/}.html; done

# The configuration holds no keys, only where they are; the user penstock must be able to read it.
install: all ## DESTDIR and prefix as usual; an existing configuration is left alone
	install -d $(addprefix $(DESTDIR),$(sbindir) $(bindir) $(docdir)/examples $(sysconfdir)/penstock/conf.d)
	install $(B)/penstockd $(DESTDIR)$(sbindir)/penstockd
	install $(B)/penstockctl $(DESTDIR)$(bindir)/penstockctl
	for page in $(MAN_PAGES); do \
		install -D -m 644 $$page $(DESTDIR)$(mandir)/man$${page##*.}/$${page##*/}; done
	install -d $(addprefix $(DESTDIR)$(systemdir)/,systemd/system sysusers.d tmpfiles.d)
	for unit in $(notdir $(wildcard systemd/*.service systemd/*.socket)); do \
		sed 's|/usr/sbin/|$(sbindir)/|g' systemd/$$unit >$(DESTDIR)$(systemdir)/systemd/system/$$unit; done
	install -m 644 systemd/penstock.sysusers $(DESTDIR)$(systemdir)/sysusers.d/penstock.conf
	install -m 644 systemd/penstock.tmpfiles $(DESTDIR)$(systemdir)/tmpfiles.d/penstock.conf
	install -m 644 $(wildcard conf/*) $(DESTDIR)$(docdir)/examples
	test -e $(DESTDIR)$(sysconfdir)/penstock/penstock.conf || \
		install -m 644 conf/penstock.conf $(DESTDIR)$(sysconfdir)/penstock/penstock.conf
	@echo "Next: systemd-sysusers penstock.conf && systemd-tmpfiles --create penstock.conf && systemctl daemon-reload"
	@echo "then $(sysconfdir)/penstock/penstock.conf, and as README.md says"
uninstall: ## take away what install laid down, but for configuration, ledger and user
	rm -f $(DESTDIR)$(sbindir)/penstockd $(DESTDIR)$(bindir)/penstockctl
	rm -f $(foreach p,$(MAN_PAGES),$(DESTDIR)$(mandir)/man$(patsubst .%,%,$(suffix $(p)))/$(notdir $(p)))
	rm -f $(addprefix $(DESTDIR)$(systemdir)/systemd/system/,$(notdir $(wildcard systemd/*.service systemd/*.socket)))
	rm -f $(addprefix $(DESTDIR)$(systemdir)/,sysusers.d/penstock.conf tmpfiles.d/penstock.conf)
	rm -f $(addprefix $(DESTDIR)$(docdir)/examples/,$(notdir $(wildcard conf/*)))
	-rmdir $(DESTDIR)$(docdir)/examples $(DESTDIR)$(docdir)
	@echo "Left: $(sysconfdir)/penstock, /var/lib/penstock, the user penstock; until the next boot /dev/shm/penstock-* and its semaphore"
deb:
	@echo "There is no Debian package yet; \`make install DESTDIR=...\` lays the files out as one would." >&2; exit 1
clean: ## remove build/
	rm -rf build

# ---- rules ---------------------------------------------------------------------------------------
# A target appears under its name only when it is complete; objects are never deleted as intermediate.
.DELETE_ON_ERROR:
.SECONDARY:
# `make V=1` shows the commands.
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $@)

$(B)/%.o: %.c Makefile | deps
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CFLAGS) -c $< -o $@
$(LIB): $(UNITS:%=$(B)/%.o)
	@rm -f $@
	$(Q)ar rcs $@ $^
$(B)/penstockd: $(B)/$(MAIN_penstockd).o $(LIB)
$(B)/penstockctl: $(B)/$(MAIN_penstockctl).o $(LIB)
$(PROGRAMS:%=$(B)/%):
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(B)/libtools.a: $(TOOL_PARTS:%=$(B)/%.o)
	@rm -f $@
	$(Q)ar rcs $@ $^
$(B)/tools/%: $(B)/tests/tools/%.o $(B)/libtools.a $(LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) $^ $(LDLIBS) -lm -o $@
$(B)/bench/%: $(B)/tests/bench/%.o $(BENCH_PARTS:%=$(B)/%.o) $(LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) $^ $(LDLIBS) -lm -o $@
$(B)/bench/fast_clock.so: tests/bench/fast_clock.c Makefile | deps
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(filter-out -fPIE,$(CFLAGS)) -U_FORTIFY_SOURCE -fPIC -shared $< -o $@
# fakes: the test's program also needs the fake's object, which comes before the library
$(patsubst %,$(B)/tests/bin/worker/test_%,accept admission attempt attempt_book attempts candidates flow_call flow_head flow_usage heartbeat identify lanes receive relay respond route settle upstream upstream_head): \
	$(B)/tests/fakes/fastcgi.o
# a test program of several files
$(B)/tests/bin/scenarios/run_scenarios: $(SCENARIO_PARTS:%=$(B)/%.o)
$(FUZZERS:%=$(B)/tests/bin/fuzz/%): $(B)/tests/bin/fuzz/%: $(B)/tests/fuzz/%.o $(B)/tests/fuzz/replay.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(B)/tests/bin/%: $(B)/tests/%.o $(B)/libtools.a $(LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) $(filter %.o,$^) $(filter %.a,$^) -lcmocka $(LDLIBS) -lm -o $@
$(B)/fuzz/%: $(B)/tests/fuzz/%.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(B)/%.tidy: $(B)/%.o .clang-tidy
	$(call say,TIDY)
	$(Q)clang-tidy --quiet --warnings-as-errors='*' $*.c -- $(filter-out -MMD -MP -Werror,$(CFLAGS)) 2>/dev/null
	@touch $@

-include $(shell find $(B) -name '*.d' 2>/dev/null)
