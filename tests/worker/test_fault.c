/* test_fault.c - faults as clients see them: all four keys, whole events, honest codes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "worker/fault.h"

#include <json-c/json.h>
#include <string.h>

static const enum fault_code codes[] = {
#define FAULT(name, status, type, should_retry, message) FAULT_##name,
#include "worker/fault_list.h"
#undef FAULT
};

/* The string at key of object; fails the test when it is none. */
static const char *string_at(json_object *object, const char *key)
{
    json_object *value = NULL;

    assert_true(json_object_object_get_ex(object, key, &value));
    assert_true(json_object_is_type(value, json_type_string));
    return json_object_get_string(value);
}

static void assert_four_keys(json_object *error, enum fault_code code)
{
    json_object *param = (json_object *)1;

    assert_int_equal(json_object_object_length(error), 4);
    assert_string_equal(string_at(error, "code"), fault_code_text(code));
    assert_true(strlen(string_at(error, "message")) > 10);
    assert_true(strlen(string_at(error, "type")) > 5);
    assert_true(json_object_object_get_ex(error, "param", &param));
    assert_null(param);
}

static void test_json_of_every_fault_has_all_four_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(codes); i++) {
        struct fault fault = {.code = FAULT_NONE};
        struct text out;
        json_object *body;
        json_object *error;

        text_init(&out, 4096);
        fault_set(&fault, codes[i], "%s", "");
        fault_append_json(&fault, &out);
        body = json_tokener_parse(text_string(&out));
        assert_non_null(body);
        assert_true(json_object_object_get_ex(body, "error", &error));
        assert_four_keys(error, codes[i]);
        json_object_put(body);
        text_release(&out);
    }
}

/* The data of the one event in out, which must be whole. */
static json_object *event_data(const struct text *out)
{
    static const char head[] = "event: error\ndata: ";
    const char *event = text_string(out);
    const char *end = strstr(event, "\n\n");

    assert_int_equal(strncmp(event, head, strlen(head)), 0);
    assert_non_null(end);
    assert_string_equal(end, "\n\n");
    /* One data line: nothing in it may break it. */
    assert_ptr_equal(strchr(event + strlen(head), '\n'), end);
    return json_tokener_parse(event + strlen(head));
}

static void test_event_of_every_family_holds_the_error(void **state)
{
    static const enum stream_family families[] = {STREAM_CHAT, STREAM_RESPONSES, STREAM_IMAGES,
                                                  STREAM_OTHER};

    (void)state;
    for (size_t i = 0; i < LENGTH(families); i++) {
        struct fault fault = {.code = FAULT_NONE};
        struct text out;
        json_object *data;
        json_object *error;

        text_init(&out, 4096);
        fault_set(&fault, FAULT_upstream_cut, "line one\nline \"two\"");
        fault_append_event(&fault, families[i], &out);
        data = event_data(&out);
        assert_non_null(data);
        assert_true(json_object_object_get_ex(data, "error", &error));
        assert_four_keys(error, FAULT_upstream_cut);
        assert_int_equal(json_object_object_get_ex(data, "sequence_number", NULL),
                         families[i] == STREAM_RESPONSES);
        if (families[i] == STREAM_CHAT) {
            assert_int_equal(json_object_object_length(data), 1);
        } else {
            assert_string_equal(string_at(data, "type"), "error");
            assert_string_equal(string_at(data, "code"), "penstock_upstream_cut");
            assert_string_equal(string_at(data, "message"), string_at(error, "message"));
            assert_true(json_object_object_get_ex(data, "param", NULL));
        }
        json_object_put(data);
        text_release(&out);
    }
}

static void test_exact_words(void **state)
{
    struct fault fault = {.code = FAULT_NONE};
    struct text out;

    (void)state;
    text_init(&out, 4096);
    fault_set(&fault, FAULT_busy, "%d wait.", 7);
    fault_append_json(&fault, &out);
    assert_string_equal(text_string(&out),
                        "{\"error\":{\"message\":\"The gateway is busy: every request thread is in "
                        "use. 7 wait.\",\"type\":\"server_error\",\"param\":null,\"code\":"
                        "\"penstock_busy\"}}");
    text_release(&out);
}

