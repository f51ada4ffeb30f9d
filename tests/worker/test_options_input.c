/* test_options_input.c - sections, repeated keys, conf.d and its order, files that cannot be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALLOWED                                                                                    \
    "; allowed: [penstock], [image_concurrency], [source NAME], [scope NAME], [route NAME]"
#define NAME "allowed: 1 to 63 letters, digits, - and _, with a letter or digit at both ends\n"

static void test_sections_that_are_wrong(void **state)
{
    static const struct load_case cases[] = {
        {WITH_SOURCE "[pensotck]\nx = 1\ny = 2\n",
         "t.conf:3: unknown section [pensotck]" ALLOWED "; did you mean \"penstock\"?\n", true},
        {WITH_SOURCE "[PENSTOCK]\n",
         "t.conf:3: unknown section [PENSTOCK]" ALLOWED "; did you mean \"penstock\"?\n", true},
        {WITH_SOURCE "[scop chat]\n",
         "t.conf:3: unknown section [scop]" ALLOWED "; did you mean \"scope\"?\n", true},
        {WITH_SOURCE "[penstock x]\n", "t.conf:3: the section takes no name; allowed: [penstock]\n",
         true},
        {WITH_SOURCE "[source]\n", "t.conf:3: [source NAME] needs a name, not \"\"; " NAME, true},
        {WITH_SOURCE "[source a b]\n", "t.conf:3: [source NAME] needs a name, not \"a b\"; " NAME,
         true},
        {WITH_SOURCE "[route -a]\n", "t.conf:3: [route NAME] needs a name, not \"-a\"; " NAME,
         true},
        {WITH_SOURCE "[route a.b]\n", "t.conf:3: [route NAME] needs a name, not \"a.b\"; " NAME,
         true},
        {WITH_SOURCE "[source PENSTOCK]\n",
         "t.conf:3: a section cannot be called PENSTOCK; take another name\n", true},
        {WITH_SOURCE "[source Penstock]\n",
         "t.conf:3: a section cannot be called PENSTOCK; take another name\n", true},
        {"a = 1\nb = 2\n" WITH_SOURCE, "t.conf:1: a value stands before the first [section]\n",
         true},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++)
        assert_load_case(&cases[i]);
}

static void test_keys_that_are_wrong(void **state)
{
    static const struct load_case cases[] = {
        {WITH_SOURCE "[penstock]\nworkrs = 1",
         "t.conf:4: penstock.workrs: unknown option; did you mean \"workers\"?\n", true},
        {WITH_SOURCE "[penstock]\nWorkers = 1",
         "t.conf:4: penstock.Workers: unknown option; did you mean \"workers\"?\n", true},
        {WITH_SOURCE "[penstock]\nenabled = true",
         "t.conf:4: penstock.enabled: unknown option; it belongs in [image_concurrency]\n", true},
        {WITH_SOURCE "zzz = sk-secret", "t.conf:3: source a.zzz: unknown option\n", true},
        {WITH_SOURCE "base_url = https://b",
         "t.conf:3: source a.base_url: set twice in this file; the first time in line 2\n", true},
        {WITH_SOURCE "[penstock]\n[source a]\nbase_url = https://b",
         "t.conf:5: source a.base_url: set twice in this file; the first time in line 2\n", true},
        {WITH_SOURCE "junk",
         "t.conf:3: source a: this is neither [section], key = value nor a comment; write one of "
         "them, a comment with ; or # before it\n",
         true},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++)
        assert_load_case(&cases[i]);
}

static void test_an_option_without_equals_sign_is_known_by_its_name(void **state)
{
#define NO_EQUALS ": there is no = between the option and its value; write "
    static const struct load_case cases[] = {
        {WITH_SOURCE "[image_concurrency]\noverflow_mode wait\nmax_waiting_requests = 5\n",
         "t.conf:4: image_concurrency.overflow_mode" NO_EQUALS
         "overflow_mode = VALUE; allowed: reject or wait\n",
         true},
        {WITH_SOURCE "[penstock]\nworkers: 4\nthreads",
         "t.conf:4: penstock.workers" NO_EQUALS "workers = VALUE; allowed: auto, or 1 to 100\n"
         "t.conf:5: penstock.threads" NO_EQUALS "threads = VALUE; allowed: auto, or 1 to 2000\n",
         true},
        /* never what follows it: that may be a secret */
        {WITH_SOURCE "api_key sk-secret",
         "t.conf:3: source a.api_key" NO_EQUALS
         "api_key = VALUE; allowed: @credential:NAME, @file:PATH or @env:NAME\n",
         true},
        {WITH_SOURCE "api_key = \"sk-secret",
         "t.conf:3: source a.api_key: the closing quote is missing\n", true},
        /* it is there, though nobody can tell what it says */
        {WITH_SOURCE "[scope s]\nsources a\n[route r]\npath = /v1/\nscope s\n",
         "t.conf:4: scope s.sources" NO_EQUALS
         "sources = VALUE; allowed: entries separated by commas\n"
         "t.conf:7: route r.scope" NO_EQUALS "scope = VALUE; allowed: text\n",
         true},
        {"base_url x\n" WITH_SOURCE,
         "t.conf:1: this is neither [section], key = value nor a comment; write one of them, a "
         "comment with ; or # before it\n",
         true},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++)
        assert_load_case(&cases[i]);
}

