/*
 * test_bucket.c - budgets against closed formulas in double, on passed-in times (F3, F4).
 *
 * The model keeps the balance as a long double and integrates the rate itself; the random sequences
 * are the same in every run.
 */
#include "base/clock.h"
#include "shared/bucket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#define MINUTE_NS (60 * NS_PER_S)
#define NOW_NS (1000 * NS_PER_S)
#define UNITS(n) ((n)*BUCKET_UNIT)

static uint64_t seed;

static uint64_t random_bits(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static int64_t random_to(int64_t max)
{
    return (int64_t)(random_bits() % (uint64_t)(max + 1));
}

/* Small and large alike. */
static int64_t random_size(int64_t max)
{
    return random_to(max >> random_to(40));
}

static long double balance(struct bucket_row *row, int64_t now_ns)
{
    int64_t balance_micro = bucket_balance_micro(row, now_ns);

    return (long double)balance_micro;
}

static struct bucket_row row_with(int64_t capacity, int64_t rate, int64_t initial,
                                  int64_t warmup_ns)
{
    struct bucket_terms terms = {.capacity_micro = capacity,
                                 .rate_micro = rate,
                                 .initial_micro = initial,
                                 .warmup_ns = warmup_ns};
    struct bucket_row row;

    bucket_init(&row, &terms, NOW_NS);
    return row;
}

static void zeroes_are_without_bound(void **state)
{
    struct bucket_row row = {0};

    (void)state;
    assert_true(bucket_has(&row, BUCKET_AMOUNT_MAX, 0));
    bucket_take(&row, UNITS(5), 1);
    bucket_settle(&row, UNITS(5), UNITS(50), 2);
    assert_true(bucket_has(&row, UNITS(1), NOW_NS));
    assert_int_equal(bucket_due_ns(&row, UNITS(1), NOW_NS), NOW_NS);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS), 0);
}

static void f3_debt_is_a_reservation(void **state)
{
    struct bucket_row row = row_with(UNITS(600), UNITS(600), UNITS(2), 0);

    (void)state;
    assert_true(bucket_has(&row, UNITS(2), NOW_NS));
    bucket_take(&row, UNITS(2), NOW_NS);
    assert_false(bucket_has(&row, 1, NOW_NS));
    bucket_take(&row, UNITS(3), NOW_NS); /* 10 a second: owed for 0.3 s */
    assert_int_equal(bucket_due_ns(&row, 0, NOW_NS), NOW_NS + 3 * NS_PER_S / 10);
    assert_int_equal(bucket_due_ns(&row, UNITS(1), NOW_NS), NOW_NS + 4 * NS_PER_S / 10);
    bucket_give_back(&row, UNITS(3), NOW_NS);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS), 0);
}

static void a_cost_above_the_capacity_needs_a_full_bucket_and_leaves_debt(void **state)
{
    struct bucket_row row = row_with(UNITS(20), UNITS(600), 0, 0);

    (void)state;
    assert_int_equal(bucket_due_ns(&row, UNITS(100), NOW_NS), NOW_NS + 2 * NS_PER_S);
    assert_false(bucket_has(&row, UNITS(100), NOW_NS + 2 * NS_PER_S - 1));
    assert_true(bucket_has(&row, UNITS(100), NOW_NS + 2 * NS_PER_S));
    bucket_take(&row, UNITS(100), NOW_NS + 2 * NS_PER_S);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS + 2 * NS_PER_S), -UNITS(80));
    assert_int_equal(bucket_balance_micro(&row, NOW_NS + 3600 * NS_PER_S), UNITS(20));
}

static void f4_settling_knows_no_floor_but_the_capacity(void **state)
{
    struct bucket_row row = row_with(UNITS(10), UNITS(60), UNITS(10), 0);

    (void)state;
    bucket_settle(&row, 0, UNITS(1000000), NOW_NS);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS), -UNITS(999990));
    bucket_settle(&row, UNITS(1000), 0, NOW_NS);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS), -UNITS(998990));
    bucket_settle(&row, BUCKET_AMOUNT_MAX, 0, NOW_NS);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS), UNITS(10));
}

