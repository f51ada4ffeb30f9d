/*
 * test_judge.c - the table of known errors and their meaning, tests/worker/judge_cases.json (H2).
 *
 * A row: name, dialect (openai), status (429), stream (false), head ("name: value" lines), body (a
 * string as it is, or a value that is written out); and what must come out: class, dimension
 * (unknown), wait (-1), out (0), should_retry (-1), billed (false), error (not compared when
 * absent). The clock of every row stands at noon UTC: 20 hours before Google's day ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/judge.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CASES "tests/worker/judge_cases.json"
#define NOON_MS INT64_C(1796040000000) /* 2026-11-30 12:00:00 UTC */

static const char *const dialects[] = {"openai",    "dashscope", "azure", "gemini",
                                       "anthropic", "plain",     NULL};
static const char *const dimensions[] = {"unknown", "requests",    "tokens",
                                         "ramp",    "concurrency", NULL};

static const char *string_of(struct json_object *row, const char *key, const char *otherwise)
{
    struct json_object *value;

    return json_object_object_get_ex(row, key, &value) ? json_object_get_string(value) : otherwise;
}

static int64_t number_of(struct json_object *row, const char *key, int64_t otherwise)
{
    struct json_object *value;

    return json_object_object_get_ex(row, key, &value) ? json_object_get_int64(value) : otherwise;
}

static bool bool_of(struct json_object *row, const char *key)
{
    struct json_object *value;

    return json_object_object_get_ex(row, key, &value) && json_object_get_boolean(value);
}

static unsigned index_of(const char *const *words, const char *word)
{
    for (unsigned i = 0; words[i]; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    fail_msg("unknown word %s", word);
    return 0;
}

static void read_head(const char *head, struct judge_hints *hints)
{
    char lines[512], *rest = lines;

    judge_hints_begin(hints);
    (void)snprintf(lines, sizeof lines, "%s", head);
    judge_hints_read(hints, "date", "Mon, 30 Nov 2026 12:00:00 GMT", NOON_MS);
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line;) {
        char *colon = strstr(line, ": ");

        assert_non_null(colon);
        *colon = '\0';
        judge_hints_read(hints, line, colon + 2, NOON_MS);
    }
}

/* The row's own evidence, its body ending exactly at an allocation's end. */
struct evidence {
    struct judge_evidence judge;
    struct judge_hints hints;
    char *body;
};

static void evidence_init(struct evidence *evidence, struct json_object *row)
{
    unsigned dialect = index_of(dialects, string_of(row, "dialect", "openai"));
    struct json_object *body = NULL;
    const char *text = "";

    if (json_object_object_get_ex(row, "body", &body))
        text = json_object_is_type(body, json_type_string)
                   ? json_object_get_string(body)
                   : json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN);
    read_head(string_of(row, "head", ""), &evidence->hints);
    evidence->judge = (struct judge_evidence){
        .dialect = dialect,
        .status = (int)number_of(row, "status", 429),
        .stream = bool_of(row, "stream"),
        .body_bytes = strlen(text),
        .hints = &evidence->hints,
    };
    evidence->body = malloc(strlen(text) + 1);
    assert_non_null(evidence->body);
    memcpy(evidence->body, text, strlen(text) + 1);
    evidence->judge.body = evidence->body;
}

static bool is_clean(const char *word)
{
    return strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
           strlen(word);
}

static bool compare(struct json_object *row, const struct judgement *got, const char *how)
{
    const char *error = string_of(row, "error", NULL);
    const char *class = attempt_class_name(got->class);
    bool right = strcmp(class, string_of(row, "class", "")) == 0 &&
                 strcmp(dimensions[got->dimension], string_of(row, "dimension", "unknown")) == 0 &&
                 got->retry_after_ms == number_of(row, "wait", -1) &&
                 got->out_ms == number_of(row, "out", 0) &&
                 got->should_retry == number_of(row, "should_retry", -1) &&
                 got->maybe_billed == bool_of(row, "billed") && is_clean(got->error) &&
                 (!error || strcmp(error, got->error) == 0);

    if (!right)
        print_error("%s%s: %s, %s, wait %lld, out %lld, should_retry %d, billed %d, error %s\n",
                    string_of(row, "name", "?"), how, class, dimensions[got->dimension],
                    (long long)got->retry_after_ms, (long long)got->out_ms, got->should_retry,
                    got->maybe_billed, got->error);
    return right;
}

/* Every row, and again as bodies that were cut within their last bytes, which say the same. */
static void test_H2_known_errors(void **state)
{
    struct json_object *rows = json_object_from_file(CASES);
    unsigned wrong = 0;

    (void)state;
    assert_non_null(rows);
    assert_true(json_object_array_length(rows) >= 150);
    for (size_t i = 0; i < json_object_array_length(rows); i++) {
        struct json_object *row = json_object_array_get_idx(rows, i), *body;
        struct evidence evidence;
        struct judgement judgement;

        evidence_init(&evidence, row);
        memset(&judgement, 0xA5, sizeof judgement);
        judge_answer(&evidence.judge, &judgement);
        wrong += !compare(row, &judgement, "");
        if (json_object_object_get_ex(row, "body", &body) &&
            !json_object_is_type(body, json_type_string)) {
            evidence.judge.body_bytes--;
            judge_answer(&evidence.judge, &judgement);
            wrong += !compare(row, &judgement, " (cut)");
        }
        free(evidence.body);
    }
    json_object_put(rows);
    assert_int_equal(wrong, 0);
}

