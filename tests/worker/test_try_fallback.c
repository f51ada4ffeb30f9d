/* test_try_fallback.c - what is asked for each entry of a fallback list, and which answers are good (F12a). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"
#include "worker/try_fallback.h"

static struct text out;

static int set_up(void **state)
{
    (void)state;
    text_init(&out, 10000);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    text_release(&out);
    return 0;
}

static const char conf[] =
    "[source a]\nbase_url = https://a.example\n[source b]\nbase_url = https://b.example\n"
    "[scope main]\nsources = a\nfallback = small-model, spare, hidden\n"
    "[scope spare]\nsources = b\n[scope hidden]\nsources = b\n"
    "[route all]\nscope = main\n[route spare]\npath = /spare/v1/\nscope = spare\n"
    "[route pictures]\npath = /pictures/\nscope = hidden\nkind = image\n";

static const struct scope_options *scope_named(const struct options *options, const char *name)
{
    for (size_t i = 0; i < options->scope_count; i++)
        if (strcmp(options->scopes[i].name, name) == 0)
            return &options->scopes[i];
    fail_msg("no scope %s", name);
    return NULL;
}

/* For an entry of the scope main. */
static bool plan(const struct loading *loading, size_t entry, const char *model,
                 struct fallback_try *ret)
{
    const struct fallback_trial trial = {.options = loading->options,
                                         .scope = scope_named(loading->options, "main"),
                                         .model = model};

    return try_fallback_plan(&trial, &trial.scope->fallbacks[entry], ret, &out);
}

static void each_entry_is_asked_where_it_can_be_F12a(void **state)
{
    struct loading loading = load(conf);
    struct fallback_try try;

    (void)state;
    assert_non_null(loading.options);
    assert_int_equal(scope_named(loading.options, "main")->fallback_count, 3);
    assert_true(plan(&loading, 0, NULL, &try));
    assert_string_equal(try.path, "/v1/chat/completions");
    assert_string_equal(try.model, "small-model");
    assert_false(plan(&loading, 1, NULL, &try));
    assert_non_null(strstr(text_string(&out), "--model"));
    assert_true(plan(&loading, 1, "m", &try));
    assert_string_equal(try.path, "/spare/v1/chat/completions");
    assert_string_equal(try.model, "m");
    text_clear(&out);
    assert_false(plan(&loading, 2, "m", &try));
    assert_string_equal(text_string(&out), "no route for chat calls leads to scope hidden, so it "
                                           "cannot be tried from outside");
    unload(&loading);
}

/* A longer path of another route would catch the call. */
static void the_path_leads_to_that_scope_and_no_other(void **state)
{
    struct loading loading =
        load("[source a]\nbase_url = https://a.example\n"
             "[scope main]\nsources = a\nfallback = small\n[scope chat]\nsources = a\n"
             "[route all]\nscope = main\n[route chat]\npath = /v1/chat/\nscope = chat\n"
             "[route own]\npath = /own/\nscope = main\n");
    struct fallback_try try;

    (void)state;
    assert_non_null(loading.options);
    assert_true(plan(&loading, 0, NULL, &try));
    assert_string_equal(try.path, "/own/v1/chat/completions");
    unload(&loading);
}

static bool judge(int status, const char *body)
{
    const struct fastcgi_reply reply = {
        .status = status, .body = body, .body_length = strlen(body)};

    text_clear(&out);
    return try_fallback_judge(&reply, &out);
}

static void only_a_chat_answer_is_good_F12a(void **state)
{
    (void)state;
    assert_true(judge(200, "{\"model\":\"qwen-plus\",\"choices\":[{\"message\":{\"role\":"
                           "\"assistant\",\"content\":\"ready\"}}]}"));
    assert_string_equal(text_string(&out), "good: 200, answered by model qwen-plus");
    assert_false(judge(200, "{\"choices\":[]}"));
    assert_string_equal(text_string(&out), "bad: 200, but no chat answer");
    assert_false(judge(200, "{\"choices\":[{\"message\":{\"content\":\"re"));
    assert_false(judge(200, "<html>"));
    assert_false(judge(404, "{\"error\":{\"message\":\"no such\\u001b model\",\"code\":\"x\"}}"));
    assert_string_equal(text_string(&out), "bad: 404, no such? model");
    assert_false(judge(503, ""));
    assert_string_equal(text_string(&out), "bad: 503");
}

static void a_scope_without_fallback_is_told(void **state)
{
    struct loading loading = load(conf);

    (void)state;
    assert_non_null(loading.options);
    assert_false(try_fallback_run(loading.options, "spare", NULL, &out));
    assert_non_null(strstr(text_string(&out), "[scope spare] has no fallback"));
    text_clear(&out);
    assert_false(try_fallback_run(loading.options, "nowhere", NULL, &out));
    assert_string_equal(text_string(&out), "there is no [scope nowhere]\n");
    unload(&loading);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(each_entry_is_asked_where_it_can_be_F12a),
        TEST(the_path_leads_to_that_scope_and_no_other),
        TEST(only_a_chat_answer_is_good_F12a),
        TEST(a_scope_without_fallback_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
