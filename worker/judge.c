/* judge.c - what an answer, or the lack of one, means; see judge.h and judge_list.h. */
#include "worker/judge.h"

#include "base/parse.h"
#include "base/text.h"
#include "worker/judge_body.h"

#include <string.h>

static const char *const class_names[] = {
    [ATTEMPT_OK] = "ok",
    [ATTEMPT_THROTTLE] = "throttle",
    [ATTEMPT_QUOTA_DAY] = "quota_day",
    [ATTEMPT_MONEY] = "money",
    [ATTEMPT_CREDENTIAL] = "credential",
    [ATTEMPT_REQUEST] = "request",
    [ATTEMPT_TRANSIENT] = "transient",
    [ATTEMPT_UNSENT] = "unsent",
    [ATTEMPT_UNKNOWN] = "unknown",
    [ATTEMPT_OURS] = "ours",
};

const char *attempt_class_name(enum attempt_class class)
{
    return class_names[class];
}

/* ---- the rules ------------------------------------------------------------------------------- */

#define SECOND_MS INT64_C(1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS (60 * MINUTE_MS)
#define DAY_MS (24 * HOUR_MS)

#define LONG_WAIT_MS HOUR_MS
/* A day's quota that comes back so soon is worth waiting for: it is treated as throttling. */
#define SOON_MS MINUTE_MS
/* Who knows better puts the source in again (penstockctl). */
#define KEY_OUT_MS (10 * MINUTE_MS)
#define MONEY_OUT_MS HOUR_MS
#define DAY_OUT_MS HOUR_MS /* where the upstream does not say when its day ends */
#define OUT_MAX_MS DAY_MS

enum field { ALWAYS, NAME, TYPE, QUOTA, MESSAGE, LONG_WAIT, BARE, BARE_PROXY };
enum out { STAYS, KEY_OUT, MONEY_OUT, AS_TOLD, PACIFIC_DAY };

struct rule {
    const char *pattern;
    enum field field;
    enum attempt_class class;
    enum throttle_dimension dimension;
    enum out out;
    short low, high;
    bool in_stream;         /* also where there is no status */
    unsigned char dialects; /* one bit each */
};

#define DASHSCOPE (1U << DIALECT_DASHSCOPE)
#define AZURE (1U << DIALECT_AZURE)
/* Gemini also answers in OpenAI's dialect, with its own words for errors. */
#define GOOGLE (1U << DIALECT_GEMINI | 1U << DIALECT_OPENAI)
#define EVERY ((1U << DIALECT_PLAIN) * 2 - 1)
#define SPOKEN (EVERY & ~(1U << DIALECT_PLAIN))
#define FROM(low, high) low, high, false
#define ONLY(status) FROM(status, status)
#define ALL 0, 999, true
#define LIMITED 429, 429, true
#define IN_STREAM 0, 0, true

