/* test_sse.c - the event stream grammar, however the bytes are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "worker/sse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seen {
    char text[1024];
    size_t length;
};

static void add(struct seen *seen, const char *bytes, size_t length)
{
    assert_true(seen->length + length < sizeof seen->text);
    memcpy(seen->text + seen->length, bytes, length);
    seen->length += length;
    seen->text[seen->length] = '\0';
}

static void note_data(void *context, const char *bytes, size_t length)
{
    assert_true(length > 0);
    add(context, bytes, length);
}

static void note_data_end(void *context)
{
    add(context, "|", 1);
}

static void note_event(void *context, const char *name)
{
    add(context, "(", 1);
    add(context, name, strlen(name));
    add(context, ")", 1);
}

static const char *events(const char *stream, size_t length, size_t first, size_t second)
{
    static struct seen seen;
    static struct sse sse;
    const struct sse_handler handler = {&seen, note_data, note_data_end, note_event};

    seen.length = 0;
    seen.text[0] = '\0';
    memset(&sse, 0xA5, sizeof sse);
    sse_begin(&sse, &handler);
    assert_true(sse.at_boundary);
    sse_feed(&sse, stream, first);
    sse_feed(&sse, stream + first, second - first);
    sse_feed(&sse, stream + second, length - second);
    add(&seen, sse.at_boundary ? " B" : " -", 2);
    return seen.text;
}

static const struct {
    const char *stream, *expected;
} cases[] = {
    {"", " B"},
    {"data: a\n\n", "a|() B"},
    {"data:a\n\n", "a|() B"},
    {"data:  a \n\n", " a |() B"},
    {"data: a\r\n\r\n", "a|() B"},
    {"data: a\r\r", "a|() B"},
    {"data: a\r\ndata: b\n\r\n", "a|b|() B"},
    {"event: x\ndata: a\n\ndata: b\n\n", "a|(x)b|() B"},
    {"data: a\nevent: x\n\n", "a|(x) B"},
    {"event: x\nevent: y\ndata\n\n", "|(y) B"},
    {"event: x\nevent\ndata\n\n", "|() B"},
    {"data\n\n", "|() B"},
    {"data:\n\n", "|() B"},
    {"data: \n\n", "|() B"},
    {"data: a: b\n\n", "a: b|() B"},
    {": comment\n\n", " B"},
    {": comment\ndata: a\n\n", "a|() B"},
    {":\n\n:\n", " B"},
    /* no data, no event; the name is forgotten */
    {"event: x\n\ndata: a\n\n", "a|() B"},
    {"id: 1\nretry: 5\n\n", " B"},
    {"\n\n\r\n", " B"},
    /* other fields */
    {"Data: a\ndata2: b\nda: c\n data: d\ndataaaaaaaaaaaa: e\n\n", " B"},
    {"\xEF\xBB\xBF"
     "data: a\n\n",
     "a|() B"},
    {"\xEF\xBB"
     "data: a\n\ndata: b\n\n",
     "b|() B"},
    {"data: a\n\n\xEF\xBB\xBF"
     "data: b\n\n",
     "a|() B"},
    /* unfinished: G14, a last event without its blank line is not an event */
    {"data: a\n", "a| -"},
    {"data: a", "a -"},
    {"data: a\n\ndata: b\n", "a|()b| -"},
    {"event: x\n", " -"},
    {"d", " -"},
    {": comment", " -"},
    {": comment\n", " B"},
    {"id: 1\n: comment\n", " -"},
    {"data: a\n\n: half", "a|() -"},
};

static void G15_cases_hold_however_they_are_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        size_t length = strlen(cases[i].stream);

        for (size_t first = 0; first <= length; first++) {
            for (size_t second = first; second <= length; second++) {
                const char *is = events(cases[i].stream, length, first, second);

                if (strcmp(is, cases[i].expected) != 0)
                    fail_msg("case %d cut at %d, %d: <%s> not <%s>", (int)i, (int)first,
                             (int)second, is, cases[i].expected);
            }
        }
    }
}

static void long_names_are_cut(void **state)
{
    char stream[200];
    char expected[200];

    (void)state;
    int length = snprintf(stream, sizeof stream, "event: %0*d\ndata\n\n", SSE_NAME_MAX + 1, 0);

    snprintf(expected, sizeof expected, "|(%0*d) B", SSE_NAME_MAX, 0);
    assert_string_equal(events(stream, (size_t)length, 3, 40), expected);
}

struct sum {
    size_t bytes, largest, ends, events;
};

static void sum_data(void *context, const char *bytes, size_t length)
{
    struct sum *sum = context;

    (void)bytes;
    sum->bytes += length;
    sum->largest = length > sum->largest ? length : sum->largest;
}

static void sum_end(void *context)
{
    ((struct sum *)context)->ends++;
}

static void sum_event(void *context, const char *name)
{
    (void)name;
    ((struct sum *)context)->events++;
}

/* A 30 MB line is handed on in the pieces it came in. */
static void G14_T25_a_line_of_thirty_megabytes(void **state)
{
    static char block[65536];
    struct sum sum = {0};
    struct sse sse;
    const struct sse_handler handler = {&sum, sum_data, sum_end, sum_event};

    (void)state;
    memset(block, 'Q', sizeof block);
    sse_begin(&sse, &handler);
    sse_feed(&sse, "data: ", 6);
    for (int i = 0; i < 480; i++)
        sse_feed(&sse, block, sizeof block);
    assert_false(sse.at_boundary);
    assert_int_equal(sum.ends, 0);
    sse_feed(&sse, "\n\n", 2);
    assert_int_equal(sum.bytes, 480 * sizeof block);
    assert_int_equal(sum.largest, sizeof block);
    assert_int_equal(sum.ends, 1);
    assert_int_equal(sum.events, 1);
    assert_int_equal(sse.events, 1);
    assert_true(sse.at_boundary);
}

static void handlers_may_be_absent(void **state)
{
    struct sse sse;
    const struct sse_handler handler = {.context = NULL};

    (void)state;
    sse_begin(&sse, &handler);
    sse_feed(&sse, "event: x\ndata: a\n\n", 18);
    assert_int_equal(sse.events, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(G15_cases_hold_however_they_are_cut),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(G14_T25_a_line_of_thirty_megabytes),
        cmocka_unit_test(handlers_may_be_absent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
