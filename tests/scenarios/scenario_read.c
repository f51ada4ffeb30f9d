/*
 * scenario_read.c - a scenario file's lines into structs. Strict: a word it does not know makes the
 * scenario unreadable, and so failed.
 */
#include "base/clock.h"
#include "base/parse.h"
#include "base/text.h"
#include "tests/scenarios/scenario.h"

#include <stdarg.h>
#include <string.h>

void complain(struct complaint *complaint, const char *format, ...)
{
    va_list arguments;

    if (complaint->text[0] != '\0')
        return;
    va_start(arguments, format);
    (void)vsnprintf(complaint->text, sizeof complaint->text, format, arguments);
    va_end(arguments);
}

/* The words of one line, read from left to right. */
struct words {
    struct scenario *scenario;
    char *rest;
    int line;
};

static const char *next_word(struct words *words)
{
    const char *word = strtok_r(NULL, " \t\n", &words->rest);

    return word == NULL ? "" : word;
}

static void unreadable(struct words *words, const char *what, const char *word)
{
    complain(&words->scenario->unreadable, "line %d: %s: '%s'", words->line, what, word);
}

bool span_read(const char *word, int64_t unit_ns, struct span *ret)
{
    char least[32];
    const char *dots = strstr(word, "..");
    int64_t least_us = 0;
    int64_t most_us = 0;

    if (!text_copy(least, sizeof least, word))
        return false;
    if (dots != NULL)
        least[dots - word] = '\0';
    /* The reader's "milliseconds" are taken for microseconds here. */
    if (!parse_duration_ms(least, unit_ns / NS_PER_US, &least_us) ||
        !parse_duration_ms(dots == NULL ? least : dots + 2, unit_ns / NS_PER_US, &most_us))
        return false;
    *ret = (struct span){least_us * NS_PER_US, most_us * NS_PER_US};
    return true;
}

static int64_t next_time(struct words *words)
{
    const char *word = next_word(words);
    struct span span = {0, 0};

    if (!span_read(word, NS_PER_S, &span) || span.least_ns != span.most_ns)
        unreadable(words, "no time", word);
    return span.least_ns;
}

static uint64_t next_count(struct words *words)
{
    const char *word = next_word(words);
    uint64_t count = 0;

    if (!parse_u64(word, &count))
        unreadable(words, "no number", word);
    return count;
}

static bool next_switch(struct words *words)
{
    const char *word = next_word(words);
    bool value = false;

    if (!parse_bool(word, &value))
        unreadable(words, "neither yes nor no", word);
    return value;
}

static unsigned next_source(struct words *words)
{
    const char *word = next_word(words);

    for (unsigned i = 0; i < words->scenario->source_count; i++) {
        if (strcmp(words->scenario->sources[i].name, word) == 0)
            return i;
    }
    unreadable(words, "no such source", word);
    return 0;
}

enum term_kind { TERM_TIME, TERM_COUNT, TERM_SWITCH };

static const struct term {
    const char *name;
    enum term_kind kind;
    size_t offset;
} term_names[] = {
    {"budget", TERM_COUNT, offsetof(struct plan_terms, retry_budget)},
    {"fallbacks", TERM_COUNT, offsetof(struct plan_terms, fallbacks)},
    {"throttle_retries", TERM_SWITCH, offsetof(struct plan_terms, throttle_retries)},
    {"retry_unknown", TERM_SWITCH, offsetof(struct plan_terms, retry_unknown_outcome)},
    {"image", TERM_SWITCH, offsetof(struct plan_terms, is_image)},
    {"hedge_after", TERM_TIME, offsetof(struct plan_terms, hedge_after_ns)},
    {"stall_budget", TERM_TIME, offsetof(struct plan_terms, stall_budget_ns)},
    {"backoff_base", TERM_TIME, offsetof(struct plan_terms, backoff_base_ns)},
    {"backoff_max", TERM_TIME, offsetof(struct plan_terms, backoff_max_ns)},
    {"retry_hold", TERM_TIME, offsetof(struct plan_terms, retry_hold_ns)},
    {"deadline", TERM_TIME, offsetof(struct plan_terms, deadline_ns)},
};

static void read_term(struct words *words, const struct term *term)
{
    char *field = (char *)&words->scenario->terms + term->offset;
    int64_t time_ns;
    unsigned count;
    bool value;

    switch (term->kind) {
    case TERM_TIME:
        time_ns = next_time(words);
        memcpy(field, &time_ns, sizeof time_ns);
        break;
    case TERM_COUNT:
        count = (unsigned)next_count(words);
        memcpy(field, &count, sizeof count);
        break;
    case TERM_SWITCH:
        value = next_switch(words);
        memcpy(field, &value, sizeof value);
        break;
    }
}