static const struct rule rules[] = {
#define RULE(dialects, statuses, field, pattern, class, dimension, out)                            \
    {pattern, field, ATTEMPT_##class, THROTTLE_##dimension, out, statuses, dialects},
#include "worker/judge_list.h"
#undef RULE
};

/* ---- one answer ------------------------------------------------------------------------------ */

struct facts {
    unsigned dialect;      /* its bit */
    int status;            /* 0 = an error in a stream that says none */
    int64_t wait_ms;       /* -1 = not said */
    bool bare, from_proxy; /* no error of a dialect; an intermediary's head */
    const struct judge_body *body;
};

static bool fits(const char *pattern, const char *word)
{
    return *word && parse_glob_matches(pattern, word, strlen(word));
}

static bool fits_name(const char *pattern, const struct judge_body *body)
{
    return fits(pattern, body->code) || fits(pattern, body->type) || fits(pattern, body->word) ||
           fits(pattern, body->inner) || fits(pattern, body->reason);
}

static bool field_fits(const struct rule *rule, const struct facts *facts)
{
    switch (rule->field) {
    case ALWAYS:
        return true;
    case NAME:
        return fits_name(rule->pattern, facts->body);
    case TYPE:
        return fits(rule->pattern, facts->body->type);
    case QUOTA:
        return fits(rule->pattern, facts->body->quotas);
    case MESSAGE:
        return !facts->bare && fits(rule->pattern, facts->body->message);
    case LONG_WAIT:
        return facts->wait_ms >= LONG_WAIT_MS;
    case BARE:
        return facts->bare;
    case BARE_PROXY:
        return facts->bare && facts->from_proxy;
    }
    UNREACHABLE();
}

static const struct rule *find_rule(const struct facts *facts)
{
    const struct rule *last = &rules[sizeof rules / sizeof *rules - 1];

    for (const struct rule *rule = rules; rule < last; rule++) {
        bool status_fits = facts->status == 0
                               ? rule->in_stream
                               : facts->status >= rule->low && facts->status <= rule->high;

        if (status_fits && (rule->dialects & facts->dialect) && field_fits(rule, facts))
            return rule;
    }
    return last; /* fits always, also a status that is none */
}

/* The day of Google's quotas ends at midnight in California: at 08:00 UTC, in summer an hour
 * earlier. The later one holds all year: too late costs an hour, too early another day. */
static int64_t until_pacific_midnight_ms(int64_t now_wall_ms)
{
    return DAY_MS - ((now_wall_ms - 8 * HOUR_MS) % DAY_MS + DAY_MS) % DAY_MS;
}

static void set_out(const struct rule *rule, int64_t now_wall_ms, struct judgement *ret)
{
    int64_t out_ms = 0;

    switch (rule->out) {
    case STAYS:
        break;
    case KEY_OUT:
        out_ms = KEY_OUT_MS;
        break;
    case MONEY_OUT:
        out_ms = MONEY_OUT_MS;
        break;
    case AS_TOLD:
        if (ret->retry_after_ms > 0 && ret->retry_after_ms <= SOON_MS)
            ret->class = ATTEMPT_THROTTLE;
        else
            out_ms = ret->retry_after_ms > 0 ? ret->retry_after_ms : DAY_OUT_MS;
        break;
    case PACIFIC_DAY:
        out_ms = now_wall_ms > 0 ? until_pacific_midnight_ms(now_wall_ms) : DAY_OUT_MS;
        if (ret->retry_after_ms < out_ms)
            ret->retry_after_ms = out_ms;
        break;
    }
    ret->out_ms = out_ms < OUT_MAX_MS ? out_ms : OUT_MAX_MS;
}

/* ---- the error's word ------------------------------------------------------------------------ */

static bool is_word_byte(char c)
{
    char lower = (char)(c | 0x20);

    return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
}

/* What is not a byte of a word becomes "_", once for several. False: no letter in it. */
static bool take_word(const char *from, struct judgement *ret)
{
    size_t length = 0;
    bool has_letter = false;

    for (; *from && length < sizeof ret->error - 1; from++) {
        char c = is_word_byte(*from) ? *from : '_';

        if (c == '_' && (length == 0 || ret->error[length - 1] == '_'))
            continue;
        ret->error[length++] = c;
        has_letter |= (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    }
    while (length > 0 && ret->error[length - 1] == '_')
        length--;
    ret->error[length] = '\0';
    return has_letter;
}

static void set_error(const struct judge_body *body, struct judgement *ret)
{
    const char *const words[] = {body->code, body->inner, body->reason, body->type, body->word};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (take_word(words[i], ret))
            return;
    (void)text_copy(ret->error, sizeof ret->error, attempt_class_name(ret->class));
}

/* ---- answers --------------------------------------------------------------------------------- */

static int64_t wait_of(const struct judge_hints *hints, const struct judge_body *body)
{
    int64_t wait_ms = hints->retry_after_ms;

    if (wait_ms <= 0)
        wait_ms = judge_hints_duration_ms(body->delay);
    if (wait_ms <= 0)
        wait_ms = judge_hints_sentence_ms(body->message);
    return wait_ms;
}

static bool may_be_billed(const struct judgement *judgement, int status)
{
    return judgement->class == ATTEMPT_UNKNOWN ||
           (judgement->class == ATTEMPT_TRANSIENT &&
            (status == 408 || status == 502 || status == 504));
}

void judge_answer(const struct judge_evidence *evidence, struct judgement *ret)
{
    const struct judge_hints *hints = evidence->hints;
    struct judge_body body = {0};
    bool is_error = evidence->status < 200 || evidence->status >= 400;

    if (evidence->body_bytes > 0 && evidence->dialect != DIALECT_PLAIN)
        judge_body_read(evidence->body, evidence->body_bytes, &body);
    *ret = (struct judgement){
        .class = ATTEMPT_OK, .retry_after_ms = -1, .should_retry = hints->should_retry};
    if (!is_error && body.shape != JUDGE_BODY_ERROR)
        return;

    struct facts facts = {
        .dialect = 1U << evidence->dialect,
        .status = is_error ? evidence->status : body.status,
        .wait_ms = wait_of(hints, &body),
        .bare = body.shape == JUDGE_BODY_NONE,
        .from_proxy = hints->intermediary,
        .body = &body,
    };
    const struct rule *rule = find_rule(&facts);
    ret->class = rule->class;
    ret->dimension = rule->dimension;
    ret->retry_after_ms = facts.wait_ms;
    set_out(rule, hints->now_wall_ms, ret);
    if (ret->class == ATTEMPT_THROTTLE && ret->dimension == THROTTLE_UNKNOWN)
        ret->dimension = hints->exhausted;
    ret->maybe_billed = may_be_billed(ret, facts.status);
    set_error(&body, ret);
}

/* ---- no answer ------------------------------------------------------------------------------- */

static const struct {
    enum attempt_class class; /* once something was sent */
    const char *error;
} outcomes[] = {
    [HTTP_RUNNING] = {ATTEMPT_UNKNOWN, "upstream_timeout"},
    [HTTP_COMPLETE] = {ATTEMPT_TRANSIENT, "upstream_empty"},
    [HTTP_NOT_SENT] = {ATTEMPT_UNSENT, "upstream_connect"},
    [HTTP_CONNECT_TIMEOUT] = {ATTEMPT_UNSENT, "upstream_connect_timeout"},
    [HTTP_NO_ANSWER] = {ATTEMPT_UNKNOWN, "upstream_no_answer"},
    [HTTP_CUT] = {ATTEMPT_UNKNOWN, "upstream_cut"},
    [HTTP_BAD_ANSWER] = {ATTEMPT_UNKNOWN, "upstream_bad_answer"},
    [HTTP_BODY_FAILED] = {ATTEMPT_OURS, "body_failed"},
    [HTTP_ABORTED] = {ATTEMPT_OURS, "aborted"},
    [HTTP_OUT_OF_MEMORY] = {ATTEMPT_OURS, "out_of_memory"},
};

void judge_transport(enum http_outcome outcome, bool sent, struct judgement *ret)
{
    enum attempt_class class = outcomes[outcome].class;

    if (!sent && class == ATTEMPT_UNKNOWN)
        class = ATTEMPT_UNSENT;
    *ret = (struct judgement){.class = class,
                              .retry_after_ms = -1,
                              .should_retry = -1,
                              .maybe_billed = class == ATTEMPT_UNKNOWN};
    (void)text_copy(ret->error, sizeof ret->error, outcomes[outcome].error);
}
