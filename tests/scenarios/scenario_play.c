/*
 * scenario_play.c - plays a scenario: a false clock, attempts that do as they are told, an admission
 * like that of shared/sources.h without its breaker. What the plan says is compared with what is
 * expected, step by step; at the first difference it stops.
 */
#include "base/clock.h"
#include "base/text.h"
#include "tests/scenarios/scenario.h"

#include <inttypes.h>
#include <string.h>

struct row {
    unsigned source;
    bool taken_back;
    char word[24];
};

struct play {
    const struct scenario *scenario;
    struct complaint *complaint;
    struct plan plan;
    int64_t now_ns;
    const struct scenario_try *tries[PLAN_LANES]; /* NULL = the lane runs nothing */
    unsigned row_of[PLAN_LANES];
    unsigned started[SCENARIO_SOURCES]; /* attempts so far */
    struct row rows[SCENARIO_TRIES];
    unsigned row_count;
    unsigned next_step; /* of the expected ones */
    bool busy;          /* the last START was refused as busy: its repetitions are no news */
    int64_t generation_ms, ended_ns;
};

static const char *name_of(const struct play *play, unsigned source)
{
    return play->scenario->sources[source].name;
}

static bool is_within(const struct span *span, int64_t ns)
{
    return ns >= span->least_ns && ns <= span->most_ns;
}

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

/* Something has happened: is it what is expected next? until_ns: CLOCK_NEVER = without. */
static void observe_until(struct play *play, const char *text, int64_t until_ns)
{
    const struct scenario_step *step = &play->scenario->steps[play->next_step];
    bool has_until = until_ns != CLOCK_NEVER;
    char until[40] = "";

    if (has_until)
        (void)snprintf(until, sizeof until, " until %.3f", seconds(until_ns));
    if (play->next_step == play->scenario->step_count) {
        complain(play->complaint, "unexpected after the last step: at %.3f %s%s",
                 seconds(play->now_ns), text, until);
        return;
    }
    if (strcmp(step->text, text) != 0 || !is_within(&step->at, play->now_ns) ||
        step->has_until != has_until || (has_until && !is_within(&step->until, until_ns)))
        complain(play->complaint, "line %d: expected 'at %.3f %s', got 'at %.3f %s%s'", step->line,
                 seconds(step->at.least_ns), step->text, seconds(play->now_ns), text, until);
    play->next_step++;
}

static void observe(struct play *play, const char *what, const char *name)
{
    char text[SCENARIO_TEXT];

    (void)snprintf(text, sizeof text, "%s%s%s", what, *name == '\0' ? "" : " ", name);
    observe_until(play, text, CLOCK_NEVER);
}

/* ---- admission -------------------------------------------------------------------------------- */

static const char *refusal_name(enum plan_refusal refusal)
{
    static const char *const names[] = {[PLAN_REFUSED_NONE] = "refused none",
                                        [PLAN_REFUSED_OUT] = "refused out",
                                        [PLAN_REFUSED_QUOTA] = "refused quota",
                                        [PLAN_REFUSED_OPEN] = "refused open",
                                        [PLAN_REFUSED_BUSY] = "refused busy"};

    return names[refusal];
}

/* The first in order that can be had, those not yet tried before those that were; for a hedge neither
 * a tried one nor the primary's account. Returns the best refusal, or the candidate. */
static bool admit(const struct play *play, const struct plan_step *step, unsigned *ret_candidate,
                  enum plan_refusal *ret_refusal)
{
    const struct scenario *scenario = play->scenario;
    uint64_t never = step->excluded;

    *ret_refusal = PLAN_REFUSED_NONE;
    if (step->hedge)
        never |= step->tried | scenario->accounts[play->plan.lanes[0].candidate];
    for (unsigned pass = 0; pass < 2; pass++) {
        for (unsigned i = 0; i < scenario->source_count; i++) {
            const struct scenario_source *source = &scenario->sources[i];
            bool tried = (step->tried >> i & 1) != 0;

            if ((never >> i & 1) != 0 || tried != (pass == 1))
                continue;
            if (!source->refuses || play->now_ns < source->refuses_from_ns ||
                play->now_ns >= source->refuses_until_ns) {
                *ret_candidate = i;
                return true;
            }
            if (source->refusal > *ret_refusal)
                *ret_refusal = source->refusal;
        }
    }
    return false;
}

static int64_t earliest_ns(const struct play *play, enum plan_refusal refusal)
{
    int64_t earliest = CLOCK_NEVER;

    for (unsigned i = 0; i < play->scenario->source_count; i++) {
        const struct scenario_source *source = &play->scenario->sources[i];

        /* When a busy one has room again nobody can know. */
        if (source->refuses && source->refusal == refusal && refusal != PLAN_REFUSED_BUSY &&
            source->refuses_until_ns < earliest)
            earliest = source->refuses_until_ns;
    }
    return earliest;
}