static void a_change_of_rate_revalues_nothing(void **state)
{
    struct bucket_row row = row_with(UNITS(100), UNITS(60), UNITS(50), 0);

    (void)state;
    bucket_set_rate(&row, UNITS(6000), NOW_NS);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS), UNITS(50));
    bucket_take(&row, UNITS(150), NOW_NS);
    bucket_set_rate(&row, UNITS(60), NOW_NS);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS), -UNITS(100));
    assert_int_equal(bucket_due_ns(&row, 0, NOW_NS), NOW_NS + 100 * NS_PER_S);
    bucket_set_rate(&row, 0, NOW_NS);
    assert_int_equal(bucket_due_ns(&row, 0, NOW_NS), INT64_MAX);
    bucket_set_capacity(&row, UNITS(5), NOW_NS);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS), -UNITS(100));
    bucket_give_back(&row, UNITS(1000), NOW_NS);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS), UNITS(5));
}

/* One micro-unit in 7 ns and a bit, looked at every 3 ns: nothing is lost to rounding. */
static void nothing_drifts(void **state)
{
    int64_t rate = MINUTE_NS / 7 - 11;
    struct bucket_row often = row_with(BUCKET_AMOUNT_MAX, rate, 0, 10 * NS_PER_MS);
    struct bucket_row once = often;
    int64_t now_ns = NOW_NS;

    (void)state;
    for (int i = 0; i < 5000000; i++) {
        now_ns += 3;
        (void)bucket_balance_micro(&often, now_ns);
    }
    assert_int_equal(bucket_balance_micro(&often, now_ns), bucket_balance_micro(&once, now_ns));
    assert_int_equal(often.balance_micro,
                     bucket_curve_micro(rate, 10 * NS_PER_MS, now_ns - NOW_NS));
}

/* Also over a hundred thousand changes of the rate, each in the middle of a micro-unit. */
static void nothing_drifts_when_the_rate_changes(void **state)
{
    int64_t rate = UNITS(1) + 7;
    struct bucket_row row = row_with(UNITS(1000000), rate, 0, 0);
    int64_t now_ns = NOW_NS;
    long double exact = 0;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        int64_t step_ns = 1 + random_to(20000);

        now_ns += step_ns;
        exact += (long double)row.rate_micro * (long double)step_ns / (long double)MINUTE_NS;
        bucket_set_rate(&row, rate + (i & 1), now_ns);
    }
    assert_true(fabsl(exact - balance(&row, now_ns)) <= 1.01L);
}

/* ---- warm-up (the document's 54 to 56) --------------------------------------------------------- */

static long double curve(long double rate_micro, long double warmup_ns, long double t_ns)
{
    long double rate = rate_micro / (long double)MINUTE_NS;

    if (t_ns <= 0)
        return 0;
    if (warmup_ns <= 0)
        return rate * t_ns;
    if (t_ns <= warmup_ns)
        return rate * t_ns * t_ns / (2 * warmup_ns);
    return rate * warmup_ns / 2 + rate * (t_ns - warmup_ns);
}

static void d54_the_curve_is_the_closed_formula(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        int64_t rate = random_size(BUCKET_RATE_MAX);
        int64_t warmup = i % 4 == 0 ? 0 : random_size(BUCKET_WARMUP_MAX_NS);
        int64_t t = random_size(2 * BUCKET_WARMUP_MAX_NS);
        long double expected = curve((long double)rate, (long double)warmup, (long double)t);
        int64_t issued = bucket_curve_micro(rate, warmup, t);
        long double got = (long double)issued;

        assert_true(got <= expected * (1 + 1e-15L) + 1e-9L);
        assert_true(got >= expected * (1 - 1e-15L) - 1.000001L);
    }
    assert_int_equal(bucket_curve_micro(UNITS(600), 60 * NS_PER_S, 30 * NS_PER_S), UNITS(75));
    assert_int_equal(bucket_curve_micro(UNITS(600), 60 * NS_PER_S, 60 * NS_PER_S), UNITS(300));
    assert_int_equal(bucket_curve_micro(UNITS(600), 60 * NS_PER_S, 61 * NS_PER_S), UNITS(310));
    assert_int_equal(bucket_curve_micro(UNITS(600), 60 * NS_PER_S, -1), 0);
}