static void read_terms(struct words *words)
{
    for (const char *word = next_word(words); *word != '\0'; word = next_word(words)) {
        size_t i = 0;

        if (strcmp(word, "seed") == 0) {
            words->scenario->seed = next_count(words);
            continue;
        }
        if (strcmp(word, "may_hedge") == 0) {
            words->scenario->terms.may_hedge = next_switch(words);
            words->scenario->may_hedge_is_set = true;
            continue;
        }
        while (i < LENGTH(term_names) && strcmp(term_names[i].name, word) != 0)
            i++;
        if (i == LENGTH(term_names)) {
            unreadable(words, "no such term", word);
            return;
        }
        read_term(words, &term_names[i]);
    }
}

static const struct {
    const char *word;
    enum plan_refusal refusal;
} refusals[] = {{"out", PLAN_REFUSED_OUT},
                {"quota", PLAN_REFUSED_QUOTA},
                {"open", PLAN_REFUSED_OPEN},
                {"busy", PLAN_REFUSED_BUSY}};

/* source NAME [account NAME] [out|quota|open|busy [from T] [until T]] */
static void read_source(struct words *words)
{
    struct scenario_source *source = &words->scenario->sources[words->scenario->source_count];
    const char *word = next_word(words);

    if (*word == '\0' || words->scenario->source_count == SCENARIO_SOURCES ||
        !text_copy(source->name, sizeof source->name, word)) {
        unreadable(words, "no name, too long a name, or too many sources", word);
        return;
    }
    words->scenario->source_count++;
    (void)text_copy(source->account, sizeof source->account, source->name);
    for (word = next_word(words); *word != '\0'; word = next_word(words)) {
        size_t i = 0;

        if (strcmp(word, "account") == 0) {
            (void)text_copy(source->account, sizeof source->account, next_word(words));
            continue;
        }
        if (strcmp(word, "from") == 0) {
            source->refuses_from_ns = next_time(words);
            continue;
        }
        if (strcmp(word, "until") == 0) {
            source->refuses_until_ns = next_time(words);
            continue;
        }
        while (i < LENGTH(refusals) && strcmp(refusals[i].word, word) != 0)
            i++;
        if (i == LENGTH(refusals)) {
            unreadable(words, "no word of a source", word);
            return;
        }
        source->refuses = true;
        source->refusal = refusals[i].refusal;
        source->refuses_until_ns = CLOCK_NEVER;
    }
}

static const struct {
    const char *word;
    enum attempt_class class;
    bool has_answer;
} failures[] = {
    {"throttle", ATTEMPT_THROTTLE, true}, {"quota_day", ATTEMPT_QUOTA_DAY, true},
    {"money", ATTEMPT_MONEY, true},       {"credential", ATTEMPT_CREDENTIAL, true},
    {"request", ATTEMPT_REQUEST, true},   {"transient", ATTEMPT_TRANSIENT, true},
    {"unsent", ATTEMPT_UNSENT, false},    {"unknown", ATTEMPT_UNKNOWN, false},
    {"ours", ATTEMPT_OURS, false},
};

static bool read_failure(struct scenario_try *try, const char *word)
{
    for (size_t i = 0; i < LENGTH(failures); i++) {
        if (strcmp(failures[i].word, word) != 0)
            continue;
        try->what = TRY_FAILS;
        try->has_answer = failures[i].has_answer;
        try->judgement.class = failures[i].class;
        return text_copy(try->word, sizeof try->word, word);
    }
    return false;
}

/* One word of a try's line, with its value. */
static void read_try_word(struct words *words, struct scenario_try *try, const char *word)
{
    if (read_failure(try, word)) {
        ;
    } else if (strcmp(word, "content") == 0) {
        try->what = TRY_CONTENT;
    } else if (strcmp(word, "hang") == 0) {
        try->what = TRY_HANGS;
    } else if (strcmp(word, "after") == 0) {
        try->after_ns = next_time(words);
        try->done_ns = try->done_ns < try->after_ns ? try->after_ns : try->done_ns;
    } else if (strcmp(word, "sent") == 0) {
        try->sends_ns = next_time(words);
    } else if (strcmp(word, "done") == 0 || strcmp(word, "cut") == 0) {
        try->cut = word[0] == 'c';
        try->done_ns = next_time(words);
    } else if (strcmp(word, "retry_after") == 0) {
        try->judgement.retry_after_ms = next_time(words) / NS_PER_MS;
    } else if (strcmp(word, "out") == 0) {
        try->judgement.out_ms = next_time(words) / NS_PER_MS;
    } else if (strcmp(word, "should_retry") == 0) {
        try->judgement.should_retry = next_switch(words) ? 1 : 0;
    } else if (strcmp(word, "no_answer") == 0) {
        try->has_answer = false;
    } else {
        unreadable(words, "no word of a try", word);
    }
}

static void read_try(struct words *words)
{
    struct scenario_try *try = &words->scenario->tries[words->scenario->try_count];

    if (words->scenario->try_count == SCENARIO_TRIES) {
        unreadable(words, "too many tries", "");
        return;
    }
    words->scenario->try_count++;
    *try = (struct scenario_try){.judgement = {.retry_after_ms = -1, .should_retry = -1}};
    try->source = next_source(words);
    try->n = (unsigned)next_count(words);
    for (const char *word = next_word(words); *word != '\0'; word = next_word(words))
        read_try_word(words, try, word);
}