static void start(struct play *play, const struct plan_step *step)
{
    unsigned source = 0;
    enum plan_refusal refusal = PLAN_REFUSED_NONE;
    const struct scenario_try *try = NULL;

    if (!admit(play, step, &source, &refusal)) {
        if (step->hedge)
            observe(play, "skip hedge", "");
        else if (refusal != PLAN_REFUSED_BUSY || !play->busy)
            observe(play, refusal_name(refusal), "");
        play->busy = !step->hedge && refusal == PLAN_REFUSED_BUSY;
        plan_not_admitted(&play->plan, step->lane, refusal, earliest_ns(play, refusal),
                          play->now_ns);
        return;
    }
    play->busy = false;
    observe(play, step->hedge ? "start hedge" : "start", name_of(play, source));
    play->started[source]++;
    for (unsigned i = 0; i < play->scenario->try_count; i++) {
        if (play->scenario->tries[i].source == source &&
            play->scenario->tries[i].n == play->started[source])
            try = &play->scenario->tries[i];
    }
    if (try == NULL || play->row_count == SCENARIO_TRIES) {
        complain(play->complaint, "no line says what try %s %u does", name_of(play, source),
                 play->started[source]);
        return;
    }
    play->tries[step->lane] = try;
    play->row_of[step->lane] = play->row_count;
    play->rows[play->row_count++] = (struct row){.source = source, .word = "?"};
    plan_started(&play->plan, step->lane, source, play->now_ns);
}

/* ---- attempts --------------------------------------------------------------------------------- */

static void end_row(struct play *play, unsigned lane, const char *word)
{
    (void)text_copy(play->rows[play->row_of[lane]].word, sizeof play->rows->word, word);
    play->tries[lane] = NULL;
}

static void cancel(struct play *play, const struct plan_step *step)
{
    const struct plan_lane *lane = &play->plan.lanes[step->lane];
    const char *why = step->why == PLAN_LOST ? "hedge_cancelled" : "deadline";
    bool unsent = step->lane == 1 && step->why == PLAN_LOST &&
                  play->now_ns < lane->started_ns + play->tries[step->lane]->sends_ns;

    observe(play,
            unsent                   ? "take back"
            : step->why == PLAN_LOST ? "cancel lost"
                                     : "cancel deadline",
            name_of(play, lane->candidate));
    play->rows[play->row_of[step->lane]].taken_back = unsent;
    end_row(play, step->lane, why);
    if (unsent)
        plan_taken_back(&play->plan, step->lane, play->now_ns);
    else
        plan_cancelled(&play->plan, step->lane, play->now_ns);
}

/* When the lane's attempt does something; CLOCK_NEVER = no more. */
static int64_t event_ns(const struct play *play, unsigned lane)
{
    if (play->tries[lane] == NULL || play->tries[lane]->what == TRY_HANGS ||
        play->plan.lanes[lane].state != LANE_RUNNING)
        return CLOCK_NEVER;
    return play->plan.lanes[lane].started_ns + play->tries[lane]->after_ns;
}

/* Let the attempts do what is due, the primary first. */
static void deliver(struct play *play)
{
    for (unsigned lane = 0; lane < PLAN_LANES; lane++) {
        const struct scenario_try *try = play->tries[lane];

        if (event_ns(play, lane) > play->now_ns)
            continue;
        if (try->what == TRY_CONTENT) {
            plan_content(&play->plan, lane, play->now_ns);
            continue;
        }
        end_row(play, lane, try->word);
        plan_failed(&play->plan, lane, &try->judgement, try->has_answer, play->now_ns);
    }
}

static void wait(struct play *play, const struct plan_step *step)
{
    int64_t until = step->until_ns;
    bool running = play->tries[0] != NULL || play->tries[1] != NULL;

    if (until <= play->now_ns) {
        complain(play->complaint, "at %.3f waits until %.3f", seconds(play->now_ns),
                 seconds(until));
        return;
    }
    if (until > play->scenario->terms.deadline_ns)
        complain(play->complaint, "waits past the deadline, until %.3f", seconds(until));
    for (unsigned lane = 0; lane < PLAN_LANES; lane++)
        until = event_ns(play, lane) < until ? event_ns(play, lane) : until;
    if (until == CLOCK_NEVER) {
        complain(play->complaint, "at %.3f waits for ever", seconds(play->now_ns));
        return;
    }
    if (!running && !(play->busy && until - play->now_ns <= PLAN_ADMISSION_TICK_MS * NS_PER_MS))
        observe_until(play, "wait", until);
    play->now_ns = until;
}

/* ---- the end ---------------------------------------------------------------------------------- */

/* The winner's answer goes to its end, come what may: nothing follows a commit. */
static void commit(struct play *play, unsigned lane)
{
    const struct scenario_try *try = play->tries[lane];

    observe(play, "commit", name_of(play, play->plan.lanes[lane].candidate));
    play->now_ns = play->plan.lanes[lane].started_ns + try->done_ns;
    play->generation_ms = try->done_ns / NS_PER_MS;
    end_row(play, lane, try->cut ? "cut" : "ok");
    if (plan_next(&play->plan, play->now_ns).what != PLAN_COMMIT)
        complain(play->complaint, "something follows the commit");
}