static void d55_the_inverse_is_the_first_instant(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        int64_t rate = 1 + random_size(BUCKET_RATE_MAX - 1);
        int64_t warmup = i % 4 == 0 ? 0 : random_size(BUCKET_WARMUP_MAX_NS);
        int64_t amount = 1 + random_size(BUCKET_AMOUNT_MAX - 1);
        int64_t t = bucket_curve_ns(rate, warmup, amount);

        if (t == INT64_MAX)
            continue;
        assert_true(bucket_curve_micro(rate, warmup, t) >= amount);
        assert_true(bucket_curve_micro(rate, warmup, t - 1) < amount);
    }
    assert_int_equal(bucket_curve_ns(UNITS(600), 60 * NS_PER_S, UNITS(75)), 30 * NS_PER_S);
    assert_int_equal(bucket_curve_ns(UNITS(600), 60 * NS_PER_S, UNITS(310)), 61 * NS_PER_S);
    assert_int_equal(bucket_curve_ns(0, 60 * NS_PER_S, 1), INT64_MAX);
    assert_int_equal(bucket_curve_ns(0, 60 * NS_PER_S, 0), 0);
}

static void d56_a_warm_up_begins_at_nothing_and_again_after_idle(void **state)
{
    struct bucket_row row = row_with(UNITS(20), UNITS(600), 0, 60 * NS_PER_S);
    int64_t now_ns = NOW_NS;

    (void)state;
    /* sqrt(2 T c / R), R = 10 a second */
    assert_int_equal(bucket_due_ns(&row, UNITS(3), now_ns), NOW_NS + 6 * NS_PER_S);
    now_ns += 600 * NS_PER_S;
    assert_int_equal(bucket_balance_micro(&row, now_ns), UNITS(20));
    bucket_restart(&row, now_ns);
    assert_int_equal(bucket_balance_micro(&row, now_ns), 0);
    assert_int_equal(bucket_due_ns(&row, UNITS(3), now_ns), now_ns + 6 * NS_PER_S);
    bucket_take(&row, UNITS(3), now_ns);
    bucket_restart(&row, now_ns); /* debt stays */
    assert_int_equal(bucket_balance_micro(&row, now_ns), -UNITS(3));
    /* longer than the warm-up: R T/2 = 300 by then, 10 a second after */
    bucket_set_capacity(&row, UNITS(1000), now_ns);
    assert_int_equal(bucket_due_ns(&row, UNITS(307), now_ns), now_ns + 61 * NS_PER_S);
}

/* ---- random sequences -------------------------------------------------------------------------- */

struct model {
    long double balance, capacity, rate, initial, warmup_ns, warm_from_ns, at_ns;
};

static void model_refill(struct model *model, int64_t now_ns)
{
    long double from = model->at_ns - model->warm_from_ns;
    long double to = (long double)now_ns - model->warm_from_ns;

    model->balance +=
        curve(model->rate, model->warmup_ns, to) - curve(model->rate, model->warmup_ns, from);
    model->balance = fminl(model->balance, model->capacity);
    model->at_ns = (long double)now_ns;
}

static void one_step(struct bucket_row *row, struct model *model, int64_t now_ns)
{
    int64_t amount = random_size(UNITS(100000));
    int64_t other = random_size(UNITS(100000));

    model_refill(model, now_ns);
    switch (random_to(6)) {
    case 0:
        bucket_take(row, amount, now_ns);
        model->balance -= (long double)amount;
        break;
    case 1:
        bucket_give_back(row, amount, now_ns);
        model->balance = fminl(model->balance + (long double)amount, model->capacity);
        break;
    case 2:
        bucket_settle(row, amount, other, now_ns);
        model->balance =
            fminl(model->balance + (long double)amount - (long double)other, model->capacity);
        break;
    case 3:
        bucket_set_rate(row, other, now_ns);
        model->rate = (long double)other;
        break;
    case 4:
        bucket_set_capacity(row, amount + 1, now_ns);
        model->capacity = (long double)(amount + 1);
        model->balance = fminl(model->balance, model->capacity);
        break;
    case 5:
        if (random_to(20) == 0) {
            bucket_restart(row, now_ns);
            model->balance = fminl(model->balance, model->initial);
            model->warm_from_ns = (long double)now_ns;
        }
        break;
    default:
        break;
    }
}

static void due_is_the_first_instant(struct bucket_row *row, int64_t now_ns)
{
    int64_t cost = random_size(UNITS(100000));
    int64_t due_ns = bucket_due_ns(row, cost, now_ns);
    struct bucket_row before = *row, then = *row;

    assert_true(due_ns >= now_ns);
    if (due_ns == INT64_MAX)
        return;
    assert_true(bucket_has(&then, cost, due_ns));
    if (due_ns > now_ns)
        assert_false(bucket_has(&before, cost, due_ns - 1));
}