static void test_what_stands_in_a_section_with_a_bad_head_belongs_to_none(void **state)
{
    static const struct load_case cases[] = {
        {WITH_SOURCE "[image_concurrency\nenabled = true\njunk = 1\n[penstock]\nworkers = 2\n",
         "t.conf:3: the closing ] of the section is missing; write [section] or [section NAME]\n",
         true},
        {"[source a\nbase_url = https://a.example\n",
         "t.conf:1: the closing ] of the section is missing; write [section] or [section NAME]\n",
         true},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++)
        assert_load_case(&cases[i]);
}

static void test_all_errors_are_told_at_once(void **state)
{
    struct loading loading = load("junk\n[penstock]\nworkers = 0\nnope = 1\n[imag]\n[source a]\n"
                                  "api_key = sk-secret\n[route r]\nsource = b\n");
    size_t lines = 0;

    (void)state;
    for (const char *at = report_of(&loading); *at; at++)
        lines += *at == '\n';
    assert_int_equal(lines, 7);
    assert_null(strstr(report_of(&loading), "secret\n"));
    assert_null(strstr(report_of(&loading), "sk-"));
    assert_null(loading.options);
    unload(&loading);
}

static void test_sections_are_bounded(void **state)
{
    struct text conf;
    struct loading loading;

    (void)state;
    text_init(&conf, OPTIONS_SECTIONS_MAX * 64);
    text_append_string(&conf, WITH_SOURCE);
    for (unsigned i = 0; i < OPTIONS_SECTIONS_MAX; i++)
        text_printf(&conf, "[route r%u]\nsource = a\npath = /%u\n", i, i);
    loading = load(text_string(&conf));
    assert_string_equal(report_of(&loading),
                        "t.conf:3072: too many sections; allowed: 1024 [source], [scope] and "
                        "[route]\n");
    unload(&loading);
    text_release(&conf);
}

/* ---- real files ------------------------------------------------------------------------------ */

static char folder[] = "build/test-conf-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    (void)mkdir("build", 0777);
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    return mkdtemp(folder) ? 0 : -1;
}

static const char *path_of(const char *name)
{
    static char path[200];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *bytes)
{
    int fd = open(path_of(name), O_CREAT | O_WRONLY | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, strlen(bytes)), (ssize_t)strlen(bytes));
    (void)close(fd);
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"conf.d/10-a.conf", "conf.d/20-b.conf", "conf.d/.h.conf",
                                        "conf.d/readme",    "conf.d/c.conf",    "p.conf"};

    (void)state;
    for (size_t i = 0; i < LENGTH(names); i++)
        (void)remove(path_of(names[i]));
    (void)remove(path_of("conf.d"));
    return rmdir(folder);
}

/* The report with the folder's name taken out. */
static struct loading load_folder(void)
{
    struct loading loading = {.options = NULL};