/* H2 never by status alone: among the rows, every status that many use means several things. */
static void test_H2_one_status_many_classes(void **state)
{
    static const int statuses[] = {200, 400, 403, 429, 500, 503};
    struct json_object *rows = json_object_from_file(CASES);

    (void)state;
    for (size_t s = 0; s < sizeof statuses / sizeof *statuses; s++) {
        unsigned classes = 0;

        for (size_t i = 0; i < json_object_array_length(rows); i++) {
            struct evidence evidence;
            struct judgement judgement;

            evidence_init(&evidence, json_object_array_get_idx(rows, i));
            judge_answer(&evidence.judge, &judgement);
            if (evidence.judge.status == statuses[s])
                classes |= 1U << judgement.class;
            free(evidence.body);
        }
        assert_true(__builtin_popcount(classes) >= 2);
    }
    json_object_put(rows);
}

/* The plain dialect reads nothing: its judgement is that of no body at all. */
static void test_H2_plain_judges_by_status_alone(void **state)
{
    struct json_object *rows = json_object_from_file(CASES);

    (void)state;
    for (size_t i = 0; i < json_object_array_length(rows); i++) {
        struct evidence evidence;
        struct judgement with, without;

        evidence_init(&evidence, json_object_array_get_idx(rows, i));
        evidence.judge.dialect = DIALECT_PLAIN;
        judge_answer(&evidence.judge, &with);
        evidence.judge.body_bytes = 0;
        evidence.hints.intermediary = !evidence.hints.intermediary;
        judge_answer(&evidence.judge, &without);
        assert_int_equal(with.class, without.class);
        assert_int_equal(with.out_ms, without.out_ms);
        assert_int_equal(with.retry_after_ms, without.retry_after_ms);
        assert_string_equal(with.error, without.error);
        free(evidence.body);
    }
    json_object_put(rows);
}

static const char per_day[] =
    "{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\",\"details\":[{\"violations\":"
    "[{\"quotaId\":\"GenerateRequestsPerDayPerProject\"}]},{\"retryDelay\":\"37s\"}]}}";

static int64_t out_at(int64_t now_wall_ms)
{
    struct judge_hints hints;
    struct judgement judgement;

    judge_hints_begin(&hints);
    if (now_wall_ms > 0)
        judge_hints_read(&hints, "content-type", "application/json", now_wall_ms);
    judge_answer(&(struct judge_evidence){.dialect = DIALECT_GEMINI,
                                          .status = 429,
                                          .body = per_day,
                                          .body_bytes = strlen(per_day),
                                          .hints = &hints},
                 &judgement);
    assert_int_equal(judgement.class, ATTEMPT_QUOTA_DAY);
    assert_true(judgement.retry_after_ms >= judgement.out_ms);
    return judgement.out_ms;
}

/* A day's quota: out until the day has ended where it is counted, never past it by more than a day. */
static void test_H2_day_quota_is_out_until_the_reset(void **state)
{
    const int64_t hour = 3600 * 1000;

    (void)state;
    assert_int_equal(out_at(NOON_MS), 20 * hour);
    assert_int_equal(out_at(NOON_MS - 5 * hour), 1 * hour);
    assert_int_equal(out_at(NOON_MS - 4 * hour - 1), 1);
    assert_int_equal(out_at(NOON_MS - 4 * hour), 24 * hour);
    assert_int_equal(out_at(0), 1 * hour); /* no clock: an hour, then it is asked again */
}

static void check_transport(enum http_outcome outcome, bool sent, enum attempt_class class,
                            const char *error)
{
    struct judgement judgement;

    memset(&judgement, 0xA5, sizeof judgement);
    judge_transport(outcome, sent, &judgement);
    assert_int_equal(judgement.class, class);
    assert_string_equal(judgement.error, error);
    assert_int_equal(judgement.retry_after_ms, -1);
    assert_int_equal(judgement.should_retry, -1);
    assert_int_equal(judgement.out_ms, 0);
    assert_int_equal(judgement.dimension, THROTTLE_UNKNOWN);
    assert_int_equal(judgement.maybe_billed, class == ATTEMPT_UNKNOWN);
}

/* H2, N5 what was not sent was not paid; what was sent and not answered may have been. */
static void test_H2_transport(void **state)
{
    (void)state;
    check_transport(HTTP_NOT_SENT, false, ATTEMPT_UNSENT, "upstream_connect");
    check_transport(HTTP_NOT_SENT, true, ATTEMPT_UNSENT, "upstream_connect");
    check_transport(HTTP_CONNECT_TIMEOUT, false, ATTEMPT_UNSENT, "upstream_connect_timeout");
    check_transport(HTTP_NO_ANSWER, true, ATTEMPT_UNKNOWN, "upstream_no_answer");
    check_transport(HTTP_NO_ANSWER, false, ATTEMPT_UNSENT, "upstream_no_answer");
    check_transport(HTTP_CUT, true, ATTEMPT_UNKNOWN, "upstream_cut");
    check_transport(HTTP_BAD_ANSWER, true, ATTEMPT_UNKNOWN, "upstream_bad_answer");
    check_transport(HTTP_RUNNING, true, ATTEMPT_UNKNOWN, "upstream_timeout");
    check_transport(HTTP_RUNNING, false, ATTEMPT_UNSENT, "upstream_timeout");
    check_transport(HTTP_COMPLETE, true, ATTEMPT_TRANSIENT, "upstream_empty");
    check_transport(HTTP_BODY_FAILED, true, ATTEMPT_OURS, "body_failed");
    check_transport(HTTP_OUT_OF_MEMORY, false, ATTEMPT_OURS, "out_of_memory");
    check_transport(HTTP_ABORTED, true, ATTEMPT_OURS, "aborted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H2_known_errors),
        cmocka_unit_test(test_H2_one_status_many_classes),
        cmocka_unit_test(test_H2_plain_judges_by_status_alone),
        cmocka_unit_test(test_H2_day_quota_is_out_until_the_reset),
        cmocka_unit_test(test_H2_transport),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
