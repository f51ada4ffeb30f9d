/*
 * test_json_scan.c - the grammar, what is reported, and that no cut into pieces changes any of it.
 *
 * Most tests compare a trace: one line per reported value, "path kind text", built with the
 * scanner's own path so that wrong levels show.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct trace {
    const char *json; /* what is being read */
    char text[16384];
    size_t length;
};

static const char *const kind_names[] = {
    [JSON_OBJECT] = "{",    [JSON_OBJECT_END] = "}", [JSON_ARRAY] = "[",
    [JSON_ARRAY_END] = "]", [JSON_STRING] = "s",     [JSON_NUMBER] = "n",
    [JSON_TRUE] = "true",   [JSON_FALSE] = "false",  [JSON_NULL] = "null",
};

static void add(struct trace *trace, const char *text)
{
    size_t length = strlen(text);

    assert_true(trace->length + length < sizeof trace->text);
    memcpy(trace->text + trace->length, text, length + 1);
    trace->length += length;
}

/* A value begins where it says it does. */
static void check_place(const char *json, const struct json_value *value)
{
    static const char *const first[] = {
        [JSON_OBJECT] = "{", [JSON_ARRAY] = "[", [JSON_STRING] = "\"", [JSON_NUMBER] = NULL,
        [JSON_TRUE] = "t",   [JSON_FALSE] = "f", [JSON_NULL] = "n",
    };

    if (value->kind == JSON_OBJECT_END || value->kind == JSON_ARRAY_END)
        return;
    if (value->kind == JSON_STRING)
        assert_int_equal(json[value->at + value->raw_length + 1], '"');
    if (value->kind == JSON_NUMBER)
        assert_memory_equal(json + value->at, value->text, value->text_length);
    else
        assert_int_equal(json[value->at], *first[value->kind]);
}

static void note_value(void *context, const struct json_scan *scan, const struct json_value *value)
{
    struct trace *trace = context;
    char line[2048];

    check_place(trace->json, value);

    for (unsigned i = 0; i < scan->depth; i++) {
        const struct json_level *level = &scan->levels[i];

        if (level->is_array)
            snprintf(line, sizeof line, "[%d]", (int)level->index);
        else
            snprintf(line, sizeof line, "%s%s%s", i ? "." : "", level->key,
                     level->key_cut ? "..." : "");
        add(trace, line);
    }
    snprintf(line, sizeof line, " %s", kind_names[value->kind]);
    add(trace, line);
    if (value->kind == JSON_STRING || value->kind == JSON_NUMBER) {
        assert_int_equal(value->text[value->text_length], '\0');
        snprintf(line, sizeof line, " <%s>%d%s/%d/%016llx", value->text, (int)value->text_length,
                 value->text_cut ? "..." : "", (int)value->raw_length,
                 (unsigned long long)value->raw_hash);
        add(trace, line);
    }
    add(trace, "\n");
}

/* Feed the pieces [0,first) [first,second) [second,length); trace and state into trace. */
static void run(struct trace *trace, const char *json, size_t length, size_t first, size_t second)
{
    static struct json_scan scan;
    char state[16];

    trace->json = json;
    trace->length = 0;
    trace->text[0] = '\0';
    /* What was there before must not matter. */
    memset(&scan, 0xA5, sizeof scan);
    json_scan_init(&scan, note_value, trace);
    json_scan_feed(&scan, json, first);
    json_scan_feed(&scan, json + first, second - first);
    json_scan_feed(&scan, json + second, length - second);
    enum json_scan_state final = json_scan_end(&scan);

    snprintf(state, sizeof state, "= %d", (int) final);
    add(trace, state);
}

static void run_bytes(struct trace *trace, const char *json, size_t length)
{
    static struct json_scan scan;
    char state[16];

    trace->json = json;
    trace->length = 0;
    trace->text[0] = '\0';
    json_scan_init(&scan, note_value, trace);
    for (size_t i = 0; i < length; i++)
        json_scan_feed(&scan, json + i, 1);
    enum json_scan_state final = json_scan_end(&scan);

    snprintf(state, sizeof state, "= %d", (int) final);
    add(trace, state);
}

