/* test_scribe_config.c - the options in force as rows, without passwords. */
#include "tests/worker/scribe_fixture.h"
#include "worker/scribe_config.h"

static void expect_masked(const char *text, const char *expected)
{
    char copy[128];

    (void)text_copy(copy, sizeof copy, text);
    scribe_config_mask(copy);
    assert_string_equal(copy, expected);
}

static void passwords_in_urls_are_masked_L7(void **state)
{
    (void)state;
    expect_masked("", "");
    expect_masked("10", "10");
    expect_masked("https://a.example/v1?x=@y", "https://a.example/v1?x=@y");
    expect_masked("https://joe:pa55@a.example:8443/x", "https://***@a.example:8443/x");
    expect_masked("http://user@a@b, http://c:d@e/@", "http://***@b, http://***@e/@");
    expect_masked("http://j@a", "http://*@a");
    expect_masked("x://", "x://");
    expect_masked("://@", "://@");
}

static int open_ledger(void **state)
{
    struct stage *stage;

    assert_int_equal(stage_open(state), 0);
    stage = *state;
    assert_non_null(open_again(stage->ledger));
    look(stage->ledger);
    return 0;
}

static void each_option_is_a_row_with_its_origin_L1(void **state)
{
    struct stage *stage = *state;

    stage_reload(stage, "log_level = debug\n[image_concurrency]\nimage_models = a*, b*\n");
    assert_true(
        scribe_config_write(stage->ledger->ledger, stage->loading.options, ARRIVED_WALL_MS));
    assert_string_equal(ask(stage->ledger, "SELECT value, origin FROM show_config"
                                           " WHERE key = 'penstock.log_level'"),
                        "debug|t.conf:5");
    assert_string_equal(ask(stage->ledger, "SELECT value FROM show_config"
                                           " WHERE key = 'image_concurrency.image_models'"),
                        "a*, b*");
    assert_string_equal(ask(stage->ledger, "SELECT value, origin FROM show_config"
                                           " WHERE key = 'penstock.reserve_percent'"),
                        "25|default");
    assert_string_equal(ask(stage->ledger, "SELECT * FROM sources"),
                        "a|https://a.example|openai|a|0|2026-11-30T10:00:00.000Z");
    stage_reload(stage, "[source b]\nbase_url = https://b.example\ndialect = dashscope\n"
                        "quota_group = acme\nmax_in_flight = 20\n");
    assert_true(
        scribe_config_write(stage->ledger->ledger, stage->loading.options, ARRIVED_WALL_MS));
    assert_string_equal(ask(stage->ledger, "SELECT dialect, quota_group, max_in_flight FROM sources"
                                           " WHERE name = 'b'"),
                        "dashscope|acme|20");
}

static void what_is_not_in_force_any_more_goes(void **state)
{
    struct stage *stage = *state;

    stage_reload(stage, "[source b]\nbase_url = https://b.example\n");
    assert_true(
        scribe_config_write(stage->ledger->ledger, stage->loading.options, ARRIVED_WALL_MS));
    stage_reload(stage, "");
    assert_true(
        scribe_config_write(stage->ledger->ledger, stage->loading.options, ARRIVED_WALL_MS));
    assert_string_equal(ask(stage->ledger, "SELECT name FROM sources"), "a");
    assert_string_equal(ask(stage->ledger, "SELECT count(*) FROM config WHERE key LIKE '%b%.%url'"),
                        "0");
}

static void a_locked_file_leaves_the_rows_as_they_were(void **state)
{
    struct stage *stage = *state;
    sqlite3 *other = NULL;

    assert_true(
        scribe_config_write(stage->ledger->ledger, stage->loading.options, ARRIVED_WALL_MS));
    assert_int_equal(sqlite3_open(stage->ledger->path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    assert_false(
        scribe_config_write(stage->ledger->ledger, stage->loading.options, ARRIVED_WALL_MS));
    assert_true(ledger_is_busy(stage->ledger->ledger));
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    assert_int_equal(ask_number(stage->ledger, "SELECT count(*) FROM sources"), 1);
}

int main(void)
{
#define TEST_STAGE(function) cmocka_unit_test_setup_teardown(function, open_ledger, stage_close)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passwords_in_urls_are_masked_L7),
        TEST_STAGE(each_option_is_a_row_with_its_origin_L1),
        TEST_STAGE(what_is_not_in_force_any_more_goes),
        TEST_STAGE(a_locked_file_leaves_the_rows_as_they_were),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