static void random_sequences_follow_the_model(void **state)
{
    (void)state;
    for (int run = 0; run < 400; run++) {
        int64_t warmup = run % 2 ? random_size(120 * NS_PER_S) : 0;
        int64_t initial = random_size(UNITS(1000));
        struct bucket_row row = row_with(UNITS(1000), UNITS(6000), initial, warmup);
        struct model model = {(long double)initial, 1e9L,   6e9L,  (long double)initial,
                              (long double)warmup,  NOW_NS, NOW_NS};
        int64_t now_ns = NOW_NS;
        for (int step = 0; step < 500; step++) {
            now_ns += random_size(5 * NS_PER_S);
            one_step(&row, &model, now_ns);
            /* both cut fractions at the capacity only: never more than one micro-unit apart */
            assert_true(fabsl(model.balance - balance(&row, now_ns)) <= 1.001L);
            assert_true(row.balance_micro <= row.capacity_micro);
            due_is_the_first_instant(&row, now_ns);
        }
    }
}

static void an_amount_that_comes_late_is_clamped_where_time_is(void **state)
{
    struct bucket_row row = row_with(UNITS(10), UNITS(600), UNITS(5), 0);

    (void)state;
    /* 5 more came in meanwhile: the bucket was full, so what is used now leaves less */
    bucket_settle(&row, 0, UNITS(4), NOW_NS + NS_PER_S);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS + NS_PER_S), UNITS(6));
    bucket_give_back(&row, UNITS(2), NOW_NS + NS_PER_S + NS_PER_S / 10);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS + NS_PER_S + NS_PER_S / 10), UNITS(9));
    bucket_give_back(&row, UNITS(8), NOW_NS + 2 * NS_PER_S);
    bucket_take(&row, UNITS(8), NOW_NS + 2 * NS_PER_S);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS + 2 * NS_PER_S), UNITS(2));
}

static void without_bound_for_a_while_is_as_never_used(void **state)
{
    struct bucket_row row = row_with(UNITS(10), UNITS(600), 0, 0);

    (void)state;
    bucket_take(&row, UNITS(100), NOW_NS);
    bucket_set_capacity(&row, 0, NOW_NS);
    assert_true(bucket_has(&row, UNITS(1000), NOW_NS));
    bucket_set_capacity(&row, UNITS(10), NOW_NS);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS), 0);
}

/* ---- any minute -------------------------------------------------------------------------------- */

#define SENDS_MAX 20000

/* Greedy and random senders who ask before every send: no half-open minute has more than the quota, nor
 * has one of the upstream's, which some reach late. */
static void send_for_ten_minutes(int64_t quota, bool greedy)
{
    static int64_t sent_ns[SENDS_MAX];
    struct bucket_terms terms = bucket_terms_strict(quota);
    struct bucket_row row;
    size_t sends = 0, first = 0;
    int64_t now_ns = NOW_NS;

    terms.initial_micro = terms.capacity_micro;
    bucket_init(&row, &terms, now_ns);
    while (now_ns < NOW_NS + 10 * MINUTE_NS && sends < SENDS_MAX) {
        if (!greedy)
            now_ns += random_size(300 * MINUTE_NS / quota);
        now_ns = bucket_due_ns(&row, BUCKET_UNIT, now_ns);
        assert_true(now_ns < INT64_MAX);
        bucket_take(&row, BUCKET_UNIT, now_ns);
        sent_ns[sends++] = now_ns;
        while (sent_ns[first] <= now_ns - MINUTE_NS - BUCKET_LATE_NS)
            first++;
        assert_true((int64_t)(sends - first) <= quota);
    }
    if (greedy && quota > 1 && sends < SENDS_MAX) /* and what the quota allows is used */
        assert_true((double)sends >= 10 * (double)quota * (quota < 30 ? 0.5 : 0.96));
}