static enum json_scan_state state_of(const char *json)
{
    struct json_scan scan;

    json_scan_init(&scan, NULL, NULL);
    json_scan_feed(&scan, json, strlen(json));
    return json_scan_end(&scan);
}

static const char *const valid[] = {
    "{}",
    "[]",
    " \t\r\n{ } \n",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "12",
    "-12.5e+10",
    "1E5",
    "0.25",
    "1e-7 ",
    "\"\"",
    "\"a\"",
    "{\"a\":1}",
    "{\"a\" : [ 1 , 2 ] , \"b\":{\"c\":null}}",
    "[[[[]]],{},[{}]]",
    "{\"a\":{\"b\":[{\"c\":\"d\"},{\"c\":\"e\"}]},\"f\":false}",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
    "\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"",
    "{\"tool_\\u0063hoice\":\"im\\u0061ge\"}",
    "\"\\ud83d\"",
    "\"\\ud83dx\"",
    "\"\\ude00\"",
    "\"\\ud83d\\n\"",
    "\"\\ud83d\\ud83d\\ude00\"",
    "\"\\ud83d\\u0041\"",
    "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
    "{\"\":{\"\":1}}",
    "{\"a\":1,\"a\":2}",
    "{\"a.b\":1,\"[]\":2}",
    "[\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef01234567\\\" 9\"]",
    /* tolerated on purpose */
    "\xEF\xBB\xBF{\"a\":1}",
    "[1,]",
    "{\"a\":1,}",
    "NaN",
    "[Infinity,-Infinity,NaN]",
    "\"a\nb\tc\x01\"",
    "\"\xff\xfe\x80\"",
    "{\"a\":NaN}",
};

static const char *const invalid[] = {
    "",
    " ",
    "{",
    "[",
    "\"",
    "\"a",
    "\"\\\"",
    "\"\\u12\"",
    "\"\\u12g4\"",
    "\"\\x41\"",
    "\"\\",
    "tru",
    "truex",
    "nul",
    "nulL",
    "+1",
    "01",
    "-",
    "-a",
    "1.",
    "1.e5",
    "1e",
    "1e+",
    ".5",
    "0x10",
    "1 2",
    "{} {}",
    "{}x",
    "[1 2]",
    "[,]",
    "[1,,2]",
    "{,}",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\" 1}",
    "{\"a\":1 \"b\":2}",
    "{a:1}",
    "{'a':1}",
    "{\"a\":1,,}",
    "[1}",
    "{\"a\":1]",
    "]",
    "}",
    ",",
    ":",
    "[1]]",
    "-Infinit",
    "-Inf]",
    "Inf",
    "Na",
    "nan",
    "// c\n1",
    "[1,2",
    "{\"a\":[1}",
    "--1",
    "{x",
    "[x",
    "{x}{",
    "[1x",
    "{\"a\":1x",
    "\xEF\xBB",
    "\xEF\xBB{}",
    "\xFE\xFF",
    "{\"a\":1,\"b\"}",
    "[\"a\":1]",
    "1a",
    "-01",
};

static void valid_documents_are_done(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(valid); i++)
        if (state_of(valid[i]) != JSON_SCAN_DONE)
            fail_msg("refused: %s", valid[i]);
}

static void invalid_documents_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(invalid); i++)
        if (state_of(invalid[i]) != JSON_SCAN_INVALID)
            fail_msg("accepted: %s", invalid[i]);
}

static void check_cuts(const char *json, size_t length)
{
    static struct trace whole, cut;

    run(&whole, json, length, 0, 0);
    run_bytes(&cut, json, length);
    assert_string_equal(whole.text, cut.text);
    for (size_t first = 0; first <= length; first++) {
        for (size_t second = first; second <= length; second++) {
            run(&cut, json, length, first, second);
            if (strcmp(whole.text, cut.text) != 0)
                fail_msg("%s cut at %d and %d:\n%s\nwhole:\n%s", json, (int)first, (int)second,
                         cut.text, whole.text);
        }
    }
}

