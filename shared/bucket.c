/*
 * bucket.c - budgets that fill with time, exactly; see bucket.h.
 *
 * Let R be the rate and G(t) the integral of how far it is open: t at full rate, t^2 / 2T during a
 * warm-up of T that began at 0. What refills from a to b is R (G(b) - G(a)). Everything is kept as
 * one whole number over the denominator D, 60*10^9 at full rate and 2T times that in a warm-up, and
 * always counted from since_ns, when the rate last changed: so it does not matter how often anybody
 * looks in between. At a change the fraction that is over goes into `remainder`, as
 * 60*10^9ths.
 *
 * Sizes: R T^2 <= 4e14 * (6e11)^2 = 1.5e38 just fits; at full rate R t <= 4e14 * 9e18. A full-rate
 * bucket is never measured with 2T: warming ends at T.
 */
#include "shared/bucket.h"

#define MINUTE_NS INT64_C(60000000000)
#define DEBT_MAX (4 * BUCKET_AMOUNT_MAX)
/* Of a minute's quota: two seconds are not in the rate, and but for BUCKET_LATE_NS are the capacity. */
#define STRICT_UNRATED 30
#define STRICT_CAPACITY 40

__extension__ typedef __int128 wide;

static_assert((wide)BUCKET_RATE_MAX * BUCKET_WARMUP_MAX_NS <=
                  (((wide)1 << 126) - 1 + ((wide)1 << 126)) / BUCKET_WARMUP_MAX_NS,
              "a warm-up's largest product fits");

static int64_t at_most(int64_t value, int64_t max)
{
    return value < 0 ? 0 : value > max ? max : value;
}

static wide over_up(wide number, wide by)
{
    return (number + by - 1) / by;
}

/* The smallest t with t * t >= square, for square < 2^80. */
static wide root_up(wide square)
{
    wide root = 0;

    for (wide bit = (wide)1 << 40; bit > 0; bit >>= 1)
        if ((root + bit) * (root + bit) <= square)
            root += bit;
    return root * root < square ? root + 1 : root;
}

/* ---- the curve alone ------------------------------------------------------------------------ */

int64_t bucket_curve_micro(int64_t rate_micro, int64_t warmup_ns, int64_t elapsed_ns)
{
    wide rate = at_most(rate_micro, BUCKET_RATE_MAX);
    wide warmup = at_most(warmup_ns, BUCKET_WARMUP_MAX_NS);
    wide elapsed = elapsed_ns < 0 ? 0 : elapsed_ns;
    wide issued = elapsed < warmup ? rate * elapsed * elapsed / (2 * warmup * MINUTE_NS)
                                   : (2 * rate * elapsed - rate * warmup) / ((wide)2 * MINUTE_NS);

    return issued > INT64_MAX ? INT64_MAX : (int64_t)issued;
}

int64_t bucket_curve_ns(int64_t rate_micro, int64_t warmup_ns, int64_t amount_micro)
{
    wide rate = at_most(rate_micro, BUCKET_RATE_MAX);
    wide warmup = at_most(warmup_ns, BUCKET_WARMUP_MAX_NS);
    wide amount = amount_micro;
    wide elapsed;

    if (amount <= 0)
        return 0;
    if (rate == 0)
        return INT64_MAX;
    if (amount * 2 * MINUTE_NS <= rate * warmup)
        elapsed = root_up(over_up(amount * 2 * warmup * MINUTE_NS, rate));
    else
        elapsed = over_up(amount * 2 * MINUTE_NS + rate * warmup, 2 * rate);
    return elapsed > INT64_MAX ? INT64_MAX : (int64_t)elapsed;
}

/* ---- refilling ------------------------------------------------------------------------------ */

/* What has come in from since_ns to at_ns, as a number over the denominator. */
static wide inflow(const struct bucket_row *row, int64_t at_ns)
{
    wide to, from;

    if (!row->warming)
        return (wide)row->rate_micro * (at_ns - row->since_ns) + row->remainder;
    to = at_ns - row->warm_from_ns;
    from = row->since_ns - row->warm_from_ns;
    return (wide)row->rate_micro * (to * to - from * from) +
           (wide)row->remainder * 2 * row->warmup_ns;
}

static wide denominator(const struct bucket_row *row)
{
    return row->warming ? (wide)MINUTE_NS * 2 * row->warmup_ns : (wide)MINUTE_NS;
}

