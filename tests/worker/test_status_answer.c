/* test_status_answer.c - who is answered what on the status socket (O1, O3, O4, M11). */
#include "tests/shared/gate_fixture.h"

#include "shared/journal.h"
#include "shared/ledger.h"
#include "shared/sources.h"
#include "worker/status_answer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

static struct segment segment;
static struct gate gate;
static struct options *options;
static struct status_house house;
static struct status_answer answer;

static int set_up(void **state)
{
    struct text report;

    (void)state;
    fixture_open(&segment, &gate, 2, 5);
    text_init(&report, 10000);
    assert_true(options_load(NULL, &report, &options));
    text_release(&report);
    house = (struct status_house){.gate = &gate, .options = options, .master_pidfd = -1};
    status_answer_init(&answer);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    status_answer_release(&answer);
    options_free(options);
    fixture_close(&segment);
    return 0;
}

static struct status_question question(const char *method, const char *uri)
{
    return (struct status_question){
        .method = method, .uri = uri, .accept = "", .remote_address = "", .forwarded_for = ""};
}

static int ask(const struct status_question *asked)
{
    status_answer_release(&answer);
    status_answer_init(&answer);
    status_answer_make(asked, &house, &answer);
    return answer.status;
}

static int get(const char *uri)
{
    struct status_question asked = question("GET", uri);

    return ask(&asked);
}

static int control(const char *uri)
{
    struct status_question asked = question("POST", uri);

    asked.control = asked.trusted = true;
    return ask(&asked);
}

static const char *body(void)
{
    return text_string(&answer.body);
}

static void every_page_is_found_below_any_prefix(void **state)
{
    (void)state;
    assert_int_equal(get("/penstock/ping"), 200);
    assert_string_equal(body(), "pong\n");
    assert_int_equal(get("/ai/penstock/ping?x"), 200);
    assert_int_equal(get("/penstock/status"), 200);
    assert_non_null(strstr(body(), "0 of 2 in use"));
    assert_string_equal(answer.content_type, "text/plain; charset=utf-8");
    assert_int_equal(get("/penstock/status?json"), 200);
    assert_string_equal(answer.content_type, "application/json");
    assert_int_equal(body()[0], '{');
    assert_int_equal(get("/penstock/status?full&html"), 200);
    assert_string_equal(answer.content_type, "text/html; charset=utf-8");
    assert_int_equal(get("/penstock/status?queue"), 200);
    assert_null(strstr(body(), "generation:"));
}

static void o4_openmetrics_by_accept_or_by_name(void **state)
{
    struct status_question asked = question("GET", "/penstock/metrics");

    (void)state;
    assert_int_equal(ask(&asked), 200);
    assert_null(strstr(body(), "# EOF"));
    asked.accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    assert_int_equal(ask(&asked), 200);
    assert_non_null(strstr(body(), "# EOF\n"));
    assert_int_equal(get("/penstock/metrics?openmetrics"), 200);
    assert_non_null(strstr(body(), "# EOF\n"));
    assert_int_equal(get("/penstock/status?openmetrics"), 200);
    assert_non_null(strstr(answer.content_type, "openmetrics"));
}

static void what_is_not_there_is_an_error_object(void **state)
{
    struct status_question asked = question("PUT", "/penstock/status");
    static const char *const nowhere[] = {
        "/", "", "/penstock", "/penstock/statusx", "/penstock/status/", "/?/penstock/status"};

    (void)state;
    for (size_t i = 0; i < LENGTH(nowhere); i++) {
        assert_int_equal(get(nowhere[i]), 404);
        assert_int_equal(strncmp(body(), "{\"error\":{\"message\":", 20), 0);
        assert_non_null(strstr(body(), "\"param\":null,\"code\":\"penstock_no_page\"}}"));
    }
    assert_int_equal(ask(&asked), 405);
    assert_string_equal(answer.allow, "GET, HEAD"); /* RFC 9110, 15.5.6 */
    assert_non_null(strstr(body(), "\"code\":\"penstock_method\"}}"));
    asked.method = "HEAD";
    assert_int_equal(ask(&asked), 200);
    assert_null(answer.allow);
}

static void o3_only_local_clients_are_answered(void **state)
{
    static const struct {
        const char *remote, *forwarded;
        int status;
    } rows[] = {
        {"127.0.0.1", "", 200},
        {"127.8.9.1", "127.0.0.1, ::1", 200},
        {"::1", "", 200},
        {"::ffff:127.0.0.1", "", 200},
        {"unix:", "", 200},
        {"192.0.2.7", "", 403},
        {"::1234", "", 403},
        {"::ffff:192.0.2.7", "", 403},
        {"127.0.0.1", "192.0.2.7", 403},
        {"127.0.0.1", "127.0.0.1, 192.0.2.7", 403},
        {"", "2001:db8::1", 403},
        {"localhost.example.org", "", 403},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct status_question asked = question("GET", "/penstock/status");

        asked.remote_address = rows[i].remote;
        asked.forwarded_for = rows[i].forwarded;
        assert_int_equal(ask(&asked), rows[i].status);
        asked.uri = "/penstock/ping"; /* for a load balancer's health check */
        assert_int_equal(ask(&asked), 200);
        asked.uri = "/penstock/metrics";
        asked.vouched = true;
        assert_int_equal(ask(&asked), 200);
    }
}