static void cuts_change_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(valid); i++)
        check_cuts(valid[i], strlen(valid[i]));
    for (size_t i = 0; i < LENGTH(invalid); i++)
        check_cuts(invalid[i], strlen(invalid[i]));
    check_cuts("\"a\0b\"", 5);
    check_cuts("{\0}", 3);
}

static const char *value_of(const char *json)
{
    static struct trace trace;
    char *end;

    run(&trace, json, strlen(json), 0, 0);
    end = strrchr(trace.text, '>');
    if (!end)
        return "none";
    *end = '\0';
    return strchr(trace.text, '<') + 1;
}

static void escapes_are_decoded(void **state)
{
    (void)state;
    assert_string_equal(value_of("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), "\"\\/\b\f\n\r\t");
    assert_string_equal(value_of("\"\\u0041\\u00E9\\u20aC\""), "A\xc3\xa9\xe2\x82\xac");
    assert_string_equal(value_of("\"\\ud83d\\ude00\""), "\xf0\x9f\x98\x80");
    assert_string_equal(value_of("\"\\udbff\\udfff\""), "\xf4\x8f\xbf\xbf");
}

static void lone_surrogates_become_replacement_characters(void **state)
{
    (void)state;
    assert_string_equal(value_of("\"\\ud83d\""), "\xef\xbf\xbd");
    assert_string_equal(value_of("\"\\ud83dx\""), "\xef\xbf\xbdx");
    assert_string_equal(value_of("\"\\ud83d\\n\""), "\xef\xbf\xbd\n");
    assert_string_equal(value_of("\"\\ude00\""), "\xef\xbf\xbd");
    assert_string_equal(value_of("\"\\ud83d\\u0041\""), "\xef\xbf\xbd"
                                                        "A");
    assert_string_equal(value_of("\"\\ud83d\\ud83d\\ude00\""), "\xef\xbf\xbd\xf0\x9f\x98\x80");
}

static void values_come_in_order_with_their_paths(void **state)
{
    static struct trace trace;
    const char *json = "{\"a\":[1,{\"b\":\"x\"}],\"c\":true}";
    char expected[300];

    (void)state;
    run(&trace, json, strlen(json), 0, 0);
    snprintf(expected, sizeof expected,
             " {\na [\na[0] n <1>1/0/%016x\na[1] {\na[1].b s <x>1/1/%016llx\na[1] }\na ]\nc true\n"
             " }\n= 1",
             0u, (unsigned long long)hash_bytes("x", 1));
    assert_string_equal(trace.text, expected);
}

static void long_strings_are_cut_but_measured(void **state)
{
    static char json[5000];
    static struct trace trace;
    char expected[64];

    (void)state;
    memset(json, 'x', sizeof json);
    json[0] = json[4999] = '"';
    run(&trace, json, sizeof json, 100, 3000);
    snprintf(expected, sizeof expected, ">511.../4998/%016llx",
             (unsigned long long)hash_bytes(json + 1, 4998));
    assert_non_null(strstr(trace.text, expected));
    assert_non_null(strstr(trace.text, "= 1"));
}

/* Exactly as long as what is kept is not cut; one more is. */
static void the_bounds_are_exact(void **state)
{
    static char json[700];
    static struct trace trace;

    (void)state;
    for (int extra = 0; extra < 2; extra++) {
        snprintf(json, sizeof json, "{\"%0*d\":\"%0*d\"}", JSON_SCAN_KEY_MAX + extra, 7,
                 JSON_SCAN_TEXT_MAX + extra, 8);
        run(&trace, json, strlen(json), 0, 0);
        assert_int_equal(strstr(trace.text, "... s") != NULL, extra);
        assert_int_equal(strstr(trace.text, ">511...") != NULL, extra);
    }
}

static void a_code_point_is_kept_whole_or_not_at_all(void **state)
{
    static char json[700];
    static struct trace trace;

    (void)state;
    for (int length = 505; length <= 512; length++) {
        snprintf(json, sizeof json, "\"%0*d\\ud83d\\ude00z\"", length, 0);
        run(&trace, json, strlen(json), 0, 0);
        assert_int_equal(strstr(trace.text, "\xf0\x9f\x98\x80") != NULL, length <= 507);
        assert_null(strstr(trace.text, "0z"));
    }
}

static enum json_scan_state nested(unsigned depth)
{
    static char json[2 * JSON_SCAN_DEPTH_MAX + 10];

    memset(json, '[', depth);
    memset(json + depth, ']', depth);
    json[2 * depth] = '\0';
    return state_of(json);
}

static void G3_depth_is_bounded(void **state)
{
    (void)state;
    assert_int_equal(nested(JSON_SCAN_DEPTH_MAX), JSON_SCAN_DONE);
    assert_int_equal(nested(JSON_SCAN_DEPTH_MAX + 1), JSON_SCAN_TOO_DEEP);
}

static void final_states_stay(void **state)
{
    struct json_scan scan;

    (void)state;
    json_scan_init(&scan, NULL, NULL);
    assert_int_equal(json_scan_feed(&scan, "{x", 2), JSON_SCAN_INVALID);
    assert_int_equal(json_scan_feed(&scan, "{}", 2), JSON_SCAN_INVALID);
    assert_int_equal(json_scan_end(&scan), JSON_SCAN_INVALID);
    json_scan_init(&scan, NULL, NULL);
    assert_int_equal(json_scan_feed(&scan, "{}", 2), JSON_SCAN_DONE);
    assert_int_equal(json_scan_feed(&scan, " \n", 2), JSON_SCAN_DONE);
    assert_int_equal(json_scan_feed(&scan, "x", 1), JSON_SCAN_INVALID);
}

struct question {
    const char *path;
    unsigned yes;
};

static void ask(void *context, const struct json_scan *scan, const struct json_value *value)
{
    struct question *question = context;

    (void)value;
    question->yes += json_scan_at(scan, question->path);
}

static unsigned answers(const char *json, const char *path)
{
    struct question question = {.path = path};
    struct json_scan scan;

    json_scan_init(&scan, ask, &question);
    json_scan_feed(&scan, json, strlen(json));
    return question.yes;
}

static void at_compares_the_whole_path(void **state)
{
    const char *json =
        "{\"a\":{\"b\":[{\"c\":1},{\"c\":2,\"cc\":3}]},\"a.b\":4,\"ab\":5,\"x[]\":6}";

    (void)state;
    assert_int_equal(answers(json, ""), 2); /* begin and end of the top object */
    assert_int_equal(answers(json, "a"), 2);
    assert_int_equal(answers(json, "a.b"), 2); /* not the key "a.b" */
    assert_int_equal(answers(json, "a.b[]"), 4);
    assert_int_equal(answers(json, "a.b[].c"), 2);
    assert_int_equal(answers(json, "a.b[].cc"), 1);
    assert_int_equal(answers(json, "ab"), 1);
    assert_int_equal(answers(json, "a.b[].c.d"), 0);
    assert_int_equal(answers(json, "[]"), 0);
    assert_int_equal(answers(json, "x[]"), 0);
    assert_int_equal(answers("[1,[2,3]]", "[]"), 3);
    assert_int_equal(answers("[1,[2,3]]", "[][]"), 2);
}

/* {"want": S, "list": [{"name": S}], "self": {"self": ..., "name": S}} */
static const struct json_node name_node = {.id = 1, .hash = true};
static const struct json_edge element_edges[] = {JSON_EDGE("name", &name_node)};
static const struct json_node element_node = {.id = 2, .edges = element_edges, .edge_count = 1};
static const struct json_node list_node = {.id = 3, .element = &element_node};
static const struct json_node self_node;
static const struct json_edge self_edges[] = {JSON_EDGE("self", &self_node),
                                              JSON_EDGE("name", &name_node)};
static const struct json_node self_node = {.id = 4, .edges = self_edges, .edge_count = 2};
static const struct json_node want_node = {.id = 5};
static const struct json_edge root_edges[] = {
    JSON_EDGE("want", &want_node), JSON_EDGE("list", &list_node), JSON_EDGE("self", &self_node)};
static const struct json_node root_node = {.id = 6, .edges = root_edges, .edge_count = 3};

static void note_id(void *context, const struct json_scan *scan, const struct json_value *value)
{
    char line[64];

    (void)scan;
    snprintf(line, sizeof line, "%u%s%s%s ", value->id, kind_names[value->kind], value->text,
             value->raw_hash ? "#" : "");
    add(context, line);
}

static void a_tree_of_nodes_selects(void **state)
{
    static struct trace trace;
    struct json_scan scan;
    const char *json =
        "{\"skip\":{\"want\":1},\"want\":\"w\",\"list\":[{\"name\":\"a\",\"x\":[]},7,"
        "{\"name\":null}],\"self\":{\"self\":{\"self\":3,\"name\":\"n\"}},"
        "\"want\":[\"no\"]}";

    (void)state;
    trace.length = 0;
    json_scan_init(&scan, note_id, &trace);
    json_scan_follow(&scan, &root_node);
    json_scan_feed(&scan, json, strlen(json));
    assert_int_equal(json_scan_end(&scan), JSON_SCAN_DONE);
    assert_string_equal(trace.text, "6{ 5sw 3[ 2{ 1sa# 2} 2n7 2{ 1null 2} 3] 4{ 4{ 4n3 1sn# 4} 4} "
                                    "5[ 5] 6} ");
}

static void data_is_told_from_words(void **state)
{
    static char json[20000];
    static char filler[4001];
    struct json_scan scan;

    (void)state;
    memset(filler, 'Q', 4000);
    snprintf(json, sizeof json,
             "{\"a\":\"%s\",\"b\":\"data:image/png;base64,%s\",\"c\":\"x y %s\"}", filler, filler,
             filler);
    json_scan_init(&scan, NULL, NULL);
    json_scan_feed(&scan, json, strlen(json));
    assert_int_equal(json_scan_end(&scan), JSON_SCAN_DONE);
    assert_int_equal(scan.data_bytes, 4000 + 4000 + 22);
}

static void note_empty(void *context, const struct json_scan *scan, const struct json_value *value)
{
    (void)scan;
    if (value->kind == JSON_OBJECT_END || value->kind == JSON_ARRAY_END)
        add(context, value->empty ? "e" : "-");
    else
        assert_false(value->empty);
}

static void ends_tell_whether_there_was_anything(void **state)
{
    static struct trace trace;
    struct json_scan scan;
    const char *json = "[[],{},[ ],{ \n },[1],[[]],{\"\":0},{\"a\":{}},[1,],{\"a\":1,}]";

    (void)state;
    trace.length = 0;
    json_scan_init(&scan, note_empty, &trace);
    json_scan_feed(&scan, json, strlen(json));
    assert_int_equal(json_scan_end(&scan), JSON_SCAN_DONE);
    assert_string_equal(trace.text, "eeee-e--e----");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_documents_are_done),
        cmocka_unit_test(invalid_documents_are_refused),
        cmocka_unit_test(cuts_change_nothing),
        cmocka_unit_test(escapes_are_decoded),
        cmocka_unit_test(lone_surrogates_become_replacement_characters),
        cmocka_unit_test(values_come_in_order_with_their_paths),
        cmocka_unit_test(long_strings_are_cut_but_measured),
        cmocka_unit_test(the_bounds_are_exact),
        cmocka_unit_test(a_code_point_is_kept_whole_or_not_at_all),
        cmocka_unit_test(G3_depth_is_bounded),
        cmocka_unit_test(final_states_stay),
        cmocka_unit_test(at_compares_the_whole_path),
        cmocka_unit_test(a_tree_of_nodes_selects),
        cmocka_unit_test(data_is_told_from_words),
        cmocka_unit_test(ends_tell_whether_there_was_anything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
