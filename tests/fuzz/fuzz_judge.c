/*
 * fuzz_judge.c - a byte (dialect, stream), a byte (status), header lines up to an empty one, then a
 * body: the judgement is one of those there are, takes a source out only for what may, for a day at
 * most, tells a wait within its bound and a clean word; and the words are read within their places.
 */
#include "base/check.h"
#include "worker/judge.h"
#include "worker/judge_body.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const short statuses[] = {200, 204, 302, 400, 401, 402, 403, 404, 408, 409, 413, 422,
                                 429, 499, 500, 501, 502, 503, 504, 520, 524, 529, 599, 0};

#define NOW_MS INT64_C(1796040000000)
#define DAY_MS (INT64_C(24) * 3600 * 1000)

/* The head's lines from data; the number of bytes it takes. */
static size_t read_head(const uint8_t *data, size_t size, struct judge_hints *hints)
{
    size_t at = 0;

    judge_hints_begin(hints);
    while (at < size) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t length = end ? (size_t)(end - data) - at : size - at;
        char line[256], *value;

        if (length == 0)
            return at + 1;
        if (length >= sizeof line)
            length = sizeof line - 1;
        memcpy(line, data + at, length);
        line[length] = '\0';
        value = strchr(line, ':');
        if (value) {
            *value++ = '\0';
            judge_hints_read(hints, line, value + (*value == ' '), NOW_MS);
        }
        at = end ? (size_t)(end - data) + 1 : size;
    }
    return size;
}

static bool is_clean(const char *word)
{
    return strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
           strlen(word);
}

static void check(const struct judgement *judgement)
{
    bool may_be_out = judgement->class == ATTEMPT_QUOTA_DAY || judgement->class == ATTEMPT_MONEY ||
                      judgement->class == ATTEMPT_CREDENTIAL;

    REQUIRE(*attempt_class_name(judgement->class));
    REQUIRE(judgement->class != ATTEMPT_UNSENT && judgement->class != ATTEMPT_OURS);
    REQUIRE(memchr(judgement->error, '\0', sizeof judgement->error) != NULL);
    REQUIRE(is_clean(judgement->error));
    REQUIRE((judgement->class == ATTEMPT_OK) == (*judgement->error == '\0'));
    REQUIRE(judgement->retry_after_ms == -1 ||
            (judgement->retry_after_ms > 0 && judgement->retry_after_ms <= JUDGE_WAIT_MAX_MS));
    REQUIRE(judgement->out_ms >= 0 && judgement->out_ms <= DAY_MS);
    REQUIRE(judgement->out_ms == 0 || may_be_out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct judge_hints hints;
    struct judgement judgement, again;
    struct judge_body body;

    if (size < 2)
        return 0;
    size_t head_bytes = read_head(data + 2, size - 2, &hints);
    struct judge_evidence evidence = {
        .dialect = (enum dialect_name)((data[0] & 7) % (DIALECT_PLAIN + 1)),
        .status = statuses[data[1] % (sizeof statuses / sizeof *statuses)],
        .stream = data[0] & 8,
        .body = (const char *)data + 2 + head_bytes,
        .body_bytes = size - 2 - head_bytes,
        .hints = &hints,
    };

    judge_answer(&evidence, &judgement);
    check(&judgement);
    judge_body_read(evidence.body, evidence.body_bytes, &body);
    REQUIRE(strlen(body.code) < sizeof body.code && strlen(body.message) < sizeof body.message);
    REQUIRE(strlen(body.quotas) < sizeof body.quotas && strlen(body.delay) < sizeof body.delay);
    REQUIRE(body.status == 0 || (body.status >= 400 && body.status <= 599));
    if (evidence.dialect == DIALECT_PLAIN) {
        evidence.body_bytes = 0;
        judge_answer(&evidence, &again);
        REQUIRE(again.class == judgement.class && again.out_ms == judgement.out_ms);
    }
    return 0;
}
