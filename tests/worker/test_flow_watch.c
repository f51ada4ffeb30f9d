/* test_flow_watch.c - which states of controllers become events, and how often. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/text.h"
#include "worker/flow_watch.h"

#include <stdio.h>
#include <string.h>

static struct flow_watch watch;
static struct flow_view views[FLOWS_MAX];
static char told[8192];
static unsigned tellings;

static void note(void *context, const char *detail)
{
    size_t length = strlen(told);

    assert_ptr_equal(context, &watch);
    assert_true(strlen(detail) < sizeof((struct event_record *)NULL)->detail);
    (void)snprintf(told + length, sizeof told - length, "%s\n", detail);
    tellings++;
}

static int set_up(void **state)
{
    (void)state;
    memset(&watch, 0, sizeof watch);
    memset(views, 0, sizeof views);
    (void)text_copy(views[0].quota_group, NAME_SIZE, "acme");
    (void)text_copy(views[0].model, NAME_SIZE, "qwen-max");
    views[0].adaptive_state = ADAPTIVE_PROBING;
    views[0].limit = 8;
    views[0].learned = (struct adaptive_memory){
        .pace = 2.5, .growth = 0.05, .requests_share = 0.9, .tokens_share = 1};
    return 0;
}

static const char *look(unsigned count, int64_t now_ns)
{
    const struct flow_watch_listener listener = {.tell = note, .context = &watch};

    told[0] = '\0';
    tellings = 0;
    flow_watch_look(&watch, views, count, now_ns, &listener);
    return told;
}

static void set(enum adaptive_state new_state, uint64_t cuts)
{
    views[0].adaptive_state = new_state;
    views[0].cuts = cuts;
}

static void each_state_is_told_when_it_is_entered(void **state)
{
    int64_t now_ns = NS_PER_S;

    (void)state;
    assert_string_equal(look(1, now_ns), "");
    set(ADAPTIVE_DRAIN, 1);
    views[0].cut_kind = ADAPTIVE_BURST;
    views[0].paused_for_ns = 1500 * NS_PER_MS;
    assert_string_equal(look(1, now_ns += NS_PER_S / 4),
                        "state=drain kind=burst pause_ms=1500 cuts=1 in_flight=8.0 pace=2.50 "
                        "growth=0.050 rpm_share=0.90 tpm_share=1.00 group=acme model=qwen-max\n");
    assert_string_equal(look(1, now_ns += NS_PER_S), ""); /* it is still in it */
    set(ADAPTIVE_RECOVERY, 1);
    assert_int_equal(strncmp(look(1, now_ns += NS_PER_S), "state=recovery kind=burst cuts=1", 32),
                     0);
    set(ADAPTIVE_PROBING, 1);
    assert_string_equal(look(1, now_ns += NS_PER_S), "");
    set(ADAPTIVE_HOLD, 1);
    assert_int_equal(strncmp(look(1, now_ns += NS_PER_S), "state=hold cuts=1 ", 18), 0);
}

/* A pause between two looks, and one that follows at once on another. */
static void a_pause_that_nobody_saw_is_told(void **state)
{
    (void)state;
    (void)look(1, NS_PER_S);
    set(ADAPTIVE_RECOVERY, 1);
    (void)look(1, 2 * NS_PER_S);
    assert_int_equal(tellings, 2);
    assert_int_equal(strncmp(told, "state=drain", 11), 0);
    assert_non_null(strstr(told, "\nstate=recovery"));
    set(ADAPTIVE_DRAIN, 2);
    (void)look(1, 4 * NS_PER_S);
    assert_int_equal(tellings, 1);
    set(ADAPTIVE_DRAIN, 3);
    (void)look(1, 6 * NS_PER_S);
    assert_int_equal(tellings, 1);
}

static void a_storm_is_one_event_a_second(void **state)
{
    unsigned all = 0;

    (void)state;
    (void)look(1, NS_PER_S);
    for (unsigned i = 1; i <= 400; i++) { /* ten seconds, a cut at every look */
        set(i % 2 ? ADAPTIVE_DRAIN : ADAPTIVE_RECOVERY, i);
        (void)look(1, NS_PER_S + (int64_t)i * NS_PER_S / 40);
        all += tellings;
    }
    assert_in_range(all, 18, 20); /* of either state */
}

static void the_first_look_only_remembers(void **state)
{
    (void)state;
    set(ADAPTIVE_DRAIN, 7);
    assert_string_equal(look(1, NS_PER_S), "");
    assert_string_equal(look(1, 2 * NS_PER_S), "");
    views[1] = views[0]; /* new since: all of it happened meanwhile */
    (void)text_copy(views[1].model, NAME_SIZE, "other");
    (void)look(2, 3 * NS_PER_S);
    assert_int_equal(tellings, 1);
    assert_non_null(strstr(told, "model=other"));
}

static void rows_come_and_go_without_end(void **state)
{
    (void)state;
    (void)look(0, NS_PER_S);
    for (unsigned round = 0; round < 10; round++) {
        for (unsigned i = 0; i < FLOWS_MAX; i++) {
            views[i] = views[0];
            (void)snprintf(views[i].model, NAME_SIZE, "m%u-%u", round, i);
            views[i].adaptive_state = ADAPTIVE_DRAIN;
            views[i].cuts = 1;
        }
        (void)look(FLOWS_MAX, (2 + (int64_t)round) * NS_PER_S);
        assert_int_equal(tellings, FLOWS_MAX);
        assert_int_equal(watch.count, FLOWS_MAX);
    }
    (void)look(0, 20 * NS_PER_S);
    assert_int_equal(watch.count, 0);
}

static void long_names_are_cut_behind_what_counts(void **state)
{
    (void)state;
    memset(views[0].model, 'm', NAME_SIZE - 1);
    memset(views[0].quota_group, 'g', NAME_SIZE - 1);
    (void)look(0, NS_PER_S);
    set(ADAPTIVE_DRAIN, 1);
    (void)look(1, 2 * NS_PER_S);
    assert_int_equal(tellings, 1);
    assert_non_null(strstr(told, "tpm_share=1.00 group=ggg"));
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup(function, set_up)
    const struct CMUnitTest tests[] = {
        TEST(each_state_is_told_when_it_is_entered), TEST(a_pause_that_nobody_saw_is_told),
        TEST(a_storm_is_one_event_a_second),         TEST(the_first_look_only_remembers),
        TEST(rows_come_and_go_without_end),          TEST(long_names_are_cut_behind_what_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
