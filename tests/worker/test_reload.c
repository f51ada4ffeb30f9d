/* test_reload.c - may a configuration follow the one in force? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above first */
#include <cmocka.h>

#include "worker/reload.h"

#include "shared/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <unistd.h>

static char directory[64];
static char gate[32];
static struct options *options;

static struct options *load(const char *listen)
{
    struct options *loaded = NULL;
    struct text report;
    char path[96];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/penstock.conf", directory);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fprintf(file,
                        "[penstock]\nlisten = %s\nstate_directory = %s\nruntime_directory = %s\n"
                        "[image_concurrency]\ngate = %s\n",
                        listen, directory, directory, gate) > 0);
    assert_int_equal(fclose(file), 0);
    text_init(&report, 4096);
    assert_true(options_load(path, &report, &loaded));
    text_release(&report);
    return loaded;
}

static int make(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof directory, "/tmp/penstock-reload.XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    (void)snprintf(gate, sizeof gate, "reload-%d", getpid());
    options = load("unix:/one");
    return unsetenv("PENSTOCK_RELOAD_OF");
}

static int drop(void **state)
{
    const struct segment_place place = {.gate = gate, .runtime_directory = directory};
    struct segment segment;
    struct text why;
    char command[160];

    (void)state;
    options_free(options);
    text_init(&why, 800);
    if (segment_attach(&segment, &place, &why)) {
        (void)semctl(segment.area->core.semaphore_id, 0, IPC_RMID);
        segment_detach(&segment);
    }
    text_release(&why);
    segment_unlink(gate);
    (void)snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}

static void set_in_force(const struct options *in_force)
{
    struct text fixed;

    text_init(&fixed, 65536);
    options_fixed(in_force, &fixed);
    assert_int_equal(setenv("PENSTOCK_RELOAD_OF", text_string(&fixed), 1), 0);
    text_release(&fixed);
}

static void expect(const struct options *wanted, bool may, const char *reason)
{
    struct text why;

    text_init(&why, 4096);
    assert_int_equal(reload_may_follow(wanted, &why), may);
    assert_non_null(strstr(text_string(&why), reason));
    assert_int_equal(*reason == '\0', why.length == 0);
    text_release(&why);
}

static void outside_a_reload_all_is_allowed(void **state)
{
    (void)state;
    expect(options, true, "");
}

static void what_only_a_restart_changes_is_named(void **state)
{
    struct options *other;

    (void)state;
    set_in_force(options);
    expect(options, true, "");
    other = load("unix:/other");
    expect(other, false,
           "penstock.listen = unix:/other: only a restart changes this; in force is unix:/one\n");
    options_free(other);
}

static void an_option_that_the_old_program_lacks_is_no_change(void **state)
{
    (void)state;
    assert_int_equal(setenv("PENSTOCK_RELOAD_OF", "penstock.something = else\n", 1), 0);
    expect(options, true, "");
}

/* M8: as after an upgrade to a program of another layout. */
static void a_segment_it_could_not_use_is_found_out_before(void **state)
{
    const struct segment_place place = {.gate = gate, .runtime_directory = directory};
    struct segment segment;
    struct text why;

    (void)state;
    text_init(&why, 800);
    assert_true(segment_attach(&segment, &place, &why));
    set_in_force(options);
    expect(options, true, "");
    segment.area->layout.layout_version++;
    expect(options, false, "layout");
    segment.area->layout.layout_version--;
    segment_detach(&segment);
    text_release(&why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(outside_a_reload_all_is_allowed, make, drop),
        cmocka_unit_test_setup_teardown(what_only_a_restart_changes_is_named, make, drop),
        cmocka_unit_test_setup_teardown(an_option_that_the_old_program_lacks_is_no_change, make,
                                        drop),
        cmocka_unit_test_setup_teardown(a_segment_it_could_not_use_is_found_out_before, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