static void control_is_refused_to_everybody_else(void **state)
{
    struct status_question asked = question("POST", "/penstock/control?limit=7");

    (void)state;
    assert_int_equal(ask(&asked), 403);
    asked.control = true; /* somebody's process that is neither root nor we */
    assert_int_equal(ask(&asked), 403);
    asked.control = false; /* a web server of our own user: its clients cannot set the parameter */
    asked.trusted = true;
    assert_int_equal(ask(&asked), 403);
    asked.vouched = true;
    assert_int_equal(ask(&asked), 403);
    asked.control = true;
    asked.method = "GET";
    assert_int_equal(ask(&asked), 405);
    assert_string_equal(answer.allow, "POST");
    assert_int_equal(segment_core(&segment)->limit, 2);
}

static void m11_limit_lasts_until_told_otherwise(void **state)
{
    (void)state;
    assert_int_equal(control("/penstock/control?limit=7"), 200);
    assert_int_equal(segment_core(&segment)->limit, 7);
    assert_int_equal(segment_core(&segment)->max_waiting, 5);
    assert_int_equal(strncmp(body(), "limit: 7 (was 2), until the next reload\n", 40), 0);
    assert_int_equal(control("/penstock/control?limit=0"), 200);
    assert_non_null(strstr(body(), "no limit"));
    assert_int_equal(control("/penstock/control?limit=2048"), 200);
    assert_non_null(strstr(body(), "note: 2048 slots and 5 waiting calls need more than"));
}

static void limits_that_are_none_change_nothing(void **state)
{
    static const char *const none[] = {"limit",      "limit=",   "limit=-1",
                                       "limit=2049", "limit=8x", "limit=99999999999999999999",
                                       "limits=8",   ""};
    char uri[100];

    (void)state;
    for (size_t i = 0; i < LENGTH(none); i++) {
        (void)snprintf(uri, sizeof uri, "/penstock/control?%s", none[i]);
        assert_int_equal(control(uri), 400);
        assert_int_equal(segment_core(&segment)->limit, 2);
    }
}

static void a_gate_that_is_off_has_no_limit_to_change(void **state)
{
    (void)state;
    segment_instance(&segment)->gate_on = 0;
    assert_int_equal(control("/penstock/control?limit=7"), 409);
    assert_non_null(strstr(body(), "enabled = true"));
    assert_int_equal(segment_core(&segment)->limit, 2);
}

/* The ledger is where the defaults say, and not there. */
static void a_call_that_cannot_be_looked_up_is_told_why_H17(void **state)
{
    static const char *const none[] = {"/penstock/calls/", "/penstock/calls/?json",
                                       "/penstock/calls/a%20b", "/penstock/calls/a'b",
                                       "/penstock/calls/0123456789012345678901234567890123456789"};
    static const char *const elsewhere[] = {"/penstock/calls", "/penstock/calls/a/b",
                                            "/calls/pst_1", "/penstock/callsx/pst_1"};
    struct status_question asked = question("GET", "/penstock/calls/pst_1");

    (void)state;
    for (size_t i = 0; i < LENGTH(none); i++)
        assert_int_equal(get(none[i]), 400);
    for (size_t i = 0; i < LENGTH(elsewhere); i++)
        assert_int_equal(get(elsewhere[i]), 404);
    options->penstock.state_directory = "/nonexistent";
    assert_int_equal(get("/ai/penstock/calls/pst_1?json"), 503);
    assert_non_null(strstr(body(), "/nonexistent/ledger.db cannot be opened"));
    assert_non_null(strstr(body(), "\"code\":\"penstock_unavailable\""));
    options->penstock.ledger = false;
    assert_int_equal(get("/penstock/calls/pst_1"), 404);
    assert_non_null(strstr(body(), "\"code\":\"penstock_no_call\""));
    asked.remote_address = "192.0.2.7"; /* whose call it is is nobody's business outside */
    assert_int_equal(ask(&asked), 403);
    asked.remote_address = "";
    asked.method = "POST";
    assert_int_equal(ask(&asked), 405);
}

