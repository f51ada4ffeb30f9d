/* test_options_secret.c - keys come from where they are kept, and never appear in any text of ours.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY "sk-0123456789"

static char folder[200]; /* absolute; holds the file "key" */
static char key_path[220];

static int make_folder(void **state)
{
    char here[100];

    (void)state;
    if (!getcwd(here, sizeof here))
        return -1;
    (void)mkdir("build", 0777);
    (void)snprintf(folder, sizeof folder, "%s/build/test-secret-XXXXXX", here);
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(key_path, sizeof key_path, "%s/key", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(key_path);
    return rmdir(folder);
}

static void write_key(const char *bytes, size_t length, mode_t mode)
{
    int fd = open(key_path, O_CREAT | O_WRONLY | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, length), (ssize_t)length);
    assert_int_equal(fchmod(fd, mode), 0);
    (void)close(fd);
}

/* Load a source whose key is this reference. */
static struct loading load_key(const char *reference, const char *const *environment)
{
    char conf[600];

    (void)snprintf(conf, sizeof conf, WITH_SOURCE "api_key = %s\n", reference);
    return load_with(conf, environment);
}

static void check_key(const char *reference, const char *const *environment, const char *key)
{
    struct loading loading = load_key(reference, environment);

    assert_string_equal(report_of(&loading), "");
    assert_non_null(loading.options);
    assert_string_equal(loading.options->sources[0].api_key, key);
    unload(&loading);
}

static void check_refusal(const char *reference, const char *const *environment,
                          const char *sentence)
{
    struct loading loading = load_key(reference, environment);
    char report[1024];

    (void)snprintf(report, sizeof report, "t.conf:3: source a.api_key: %s\n", sentence);
    assert_string_equal(report_of(&loading), report);
    assert_null(loading.options);
    unload(&loading);
}

static void test_literal_is_refused_and_not_repeated(void **state)
{
    (void)state;
    check_refusal(KEY, NULL,
                  "a secret must not stand here itself; allowed: @credential:NAME, @file:PATH or "
                  "@env:NAME, which name where it is kept");
    check_refusal("@vault:x", NULL,
                  "a secret must not stand here itself; allowed: @credential:NAME, @file:PATH or "
                  "@env:NAME, which name where it is kept");
}

static void test_file(void **state)
{
    char reference[240];

    (void)state;
    (void)snprintf(reference, sizeof reference, "@file:%s", key_path);
    write_key(KEY, strlen(KEY), 0600);
    check_key(reference, NULL, KEY);
    write_key(KEY "\n", strlen(KEY) + 1, 0640);
    check_key(reference, NULL, KEY);
    write_key(KEY "\r\n", strlen(KEY) + 2, 0400);
    check_key(reference, NULL, KEY);
}

static void test_readable_file_is_a_warning(void **state)
{
    char reference[240];
    struct loading loading;

    (void)state;
    (void)snprintf(reference, sizeof reference, "@file:%s", key_path);
    write_key(KEY, strlen(KEY), 0644);
    loading = load_key(reference, NULL);
    assert_non_null(loading.options);
    assert_int_equal(
        strncmp(report_of(&loading),
                "t.conf:3: warning: source a.api_key: every user of this host can read ", 70),
        0);
    assert_string_equal(loading.options->sources[0].api_key, KEY);
    unload(&loading);
}

static void test_unusable_contents(void **state)
{
    static const struct {
        const char *bytes;
        size_t length;
        const char *sentence;
    } cases[] = {
        {"", 0, "the secret is empty"},
        {"\n", 1, "the secret is empty"},
        {"a b\n", 4,
         "the secret has a blank or another character that no key has; allowed: one line of plain "
         "ASCII"},
        {"a\r\nX-Evil: 1\n", 13,
         "the secret has a blank or another character that no key has; allowed: one line of plain "
         "ASCII"},
        {"a\0b", 3,
         "the secret has a blank or another character that no key has; allowed: one line of plain "
         "ASCII"},
        {"a\n\n", 3,
         "the secret has a blank or another character that no key has; allowed: one line of plain "
         "ASCII"},
    };
    char reference[240];

    (void)state;
    (void)snprintf(reference, sizeof reference, "@file:%s", key_path);
    for (size_t i = 0; i < LENGTH(cases); i++) {
        write_key(cases[i].bytes, cases[i].length, 0600);
        check_refusal(reference, NULL, cases[i].sentence);
    }
}