static void test_first_fault_counts(void **state)
{
    struct fault fault = {.code = FAULT_NONE};

    (void)state;
    fault_set(&fault, FAULT_upstream_connect, "first");
    assert_int_equal(fault.retry_after_ms, -1);
    fault_set(&fault, FAULT_internal, "second");
    assert_int_equal(fault.code, FAULT_upstream_connect);
    assert_string_equal(fault.detail, "first");
}

static void test_long_detail_is_cut(void **state)
{
    struct fault fault = {.code = FAULT_NONE};
    char detail[1000];

    (void)state;
    memset(detail, 'x', sizeof detail - 1);
    detail[sizeof detail - 1] = '\0';
    fault_set(&fault, FAULT_internal, "%s", detail);
    assert_int_equal(strlen(fault.detail), sizeof fault.detail - 1);
}

/* G5, G6: all three refusals of the gate say plainly that the image limit was reached. */
static void test_G6_refusals_of_the_gate_name_the_limit(void **state)
{
    static const enum fault_code refusals[] = {FAULT_image_limit, FAULT_image_queue_full,
                                               FAULT_image_queue_timeout};

    (void)state;
    for (size_t i = 0; i < LENGTH(refusals); i++) {
        struct fault fault = {.code = FAULT_NONE};
        struct text out;

        text_init(&out, 4096);
        fault_set(&fault, refusals[i], "%s", "");
        fault_append_json(&fault, &out);
        assert_non_null(strstr(text_string(&out), "image concurrency limit"));
        assert_non_null(strstr(text_string(&out), "host"));
        assert_non_null(strstr(text_string(&out), "\"type\":\"rate_limit_error\""));
        assert_int_equal(fault_status(refusals[i]), 429);
        text_release(&out);
    }
    assert_string_equal(fault_code_text(FAULT_image_limit), "penstock_image_limit");
    assert_string_equal(fault_code_text(FAULT_image_queue_full), "penstock_image_queue_full");
    assert_string_equal(fault_code_text(FAULT_image_queue_timeout), "penstock_image_queue_timeout");
}

static void test_should_retry_is_no_where_retrying_could_pay_twice(void **state)
{
    (void)state;
    assert_int_equal(fault_should_retry(FAULT_upstream_no_answer), 0);
    assert_int_equal(fault_should_retry(FAULT_upstream_timeout), 0);
    assert_int_equal(fault_should_retry(FAULT_upstream_cut), 0);
    assert_int_equal(fault_should_retry(FAULT_image_limit), -1);
    assert_int_equal(fault_should_retry(FAULT_NONE), -1);
}

static void test_statuses_and_codes_are_sound(void **state)
{
    (void)state;
    assert_string_equal(fault_code_text(FAULT_NONE), "");
    assert_int_equal(fault_status(FAULT_NONE), 0);
    for (size_t i = 0; i < LENGTH(codes); i++) {
        int status = fault_status(codes[i]);

        assert_true(status >= 400 && status <= 599);
        assert_int_equal(strncmp(fault_code_text(codes[i]), "penstock_", 9), 0);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(fault_code_text(codes[i]), fault_code_text(codes[k]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_of_every_fault_has_all_four_keys),
        cmocka_unit_test(test_event_of_every_family_holds_the_error),
        cmocka_unit_test(test_exact_words),
        cmocka_unit_test(test_first_fault_counts),
        cmocka_unit_test(test_long_detail_is_cut),
        cmocka_unit_test(test_G6_refusals_of_the_gate_name_the_limit),
        cmocka_unit_test(test_should_retry_is_no_where_retrying_could_pay_twice),
        cmocka_unit_test(test_statuses_and_codes_are_sound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