static void add(struct bucket_row *row, wide amount)
{
    wide balance = row->balance_micro + amount;

    if (balance > row->capacity_micro)
        balance = row->capacity_micro;
    if (balance < -DEBT_MAX)
        balance = -DEBT_MAX;
    row->balance_micro = (int64_t)balance;
}

/* A process may be killed between any two stores, and the next goes on with what is there: what came in
 * may be lost then, but never comes in twice, and no warm-up has begun at a time long ago. */
static void stored_by_now(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* Within one stretch: at full rate, or inside the warm-up. */
static void refill_stretch(struct bucket_row *row, int64_t to_ns)
{
    const wide by = denominator(row);
    const wide amount = inflow(row, to_ns) / by - inflow(row, row->refilled_ns) / by;

    row->refilled_ns = to_ns;
    stored_by_now();
    add(row, amount);
}

/* A new stretch begins where it is refilled to; the fraction that is over comes along. */
static void begin_stretch(struct bucket_row *row)
{
    wide over = inflow(row, row->refilled_ns) % denominator(row);

    row->remainder = (int64_t)(row->warming ? over / ((wide)2 * row->warmup_ns) : over);
    row->since_ns = row->refilled_ns;
}

static void refill(struct bucket_row *row, int64_t now_ns)
{
    if (now_ns <= row->refilled_ns)
        return;
    if (row->warming && now_ns - row->warm_from_ns >= row->warmup_ns) {
        refill_stretch(row, row->warm_from_ns + row->warmup_ns);
        begin_stretch(row);
        row->warming = 0;
    }
    refill_stretch(row, now_ns);
}

static bool is_bounded(const struct bucket_row *row)
{
    return row->capacity_micro > 0;
}

/* ---- what others call ----------------------------------------------------------------------- */

struct bucket_terms bucket_terms_strict(int64_t quota)
{
    int64_t most = BUCKET_RATE_MAX / BUCKET_UNIT;
    int64_t units = quota < 1 ? 1 : quota > most ? most : quota;
    int64_t quota_micro = units * BUCKET_UNIT;
    int64_t capacity_micro = quota_micro / STRICT_CAPACITY;
    int64_t unrated_micro = quota_micro / STRICT_UNRATED;
    struct bucket_terms terms = {0};

    terms.capacity_micro = capacity_micro < BUCKET_UNIT ? BUCKET_UNIT : capacity_micro;
    if (unrated_micro < terms.capacity_micro)
        unrated_micro = terms.capacity_micro;
    /* One a minute must come back, too. */
    terms.rate_micro = units == 1
                           ? (int64_t)((wide)quota_micro * MINUTE_NS / (MINUTE_NS + BUCKET_LATE_NS))
                           : quota_micro - unrated_micro;
    return terms;
}

static_assert(
    MINUTE_NS / STRICT_CAPACITY + BUCKET_LATE_NS <= MINUTE_NS / STRICT_UNRATED,
    "capacity, and what comes in while some are late, are no more than what is not rated");

static void begin_warmup(struct bucket_row *row)
{
    row->warm_from_ns = row->refilled_ns;
    stored_by_now();
    row->warming = row->warmup_ns > 0;
}

void bucket_init(struct bucket_row *row, const struct bucket_terms *terms, int64_t now_ns)
{
    *row = (struct bucket_row){
        .capacity_micro = at_most(terms->capacity_micro, BUCKET_AMOUNT_MAX),
        .rate_micro = at_most(terms->rate_micro, BUCKET_RATE_MAX),
        .initial_micro = at_most(terms->initial_micro, BUCKET_AMOUNT_MAX),
        .warmup_ns = at_most(terms->warmup_ns, BUCKET_WARMUP_MAX_NS),
        .refilled_ns = now_ns,
        .since_ns = now_ns,
    };
    add(row, row->initial_micro);
    begin_warmup(row);
}

void bucket_restart(struct bucket_row *row, int64_t now_ns)
{
    refill(row, now_ns);
    if (row->balance_micro > row->initial_micro)
        row->balance_micro = row->initial_micro;
    begin_stretch(row);
    begin_warmup(row);
}

void bucket_set_rate(struct bucket_row *row, int64_t rate_micro, int64_t now_ns)
{
    int64_t rate = at_most(rate_micro, BUCKET_RATE_MAX);

    if (rate == row->rate_micro)
        return;
    refill(row, now_ns);
    begin_stretch(row);
    row->rate_micro = rate;
}

void bucket_set_warmup(struct bucket_row *row, int64_t warmup_ns, int64_t now_ns)
{
    int64_t warmup = at_most(warmup_ns, BUCKET_WARMUP_MAX_NS);

    if (warmup == row->warmup_ns)
        return;
    refill(row, now_ns);
    if (row->warming) {
        begin_stretch(row); /* still in the units of the warm-up that ends */
        row->warming = 0;
    }
    row->warmup_ns = warmup;
}

void bucket_set_capacity(struct bucket_row *row, int64_t capacity_micro, int64_t now_ns)
{
    int64_t capacity = at_most(capacity_micro, BUCKET_AMOUNT_MAX);

    if (capacity == row->capacity_micro)
        return;
    refill(row, now_ns);
    if (capacity == 0)
        row->balance_micro = 0; /* nothing is counted from here on */
    row->capacity_micro = capacity;
    add(row, 0);
}

int64_t bucket_balance_micro(struct bucket_row *row, int64_t now_ns)
{
    refill(row, now_ns);
    return row->balance_micro;
}

/* What the balance has to be. */
static int64_t needed(const struct bucket_row *row, int64_t cost_micro)
{
    int64_t cost = at_most(cost_micro, BUCKET_AMOUNT_MAX);

    return cost < row->capacity_micro ? cost : row->capacity_micro;
}

bool bucket_has(struct bucket_row *row, int64_t cost_micro, int64_t now_ns)
{
    refill(row, now_ns);
    return !is_bounded(row) || row->balance_micro >= needed(row, cost_micro);
}

int64_t bucket_due_ns(struct bucket_row *row, int64_t cost_micro, int64_t now_ns)
{
    struct bucket_row ahead;
    wide goal, due;

    if (bucket_has(row, cost_micro, now_ns))
        return now_ns;
    if (row->rate_micro == 0)
        return INT64_MAX;
    /* Does the warm-up bring it, or only the time after? */
    ahead = *row;
    if (row->warming) {
        refill(&ahead, row->warm_from_ns + row->warmup_ns);
        if (ahead.balance_micro >= needed(row, cost_micro))
            ahead = *row;
    }
    goal = (inflow(&ahead, ahead.refilled_ns) / denominator(&ahead) + needed(row, cost_micro) -
            ahead.balance_micro) *
           denominator(&ahead);
    if (ahead.warming) {
        wide from = ahead.since_ns - ahead.warm_from_ns;
        wide over = (wide)ahead.remainder * 2 * ahead.warmup_ns;

        due = ahead.warm_from_ns + root_up(over_up(goal - over, ahead.rate_micro) + from * from);
    } else {
        due = ahead.since_ns + over_up(goal - ahead.remainder, ahead.rate_micro);
    }
    return due > INT64_MAX ? INT64_MAX : (int64_t)due;
}

void bucket_take(struct bucket_row *row, int64_t cost_micro, int64_t now_ns)
{
    refill(row, now_ns);
    row->taken_micro += (uint64_t)at_most(cost_micro, BUCKET_AMOUNT_MAX);
    if (is_bounded(row))
        add(row, -(wide)at_most(cost_micro, BUCKET_AMOUNT_MAX));
}

void bucket_give_back(struct bucket_row *row, int64_t amount_micro, int64_t now_ns)
{
    refill(row, now_ns);
    row->taken_micro -= (uint64_t)at_most(amount_micro, BUCKET_AMOUNT_MAX);
    add(row, at_most(amount_micro, BUCKET_AMOUNT_MAX));
}

void bucket_settle(struct bucket_row *row, int64_t taken_micro, int64_t used_micro, int64_t now_ns)
{
    const int64_t over =
        at_most(used_micro, BUCKET_AMOUNT_MAX) - at_most(taken_micro, BUCKET_AMOUNT_MAX);

    refill(row, now_ns);
    row->taken_micro += (uint64_t)over;
    if (is_bounded(row))
        add(row, -(wide)over);
}

void bucket_lower(struct bucket_row *row, int64_t left_micro, const struct bucket_mark *then,
                  int64_t now_ns)
{
    const int64_t since_ns = now_ns > then->at_ns ? now_ns - then->at_ns : 0;
    wide level = at_most(left_micro, BUCKET_AMOUNT_MAX);

    refill(row, now_ns);
    level -= (int64_t)(row->taken_micro - then->taken_micro);
    level += (wide)row->rate_micro * since_ns / MINUTE_NS;
    if (is_bounded(row) && level < row->balance_micro)
        add(row, level - row->balance_micro);
}
