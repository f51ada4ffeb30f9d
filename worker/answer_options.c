/* answer_options.c - what a request says about its answer; see answer_options.h. */
#include "worker/answer_options.h"

#include "base/check.h"
#include "base/parse.h"

#include <string.h>

#define MAX_OUTPUT_MAX (INT64_C(1) << 40) /* what is larger means no bound in practice */
#define CHOICES_MAX 1024
#define SECONDS_MAX 86400

void answer_options_begin(struct answer_options *options)
{
    *options =
        (struct answer_options){.max_output = -1, .choices = 1, .seconds = -1, .body_at = -1};
}

static int64_t whole_number(const char *text, size_t length, int64_t most)
{
    uint64_t number;

    if (!parse_u64_bytes(text, length, &number))
        return -1;
    return number > (uint64_t)most ? most : (int64_t)number;
}

static void take_max_output(struct answer_options *options, const struct json_value *value)
{
    int64_t number = -1;

    if (value->kind == JSON_NUMBER)
        number = whole_number(value->text, value->text_length, MAX_OUTPUT_MAX);
    if (number > options->max_output)
        options->max_output = number;
}

static void take_choices(struct answer_options *options, const char *text, size_t length)
{
    int64_t number = whole_number(text, length, CHOICES_MAX);

    if (number > 0)
        options->choices = number;
}

static void take_seconds(struct answer_options *options, const char *text, size_t length)
{
    uint64_t number;

    if (parse_rounded_up(text, length, &number) && number > 0)
        options->seconds = number > SECONDS_MAX ? SECONDS_MAX : (int64_t)number;
}

static void count_key(unsigned char *seen)
{
    *seen = *seen == 0 ? 1 : 2;
}

static void take_stream_options(struct answer_options *options, const struct json_value *value)
{
    if (value->kind == JSON_OBJECT_END) {
        options->options_empty = value->empty;
        return;
    }
    count_key(&options->options);
    options->options_at = (int64_t)value->at;
    options->options_null = value->kind == JSON_NULL;
    if (value->kind != JSON_OBJECT && value->kind != JSON_NULL)
        options->odd = true;
}

static void take_include_usage(struct answer_options *options, const struct json_value *value)
{
    count_key(&options->usages);
    options->usage_at = (int64_t)value->at;
    options->asked = value->kind == JSON_TRUE;
    options->usage_bytes = value->kind == JSON_NULL ? 4 : 5; /* null, false */
    if (value->kind != JSON_TRUE && value->kind != JSON_FALSE && value->kind != JSON_NULL)
        options->odd = true;
}

void answer_options_take(struct answer_options *options, enum answer_option option,
                         const struct json_value *value)
{
    switch (option) {
    case ANSWER_BODY:
        if (value->kind == JSON_OBJECT)
            options->body_at = (int64_t)value->at;
        break;
    case ANSWER_MAX_OUTPUT:
        take_max_output(options, value);
        break;
    case ANSWER_CHOICES:
        if (value->kind == JSON_NUMBER)
            take_choices(options, value->text, value->text_length);
        break;
    case ANSWER_SECONDS: /* some want it in a string */
        take_seconds(options, value->text, value->text_length);
        break;
    case ANSWER_STREAM:
        count_key(&options->streams);
        break;
    case ANSWER_STREAM_OPTIONS:
        take_stream_options(options, value);
        break;
    case ANSWER_INCLUDE_USAGE:
        take_include_usage(options, value);
        break;
    }
}

void answer_options_take_field(struct answer_options *options, const char *name, const char *value,
                               size_t length)
{
    if (strcmp(name, "n") == 0)
        take_choices(options, value, length);
    else if (strcmp(name, "seconds") == 0)
        take_seconds(options, value, length);
}

int64_t answer_options_max_output(const struct answer_options *options)
{
    return options->max_output < 0 ? -1 : options->max_output * options->choices;
}

enum usage_place answer_options_usage(const struct answer_options *options, int64_t *ret_at,
                                      int64_t *ret_bytes)
{
    bool repeated = options->streams > 1 || options->options > 1 || options->usages > 1;

    *ret_at = -1;
    *ret_bytes = 0;
    if (options->odd || repeated || options->body_at < 0)
        return USAGE_UNFIT;
    if (options->asked)
        return USAGE_ASKED;
    if (options->usages > 0) {
        *ret_at = options->usage_at;
        *ret_bytes = options->usage_bytes;
        return USAGE_VALUE;
    }
    if (options->options == 0) {
        *ret_at = options->body_at + 1;
        return USAGE_BODY;
    }
    if (options->options_null) {
        *ret_at = options->options_at;
        *ret_bytes = 4;
        return USAGE_NULL;
    }
    *ret_at = options->options_at + 1;
    return options->options_empty ? USAGE_EMPTY : USAGE_OPTIONS;
}