static void test_unreadable_files(void **state)
{
    static char large[OPTION_SECRET_MAX + 1];
    char reference[240];
    struct loading loading;

    (void)state;
    check_refusal("@file:/nonexistent/key", NULL,
                  "the secret /nonexistent/key cannot be read: No such file or directory");
    check_refusal("@file:/", NULL, "the secret / cannot be read: it is a directory, not a file");
    check_refusal("@file:key", NULL, "the secret's path is not absolute; allowed: @file:/PATH");
    check_refusal("@file:", NULL, "the secret's path is not absolute; allowed: @file:/PATH");
    (void)snprintf(reference, sizeof reference, "@file:%s", key_path);
    memset(large, 'x', sizeof large);
    write_key(large, sizeof large, 0600);
    loading = load_key(reference, NULL);
    assert_non_null(strstr(report_of(&loading), "it is larger than a file of its kind can be"));
    assert_null(loading.options);
    unload(&loading);
}

static void test_variable(void **state)
{
    static const char *const environment[] = {"OPENAI_KEY=" KEY, "EMPTY=", "SPACED=a b", NULL};

    (void)state;
    check_key("@env:OPENAI_KEY", environment, KEY);
    check_refusal("@env:EMPTY", environment, "the variable EMPTY is not set or empty");
    check_refusal("@env:OTHER", environment, "the variable OTHER is not set or empty");
    check_refusal("@env:", environment, "the variable  is not set or empty");
    check_refusal("@env:SPACED", environment,
                  "the secret has a blank or another character that no key has; allowed: one line "
                  "of plain ASCII");
}

static void test_credential(void **state)
{
    char directory[240];
    const char *const environment[] = {directory, NULL};

    (void)state;
    (void)snprintf(directory, sizeof directory, "CREDENTIALS_DIRECTORY=%s", folder);
    write_key(KEY "\n", strlen(KEY) + 1, 0444); /* the directory protects it */
    check_key("@credential:key", environment, KEY);
    check_refusal(
        "@credential:key", NULL,
        "there is no $CREDENTIALS_DIRECTORY: credentials exist only inside a systemd unit "
        "with LoadCredential=; allowed elsewhere: @file:PATH or @env:NAME");
    check_refusal("@credential:../key", environment,
                  "not the name of a credential; allowed: @credential:NAME as in the unit's "
                  "LoadCredential=NAME:PATH");
    check_refusal("@credential:", environment,
                  "not the name of a credential; allowed: @credential:NAME as in the unit's "
                  "LoadCredential=NAME:PATH");
    check_refusal("@credential:..", environment,
                  "not the name of a credential; allowed: @credential:NAME as in the unit's "
                  "LoadCredential=NAME:PATH");
}

/* N6: the dump shows the reference, never the key. */
static void test_N6_dump_masks_the_key(void **state)
{
    static const char *const environment[] = {"OPENAI_KEY=" KEY, NULL};
    struct loading loading = load_key("@env:OPENAI_KEY", environment);
    char *dump = dump_of(loading.options);

    (void)state;
    assert_non_null(strstr(dump, "source a.api_key = @env:OPENAI_KEY"));
    assert_null(strstr(dump, KEY));
    free(dump);
    unload(&loading);
}

static void test_nothing_is_followed_when_told_not_to(void **state)
{
    static const char conf[] =
        WITH_SOURCE "api_key = @file:/nonexistent/key\n"
                    "[source b]\nbase_url = https://b.example\n"
                    "api_key = @credential:key\n"
                    "[source c]\nbase_url = https://c.example\n"
                    "api_key = @env:NOT_THERE\n" ROUTE_PAST("a") ROUTE_PAST("b") ROUTE_PAST("c");
    struct options_input input = {.path = "t.conf", .bytes = conf, .length = sizeof conf - 1};
    struct options_surroundings around = {.environment = NULL, .read_secrets = false};
    struct text report;
    struct options *options = NULL;

    (void)state;
    text_init(&report, 4096);
    assert_true(options_load_inputs(&input, 1, &around, &report, &options));
    assert_string_equal(text_string(&report), "");
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(options->sources[i].api_key, "");
    options_free(options);
    text_release(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_literal_is_refused_and_not_repeated),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_readable_file_is_a_warning),
        cmocka_unit_test(test_unusable_contents),
        cmocka_unit_test(test_unreadable_files),
        cmocka_unit_test(test_variable),
        cmocka_unit_test(test_credential),
        cmocka_unit_test(test_N6_dump_masks_the_key),
        cmocka_unit_test(test_nothing_is_followed_when_told_not_to),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
