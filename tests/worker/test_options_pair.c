/* test_options_pair.c - model aliases and headers of a source. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

#define ALIASES "t.conf:3: source a.model_aliases: "
#define ALIASES_ALLOWED "; allowed: ASKED=SERVED, such as gpt-5=my-deployment\n"
#define HEADERS "t.conf:3: source a.add_headers: "
#define HEADERS_ALLOWED "; allowed: NAME=VALUE, such as x-team=search\n"

static void check_all(const struct load_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_load_case(&cases[i]);
}

static void test_pairs_are_taken_apart(void **state)
{
    struct loading loading =
        load(WITH_SOURCE "model_aliases = gpt-5 = my dep, openai/o3=x/y:z=1\n"
                         "add_headers = X-Team= a b ,api-version=2024-10=01\n"
                         "[source b]\nbase_url = https://b\n" ROUTE_PAST("a") ROUTE_PAST("b"));
    const struct source_options *source = &loading.options->sources[0];

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_string_equal(source->aliases[0].name, "gpt-5");
    assert_string_equal(source->aliases[0].value, "my dep");
    assert_string_equal(source->aliases[1].name, "openai/o3");
    assert_string_equal(source->aliases[1].value, "x/y:z=1");
    assert_null(source->aliases[2].name);
    assert_string_equal(source->extra_headers[0].name, "X-Team");
    assert_string_equal(source->extra_headers[0].value, "a b");
    assert_string_equal(source->extra_headers[1].name, "api-version");
    assert_string_equal(source->extra_headers[1].value, "2024-10=01");
    assert_null(source->extra_headers[2].name);
    /* none: an end, never NULL */
    assert_null(loading.options->sources[1].aliases[0].name);
    assert_null(loading.options->sources[1].extra_headers[0].name);
    unload(&loading);
}