static void f4_no_minute_has_more_than_the_quota(void **state)
{
    static const int64_t quotas[] = {1, 2, 3, 7, 29, 30, 59, 60, 61, 600, 1999};

    (void)state;
    assert_int_equal(bucket_terms_strict(600).capacity_micro, UNITS(15));
    assert_int_equal(bucket_terms_strict(600).rate_micro, UNITS(580));
    assert_int_equal(bucket_terms_strict(-1).rate_micro, UNITS(60) * 2 / 121);
    assert_int_equal(bucket_terms_strict(INT64_MAX).capacity_micro, BUCKET_RATE_MAX / 40);
    for (size_t i = 0; i < LENGTH(quotas); i++) {
        struct bucket_terms terms = bucket_terms_strict(quotas[i]);

        assert_true(terms.capacity_micro >= BUCKET_UNIT);
        if (quotas[i] > 1)
            assert_true(terms.capacity_micro + terms.rate_micro <= UNITS(quotas[i]));
        send_for_ten_minutes(quotas[i], true);
        send_for_ten_minutes(quotas[i], false);
    }
}

/* Takes of every size up to the capacity: tokens. */
static void f4_no_minute_has_more_tokens_than_the_quota(void **state)
{
    static int64_t at_ns[SENDS_MAX], cost[SENDS_MAX];
    struct bucket_terms terms = bucket_terms_strict(400000);
    struct bucket_row row;
    size_t first = 0;
    int64_t now_ns = NOW_NS, sum = 0;

    (void)state;
    bucket_init(&row, &terms, now_ns);
    for (size_t i = 0; i < SENDS_MAX; i++) {
        cost[i] = random_size(terms.capacity_micro);
        if (random_to(50) == 0)
            now_ns += random_size(MINUTE_NS);
        now_ns = bucket_due_ns(&row, cost[i], now_ns);
        bucket_take(&row, cost[i], now_ns);
        at_ns[i] = now_ns;
        sum += cost[i];
        for (; at_ns[first] <= now_ns - MINUTE_NS - BUCKET_LATE_NS; first++)
            sum -= cost[first];
        assert_true(sum <= UNITS(400000));
    }
}

static void absurd_values_overflow_nothing(void **state)
{
    struct bucket_row row = row_with(INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX);

    (void)state;
    assert_int_equal(row.warmup_ns, BUCKET_WARMUP_MAX_NS);
    for (int i = 0; i < 10; i++)
        bucket_settle(&row, 0, INT64_MAX, NOW_NS + i);
    assert_int_equal(row.balance_micro, -4 * BUCKET_AMOUNT_MAX);
    assert_true(bucket_due_ns(&row, INT64_MAX, NOW_NS + 10) > NOW_NS + 10);
    assert_true(bucket_due_ns(&row, 0, NOW_NS + BUCKET_WARMUP_MAX_NS + 1) > NOW_NS);
    assert_int_equal(bucket_balance_micro(&row, INT64_MAX), BUCKET_AMOUNT_MAX);
    bucket_take(&row, INT64_MIN, INT64_MAX);
    bucket_give_back(&row, -1, NOW_NS); /* an earlier time changes nothing either */
    assert_int_equal(bucket_balance_micro(&row, 0), BUCKET_AMOUNT_MAX);
    assert_int_equal(bucket_curve_micro(INT64_MAX, 0, INT64_MAX), INT64_MAX);
}

static int seeded(void **state)
{
    (void)state;
    seed = UINT64_C(0x9e3779b97f4a7c15);
    return 0;
}

/* A reload in the middle of a warm-up: nothing is lost, nothing is given, and nothing divides by zero. */
static void f4_a_warm_up_that_is_configured_away_ends(void **state)
{
    static const int64_t others[] = {0, 1, 5 * NS_PER_S, 600 * NS_PER_S};
    const struct bucket_terms terms = {
        .capacity_micro = UNITS(100), .rate_micro = UNITS(60), .warmup_ns = 60 * NS_PER_S};

    (void)state;
    for (size_t i = 0; i < LENGTH(others); i++) {
        struct bucket_row row;
        int64_t now_ns = NOW_NS + 30 * NS_PER_S, issued;

        bucket_init(&row, &terms, NOW_NS);
        issued = bucket_curve_micro(UNITS(60), 60 * NS_PER_S, 30 * NS_PER_S);
        bucket_set_warmup(&row, others[i], now_ns);
        assert_int_equal(bucket_balance_micro(&row, now_ns), issued);
        now_ns += 10 * NS_PER_S;
        assert_int_equal(bucket_balance_micro(&row, now_ns), issued + UNITS(10));
        bucket_restart(&row, now_ns);
        assert_in_range(bucket_balance_micro(&row, now_ns + NS_PER_S), 0, UNITS(1));
    }
}