static void finish(struct play *play, const struct plan_step *step)
{
    static const char *const fails[] = {[PLAN_FAIL_DEADLINE] = "fail deadline",
                                        [PLAN_FAIL_TRANSPORT] = "fail transport",
                                        [PLAN_FAIL_CREDENTIAL] = "fail credential",
                                        [PLAN_FAIL_NO_SOURCE] = "fail no_source",
                                        [PLAN_FAIL_BUSY] = "fail busy"};
    const char *name = name_of(play, play->plan.lanes[step->lane].candidate);

    if (step->what == PLAN_COMMIT)
        commit(play, step->lane);
    else if (step->what == PLAN_ANSWER)
        observe(play, "answer", name);
    else if (step->what == PLAN_FALLBACK)
        observe(play, "fallback", "");
    else
        observe(play, fails[step->fail], step->fail == PLAN_FAIL_TRANSPORT ? name : "");
    play->ended_ns = play->now_ns;
}

/* "KEY VALUE KEY VALUE ...": those that are named are compared. */
static void compare_result(const struct play *play, const struct plan_step *end)
{
    const struct {
        const char *key;
        int64_t value;
    } values[] = {
        {"rounds", play->plan.rounds},
        {"retries", play->plan.retries},
        {"hedges", play->plan.hedges},
        {"skipped", play->plan.hedges_skipped},
        {"hedge_won", play->plan.hedge_won},
        {"units", play->plan.budget_used},
        {"stall_ms", play->plan.stall_ns / NS_PER_MS},
        {"retry_after_ms", end->retry_after_ms},
        {"should_retry", end->should_retry},
        {"generation_ms", play->generation_ms},
        {"total_ms", play->ended_ns / NS_PER_MS},
    };
    char text[SCENARIO_TEXT];
    char *rest = text;
    const char *key = NULL;

    (void)text_copy(text, sizeof text, play->scenario->result);
    while ((key = strtok_r(NULL, " ", &rest)) != NULL) {
        const char *word = strtok_r(NULL, " ", &rest);
        struct span span = {0, 0};
        size_t i = 0;

        while (i < LENGTH(values) && strcmp(values[i].key, key) != 0)
            i++;
        if (i == LENGTH(values) || word == NULL) {
            complain(play->complaint, "result: no such key, or no value: '%s'", key);
            return;
        }
        if (strcmp(word, "none") == 0)
            span = (struct span){-1, -1};
        else if (!span_read(word, NS_PER_US, &span))
            complain(play->complaint, "result: no number: '%s'", word);
        span.least_ns /= span.least_ns > 0 ? NS_PER_US : 1;
        span.most_ns /= span.most_ns > 0 ? NS_PER_US : 1;
        if (!is_within(&span, values[i].value))
            complain(play->complaint, "result: expected %s %s, got %" PRId64, key, word,
                     values[i].value);
    }
}

static void compare_rows(const struct play *play)
{
    const char *expected = play->scenario->rows;
    char text[SCENARIO_TEXT] = "";
    size_t length = 0;

    for (unsigned i = 0; i < play->row_count; i++) {
        if (!play->rows[i].taken_back && length < sizeof text)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s %s",
                                       length == 0 ? "" : ", ", name_of(play, play->rows[i].source),
                                       play->rows[i].word);
    }
    expected += strspn(expected, " ");
    if (strcmp(expected, text) != 0)
        complain(play->complaint, "rows: expected '%s', got '%s'", expected, text);
}

static void compare_end(const struct play *play, const struct plan_step *end)
{
    const struct scenario *scenario = play->scenario;

    if (play->next_step < scenario->step_count)
        complain(play->complaint, "line %d: never happened: '%s'",
                 scenario->steps[play->next_step].line, scenario->steps[play->next_step].text);
    if (scenario->result[0] != '\0')
        compare_result(play, end);
    if (scenario->rows[0] != '\0')
        compare_rows(play);
}

void scenario_play(const struct scenario *scenario, struct complaint *complaint)
{
    struct play play = {.scenario = scenario, .complaint = complaint};
    struct plan_terms terms = scenario->terms;

    complain(complaint, "%s", scenario->unreadable.text);
    terms.accounts = scenario->accounts;
    if (complaint->text[0] == '\0')
        plan_begin(&play.plan, &terms, scenario->seed);
    for (unsigned i = 0; complaint->text[0] == '\0'; i++) {
        struct plan_step step;

        deliver(&play);
        step = plan_next(&play.plan, play.now_ns);
        if (step.what == PLAN_START) {
            start(&play, &step);
        } else if (step.what == PLAN_CANCEL) {
            cancel(&play, &step);
        } else if (step.what == PLAN_WAIT) {
            wait(&play, &step);
        } else {
            finish(&play, &step);
            if (complaint->text[0] == '\0')
                compare_end(&play, &step);
            return;
        }
        if (i == 10000)
            complain(complaint, "no end");
    }
}