static void test_aliases_that_are_wrong(void **state)
{
    static const struct load_case cases[] = {
        {WITH_SOURCE "model_aliases = gpt-5",
         ALIASES "\"gpt-5\" is no pair of names" ALIASES_ALLOWED, true},
        {WITH_SOURCE "model_aliases = =x", ALIASES "\"=x\" is no pair of names" ALIASES_ALLOWED,
         true},
        {WITH_SOURCE "model_aliases = x =", ALIASES "\"x =\" is no pair of names" ALIASES_ALLOWED,
         true},
        {WITH_SOURCE "model_aliases = a=b,c=d,a=e",
         ALIASES "\"a=e\" is the second for the same model" ALIASES_ALLOWED, true},
        {WITH_SOURCE "model_aliases = a\\b=c",
         ALIASES "\"a\\b=c\" has a character that no model's name has" ALIASES_ALLOWED, true},
        {WITH_SOURCE "model_aliases = a\"b=b",
         ALIASES "\"a\"b=b\" has a character that no model's name has" ALIASES_ALLOWED, true},
        {WITH_SOURCE "model_aliases = a=b\xff",
         ALIASES "\"a=b?\" has a character that no model's name has" ALIASES_ALLOWED, true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_model_names_are_bounded(void **state)
{
    char name[300];

    (void)state;
    memset(name, 'm', sizeof name);
    name[256] = '\0';
    assert_string_equal(option_model_problem(name), "is longer than 255 bytes");
    name[255] = '\0';
    assert_null(option_model_problem(name));
}

static void test_headers_that_are_wrong(void **state)
{
    static const struct load_case cases[] = {
        {WITH_SOURCE "add_headers = x-team",
         HEADERS "\"x-team\" is no name with a value" HEADERS_ALLOWED, true},
        {WITH_SOURCE "add_headers = x-team=",
         HEADERS "\"x-team=\" is no name with a value" HEADERS_ALLOWED, true},
        {WITH_SOURCE "add_headers = x team=a",
         HEADERS "\"x team\" has a name that no header can have" HEADERS_ALLOWED, true},
        {WITH_SOURCE "add_headers = x:y=a",
         HEADERS "\"x:y\" has a name that no header can have" HEADERS_ALLOWED, true},
        {WITH_SOURCE "add_headers = x=a\tb",
         HEADERS "\"x\" has a character that is not printable ASCII" HEADERS_ALLOWED, true},
        {WITH_SOURCE "add_headers = x=\xc3\xa4",
         HEADERS "\"x\" has a character that is not printable ASCII" HEADERS_ALLOWED, true},
        {WITH_SOURCE "add_headers = x=1, y=2, X=3",
         HEADERS "\"X\" is the second of this name" HEADERS_ALLOWED, true},
        {WITH_SOURCE "add_headers = a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1,j=1,k=1,l=1,m=1,n=1,o=1,"
                     "p=1,q=1",
         HEADERS "\"q\" is one too many: 16 headers are the most" HEADERS_ALLOWED, true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

/* A line break ends a header and begins what an attacker likes. */
static void test_line_breaks_never_get_into_a_header(void **state)
{
    static const char *const breaks[] = {"\r\n", "\n", "\r"};

    (void)state;
    for (size_t i = 0; i < LENGTH(breaks); i++) {
        char variable[200];
        const char *environment[] = {variable, NULL};
        struct loading loading;

        (void)snprintf(variable, sizeof variable, "PENSTOCK__SOURCE__A__ADD_HEADERS=x=a%sHost: b",
                       breaks[i]);
        loading = load_with(WITH_SOURCE, environment);
        assert_string_equal(report_of(&loading),
                            "environment: PENSTOCK__SOURCE__A__ADD_HEADERS: source a.add_headers: "
                            "the value has a control character\n");
        assert_null(loading.options);
        unload(&loading);
    }
}

static void test_headers_of_connection_and_body_are_not_for_the_configuration(void **state)
{
    static const char *const names[] = {
        "Host",   "content-length", "Transfer-Encoding", "CONNECTION",       "keep-alive",
        "TE",     "Trailer",        "Upgrade",           "Proxy-Connection", "proxy-authorization",
        "Expect", "Content-Type",   "Content-Encoding",  "Accept-Encoding",
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(names); i++) {
        char conf[200];
        char report[300];
        struct loading loading;

        (void)snprintf(conf, sizeof conf, WITH_SOURCE "add_headers = %s=x\n", names[i]);
        (void)snprintf(report, sizeof report,
                       HEADERS "\"%s\" names a header that belongs to the connection or the "
                               "body" HEADERS_ALLOWED,
                       names[i]);
        loading = load(conf);
        assert_string_equal(report_of(&loading), report);
        assert_null(loading.options);
        unload(&loading);
    }
}

static void test_key_in_a_header_is_an_error_beside_api_key_else_a_warning(void **state)
{
    static const char *const environment[] = {"K=k", NULL};
    static const char *const names[] = {"Authorization", "x-api-key", "api-key", "X-Goog-Api-Key"};

    (void)state;
    for (size_t i = 0; i < LENGTH(names); i++) {
        char conf[200];
        char report[300];
        struct loading loading;

        (void)snprintf(conf, sizeof conf, WITH_SOURCE "add_headers = %s=s3cret\napi_key = @env:K\n",
                       names[i]);
        (void)snprintf(report, sizeof report,
                       HEADERS
                       "\"%s\" names a header for a key, and api_key is set" HEADERS_ALLOWED,
                       names[i]);
        loading = load_with(conf, environment);
        assert_string_equal(report_of(&loading), report);
        assert_null(loading.options);
        unload(&loading);

        (void)snprintf(conf, sizeof conf, WITH_SOURCE "add_headers = %s=s3cret\n", names[i]);
        (void)snprintf(report, sizeof report,
                       "t.conf:3: warning: source a.add_headers: whoever reads this file or "
                       "penstockd -T sees the key in \"%s\"; use api_key = @file:PATH\n",
                       names[i]);
        loading = load(conf);
        assert_string_equal(report_of(&loading), report);
        assert_non_null(loading.options);
        unload(&loading);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_are_taken_apart),
        cmocka_unit_test(test_aliases_that_are_wrong),
        cmocka_unit_test(test_model_names_are_bounded),
        cmocka_unit_test(test_headers_that_are_wrong),
        cmocka_unit_test(test_line_breaks_never_get_into_a_header),
        cmocka_unit_test(test_headers_of_connection_and_body_are_not_for_the_configuration),
        cmocka_unit_test(test_key_in_a_header_is_an_error_beside_api_key_else_a_warning),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