/* F7: at the mark there were 100, as is said later. */
static void f7_lowered_as_if_it_had_been_then(void **state)
{
    struct bucket_row row = row_with(UNITS(1000), UNITS(60), UNITS(500), 0);
    const struct bucket_mark mark = {.taken_micro = row.taken_micro, .at_ns = NOW_NS};
    struct bucket_mark here;

    (void)state;
    bucket_take(&row, UNITS(30), NOW_NS);
    bucket_give_back(&row, UNITS(10), NOW_NS + NS_PER_S);
    bucket_settle(&row, UNITS(20), UNITS(25), NOW_NS + NS_PER_S);
    assert_int_equal(row.taken_micro - mark.taken_micro, UNITS(25));
    bucket_lower(&row, UNITS(900), &mark, NOW_NS + 4 * NS_PER_S); /* never up */
    assert_int_equal(bucket_balance_micro(&row, NOW_NS + 4 * NS_PER_S), UNITS(479));
    bucket_lower(&row, UNITS(100), &mark, NOW_NS + 4 * NS_PER_S);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS + 4 * NS_PER_S), UNITS(79));
    bucket_lower(&row, UNITS(100), &mark,
                 NOW_NS + 9 * NS_PER_S); /* the same again is nothing new */
    assert_int_equal(bucket_balance_micro(&row, NOW_NS + 9 * NS_PER_S), UNITS(84));
    here = (struct bucket_mark){.taken_micro = row.taken_micro, .at_ns = NOW_NS + 9 * NS_PER_S};
    bucket_lower(&row, 0, &here, NOW_NS + 9 * NS_PER_S);
    assert_int_equal(bucket_balance_micro(&row, NOW_NS + 9 * NS_PER_S), 0);
}

static void f7_what_has_no_bound_is_not_lowered(void **state)
{
    struct bucket_row row = {0};
    const struct bucket_mark mark = {.taken_micro = UINT64_MAX - 5, .at_ns = INT64_MAX};

    (void)state;
    bucket_take(&row, UNITS(5), NOW_NS);
    assert_int_equal(row.taken_micro, UNITS(5));
    bucket_lower(&row, 0, &mark, NOW_NS);
    assert_int_equal(row.balance_micro, 0);
    assert_true(bucket_has(&row, UNITS(1000), NOW_NS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(zeroes_are_without_bound, seeded),
        cmocka_unit_test_setup(f3_debt_is_a_reservation, seeded),
        cmocka_unit_test_setup(a_cost_above_the_capacity_needs_a_full_bucket_and_leaves_debt,
                               seeded),
        cmocka_unit_test_setup(f4_settling_knows_no_floor_but_the_capacity, seeded),
        cmocka_unit_test_setup(a_change_of_rate_revalues_nothing, seeded),
        cmocka_unit_test_setup(f4_a_warm_up_that_is_configured_away_ends, seeded),
        cmocka_unit_test_setup(nothing_drifts, seeded),
        cmocka_unit_test_setup(nothing_drifts_when_the_rate_changes, seeded),
        cmocka_unit_test_setup(d54_the_curve_is_the_closed_formula, seeded),
        cmocka_unit_test_setup(d55_the_inverse_is_the_first_instant, seeded),
        cmocka_unit_test_setup(d56_a_warm_up_begins_at_nothing_and_again_after_idle, seeded),
        cmocka_unit_test_setup(random_sequences_follow_the_model, seeded),
        cmocka_unit_test_setup(an_amount_that_comes_late_is_clamped_where_time_is, seeded),
        cmocka_unit_test_setup(without_bound_for_a_while_is_as_never_used, seeded),
        cmocka_unit_test_setup(f4_no_minute_has_more_than_the_quota, seeded),
        cmocka_unit_test_setup(f4_no_minute_has_more_tokens_than_the_quota, seeded),
        cmocka_unit_test_setup(absurd_values_overflow_nothing, seeded),
        cmocka_unit_test_setup(f7_lowered_as_if_it_had_been_then, seeded),
        cmocka_unit_test_setup(f7_what_has_no_bound_is_not_lowered, seeded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