/* at T STEP, or at T wait until T */
static void read_step(struct words *words)
{
    struct scenario_step *step = &words->scenario->steps[words->scenario->step_count];
    const char *word = next_word(words);
    size_t length = 0;

    if (words->scenario->step_count == SCENARIO_STEPS) {
        unreadable(words, "too many steps", "");
        return;
    }
    words->scenario->step_count++;
    step->line = words->line;
    if (!span_read(word, NS_PER_S, &step->at))
        unreadable(words, "no time", word);
    for (word = next_word(words); *word != '\0'; word = next_word(words)) {
        if (strcmp(word, "until") == 0) {
            word = next_word(words);
            step->has_until = true;
            if (!span_read(word, NS_PER_S, &step->until))
                unreadable(words, "no time", word);
            continue;
        }
        length += (size_t)snprintf(step->text + length, sizeof step->text - length, "%s%s",
                                   length == 0 ? "" : " ", word);
        if (length >= sizeof step->text) {
            unreadable(words, "too long", word);
            return;
        }
    }
}

static void read_line(struct words *words, const char *word)
{
    struct scenario *scenario = words->scenario;
    char *text = NULL;

    if (strcmp(word, "terms") == 0) {
        read_terms(words);
    } else if (strcmp(word, "source") == 0) {
        read_source(words);
    } else if (strcmp(word, "try") == 0) {
        read_try(words);
    } else if (strcmp(word, "at") == 0) {
        read_step(words);
    } else if (strcmp(word, "result") == 0) {
        text = scenario->result;
    } else if (strcmp(word, "rows") == 0) {
        text = scenario->rows;
    } else if (strcmp(word, "breaks") == 0) {
        text = scenario->breaks;
    } else {
        unreadable(words, "no such line", word);
    }
    if (text != NULL && (*words->rest == '\0' || !text_copy(text, SCENARIO_TEXT, words->rest)))
        unreadable(words, "nothing, or too long", word);
}

/* What follows from the sources. */
static void complete(struct scenario *scenario)
{
    struct plan_terms *terms = &scenario->terms;

    terms->candidates = scenario->source_count;
    if (!scenario->may_hedge_is_set)
        terms->may_hedge = terms->hedge_after_ns != CLOCK_NEVER && terms->candidates > 1;
    for (unsigned i = 0; i < scenario->source_count; i++) {
        for (unsigned j = 0; j < scenario->source_count; j++) {
            if (strcmp(scenario->sources[i].account, scenario->sources[j].account) == 0)
                scenario->accounts[i] |= UINT64_C(1) << j;
        }
    }
    if (scenario->source_count == 0)
        complain(&scenario->unreadable, "no source");
    if (scenario->step_count == 0)
        complain(&scenario->unreadable, "nothing is expected");
}

static void begin(struct scenario *scenario, const char *label, const char *name)
{
    *scenario = (struct scenario){.seed = 1};
    scenario->terms = (struct plan_terms){.retry_budget = 2,
                                          .throttle_retries = true,
                                          .hedge_after_ns = CLOCK_NEVER,
                                          .stall_budget_ns = 1200 * NS_PER_S,
                                          .backoff_base_ns = NS_PER_S / 2,
                                          .backoff_max_ns = 8 * NS_PER_S,
                                          .retry_hold_ns = CLOCK_NEVER,
                                          .deadline_ns = CLOCK_NEVER};
    if ((size_t)snprintf(scenario->name, sizeof scenario->name, "%s: %s", label, name) >=
        sizeof scenario->name)
        complain(&scenario->unreadable, "too long a name");
}

/* A scenario begins with its line "scenario NAME" and ends before the next. */
bool scenario_read(FILE *file, int *line, const char *label, struct scenario *ret)
{
    static const char head[] = "scenario ";
    char buffer[512];
    bool found = false;
    long here = ftell(file);

    while (fgets(buffer, sizeof buffer, file) != NULL) {
        char *comment = strchr(buffer, '#');
        struct words words = {.scenario = ret, .line = *line + 1};
        char *word = NULL;

        if (comment != NULL)
            *comment = '\0';
        buffer[strcspn(buffer, "\n")] = '\0';
        if (strncmp(buffer, head, sizeof head - 1) == 0) {
            if (found) {
                (void)fseek(file, here, SEEK_SET);
                break;
            }
            found = true;
            begin(ret, label, buffer + sizeof head - 1);
        } else if ((word = strtok_r(buffer, " \t", &words.rest)) != NULL) {
            if (!found) {
                found = true;
                begin(ret, label, "?");
            }
            read_line(&words, word);
        }
        ++*line;
        here = ftell(file);
    }
    if (found)
        complete(ret);
    return found;
}