    text_init(&loading.report, 65536);
    if (!options_load(path_of("p.conf"), &loading.report, &loading.options))
        loading.options = NULL;
    for (char *at = loading.report.bytes; at && (at = strstr(at, folder)) != NULL;)
        memmove(at, at + strlen(folder) + 1, strlen(at + strlen(folder) + 1) + 1);
    return loading;
}

static void test_drop_ins_override_in_sorted_order(void **state)
{
    struct loading loading;
    char *dump;

    (void)state;
    write_file("p.conf",
               WITH_SOURCE "[penstock]\nworkers = 2\nthreads = 64\nreserve_percent = 10\n");
    assert_int_equal(mkdir(path_of("conf.d"), 0700), 0);
    write_file("conf.d/20-b.conf", "[penstock]\nworkers = 5\n");
    write_file("conf.d/10-a.conf",
               "[penstock]\nworkers = 4\nthreads = 65\n[source a]\ntimeout_s = 9\n");
    write_file("conf.d/.h.conf", "junk");
    write_file("conf.d/readme", "junk");
    loading = load_folder();
    assert_string_equal(report_of(&loading), "");
    assert_non_null(loading.options);
    assert_int_equal(loading.options->penstock.workers, 5);
    assert_int_equal(loading.options->penstock.threads, 65);
    assert_int_equal(loading.options->penstock.reserve_percent, 10);
    assert_int_equal(loading.options->source_count, 1);
    assert_int_equal(loading.options->sources[0].timeout_ms, 9000);
    dump = dump_of(loading.options);
    assert_non_null(strstr(dump, "conf.d/20-b.conf:2]\n"));
    assert_non_null(strstr(dump, "conf.d/10-a.conf:3]\n"));
    free(dump);
    unload(&loading);
}

static void test_errors_in_drop_ins_name_their_file(void **state)
{
    struct loading loading;

    (void)state;
    write_file("p.conf", WITH_SOURCE);
    assert_int_equal(mkdir(path_of("conf.d"), 0700), 0);
    write_file("conf.d/10-a.conf", "\n[penstock]\nworkers = none\n");
    assert_int_equal(mkdir(path_of("conf.d/c.conf"), 0700), 0);
    loading = load_folder();
    assert_string_equal(report_of(&loading),
                        "conf.d/c.conf: cannot be read: it is a directory, not a file; allowed: a "
                        "text file of at most 1 MiB\n"
                        "conf.d/10-a.conf:3: penstock.workers: \"none\" is not a whole number; "
                        "allowed: auto, or 1 to 100\n");
    assert_null(loading.options);
    unload(&loading);
}

static void test_missing_file_and_drop_in_folder_that_is_none(void **state)
{
    struct loading loading = load_folder();

    (void)state;
    assert_non_null(strstr(report_of(&loading),
                           "p.conf: cannot be read: No such file or directory; "
                           "allowed: a text file of at most 1 MiB\n"));
    assert_null(loading.options);
    unload(&loading);
    write_file("p.conf", WITH_SOURCE);
    write_file("conf.d", "");
    loading = load_folder();
    assert_string_equal(report_of(&loading), "conf.d: cannot be read: Not a directory\n");
    unload(&loading);
}

static void test_large_file_is_refused(void **state)
{
    struct loading loading;

    (void)state;
    write_file("p.conf", WITH_SOURCE);
    assert_int_equal(truncate(path_of("p.conf"), (1 << 20) + 1), 0);
    loading = load_folder();
    assert_non_null(strstr(report_of(&loading),
                           "p.conf: cannot be read: it is larger than a file of "
                           "its kind can be; allowed: a text file of at most "
                           "1 MiB\n"));
    unload(&loading);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sections_that_are_wrong),
        cmocka_unit_test(test_keys_that_are_wrong),
        cmocka_unit_test(test_an_option_without_equals_sign_is_known_by_its_name),
        cmocka_unit_test(test_what_stands_in_a_section_with_a_bad_head_belongs_to_none),
        cmocka_unit_test(test_all_errors_are_told_at_once),
        cmocka_unit_test(test_sections_are_bounded),
        cmocka_unit_test_setup_teardown(test_drop_ins_override_in_sorted_order, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_errors_in_drop_ins_name_their_file, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_missing_file_and_drop_in_folder_that_is_none,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_large_file_is_refused, make_folder, remove_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