/* While somebody keeps the ledger locked, say: what is not there is not known to be nowhere. */
static void a_call_whose_row_may_still_come_is_no_unknown_one_H17(void **state)
{
    static const char *const files[] = {"ledger.db", "ledger.db-wal", "ledger.db-shm"};
    struct journal_area *journal = &segment_instance(&segment)->journal;
    char directory[] = "/tmp/status-XXXXXX", path[64];
    struct ledger *ledger;
    struct text why;

    (void)state;
    assert_non_null(mkdtemp(directory));
    text_init(&why, 500);
    ledger = ledger_open(directory, 20, -1, &why);
    if (!ledger)
        fail_msg("%s", text_string(&why));
    options->penstock.state_directory = directory;
    assert_true(journal_sit_down(journal));
    journal_discard(journal);
    journal_stand_up(journal);
    assert_int_equal(get("/penstock/calls/pst_1"), 404);
    gate_journal_event(&gate, 1, "test", "");
    assert_int_equal(get("/penstock/calls/pst_1"), 503);
    assert_non_null(strstr(body(), " 1 rows wait to be written"));
    ledger_close(ledger);
    for (size_t i = 0; i < LENGTH(files); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", directory, files[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(directory), 0);
    text_release(&why);
}

static void sources_are_drained_and_undrained_by_name_H7(void **state)
{
    static const struct source_name names[] = {{"openai", ""}, {"azure-we", ""}};
    uint32_t rows[LENGTH(names)];
    struct status_question asked = question("POST", "/penstock/control?drain=openai");

    (void)state;
    assert_true(sources_register(&gate, names, LENGTH(names), rows));
    assert_int_equal(ask(&asked), 403);
    assert_int_equal(control("/penstock/control?drain=openai"), 200);
    assert_int_equal(strncmp(body(), "drained: openai gets no new calls", 33), 0);
    assert_int_equal(get("/penstock/status?sources"), 200);
    assert_non_null(strstr(body(), "openai                openai            drained"));
    assert_non_null(strstr(body(), "azure-we              azure-we          ready"));
    assert_int_equal(control("/penstock/control?undrain=openai"), 200);
    assert_int_equal(strncmp(body(), "undrained: openai gets calls again\n", 35), 0);
    assert_int_equal(get("/penstock/status?sources"), 200);
    assert_null(strstr(body(), "drained"));

    assert_int_equal(control("/penstock/control?drain=nobody"), 404);
    assert_non_null(strstr(body(), "There is no source \\\"nobody\\\""));
    assert_non_null(strstr(body(), "\"code\":\"penstock_no_source\""));
    assert_int_equal(control("/penstock/control?drain"), 400);
    assert_int_equal(control("/penstock/control?undrain="), 400);
    assert_int_equal(control("/penstock/control?drain=0123456789012345678901234567890123456789"
                             "012345678901234567890123456789"),
                     400);
}

static void reload_signals_the_master(void **state)
{
    sigset_t hangup;
    struct timespec soon = {.tv_sec = 5};

    (void)state;
    fixture_needs_pidfds();
    (void)sigemptyset(&hangup);
    (void)sigaddset(&hangup, SIGHUP);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &hangup, NULL), 0);
    segment_instance(&segment)->generation = 41;
    house.master_pidfd = pidfd_open(getpid(), 0);
    assert_int_equal(control("/penstock/control?reload"), 202);
    assert_non_null(strstr(body(), "generation: 41\n"));
    assert_int_equal(sigtimedwait(&hangup, NULL, &soon), SIGHUP);
    (void)close(house.master_pidfd);
    house.master_pidfd = -1;
    assert_int_equal(control("/penstock/control?reload"), 503);
}

static void the_head_tells_length_and_forbids_what_the_page_does_not_need(void **state)
{
    struct text head;
    char length[60];

    (void)state;
    text_init(&head, 4096);
    assert_int_equal(get("/penstock/status?html"), 200);
    status_answer_head(&answer, &head);
    (void)snprintf(length, sizeof length, "Content-Length: %zu\r\n", answer.body.length);
    assert_int_equal(strncmp(text_string(&head), "Status: 200 OK\r\n", 16), 0);
    assert_non_null(strstr(text_string(&head), length));
    assert_non_null(strstr(text_string(&head), "Content-Security-Policy: default-src 'none'"));
    assert_string_equal(text_string(&head) + head.length - 4, "\r\n\r\n");
    assert_null(strstr(text_string(&head), "Allow"));
    text_clear(&head);
    (void)control("/penstock/status");
    status_answer_head(&answer, &head);
    assert_non_null(strstr(text_string(&head), "\r\nAllow: GET, HEAD\r\n"));
    text_release(&head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_page_is_found_below_any_prefix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(o4_openmetrics_by_accept_or_by_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_there_is_an_error_object, set_up, tear_down),
        cmocka_unit_test_setup_teardown(o3_only_local_clients_are_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(control_is_refused_to_everybody_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(m11_limit_lasts_until_told_otherwise, set_up, tear_down),
        cmocka_unit_test_setup_teardown(limits_that_are_none_change_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_gate_that_is_off_has_no_limit_to_change, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_call_whose_row_may_still_come_is_no_unknown_one_H17,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_call_that_cannot_be_looked_up_is_told_why_H17, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(sources_are_drained_and_undrained_by_name_H7, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(reload_signals_the_master, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            the_head_tells_length_and_forbids_what_the_page_does_not_need, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
