# Penstock: see README.md. Every variant builds in build/<variant>/; nothing needs `make clean`.
#   make run | check | check-processes | check-front | check-asan | check-tsan | fuzz | bench | lint ...
#   `make help` lists all.

VARIANT ?= release
B := build/$(VARIANT)

# ---- what there is, in reading order -------------------------------------------------------------
BASE := check clock hash text parse log json_scan
SHARED := segment lock roster slots wait_queue leases gate journal counters snapshot ledger
# the life of one request first, in the order of the table of steps in worker/request.c
STEPS := accept identify intent route admission attempts relay respond settle
WORKER := request $(STEPS) ticket fault multipart sse pictures spool client_watch bell \
          fastcgi http_client options options_file options_check serve scribe status metrics monitor master activation
PROGRAMS := penstockd penstockctl
MAIN_penstockd := worker/main
MAIN_penstockctl := worker/control

TOOLS := $(patsubst tests/tools/%.c,%,$(wildcard tests/tools/*.c))
FUZZERS := $(patsubst tests/fuzz/fuzz_%.c,fuzz_%,$(wildcard tests/fuzz/fuzz_*.c))
UNIT_TESTS := $(patsubst tests/%.c,%,$(wildcard tests/base/test_*.c tests/shared/test_*.c tests/worker/test_*.c))
PROCESS_TESTS := $(sort $(wildcard tests/processes/*.sh))

UNITS := $(BASE:%=base/%) $(SHARED:%=shared/%) $(WORKER:%=worker/%)
LIB := $(B)/libpenstock.a

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

.DEFAULT_GOAL := all
.PHONY: all help run check check-quick check-unit check-processes check-front check-asan check-tsan \
	check-valgrind fuzz bench bench-deps bench-gate lint checks format format-check docs install deb deps coverage clean

all: $(PROGRAMS:%=$(B)/%) ## build both programs
tools: $(TOOLS:%=$(B)/tools/%) ## build the test tools

# Whole objects are kept; a rule's output appears under its name only when it is complete.
.DELETE_ON_ERROR:
.SECONDARY:

$(B)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@

$(LIB): $(UNITS:%=$(B)/%.o)
	@rm -f $@
	ar rcs $@ $^

$(B)/penstockd: $(B)/worker/main.o $(LIB)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(B)/penstockctl: $(B)/worker/control.o $(LIB)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(B)/tools/%: $(B)/tests/tools/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -lm -o $@
$(B)/tests/bin/%: $(B)/tests/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $^ -lcmocka $(LDLIBS) -o $@
$(B)/fuzz/%: $(B)/tests/fuzz/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@

include Makefile.targets
-include $(shell find $(B) -name '*.d' 2>/dev/null)
