/*
 * bucket.h - a budget that fills with time: requests, tokens, images, seconds of audio per minute.
 *
 * The balance is in micro-units (BUCKET_UNIT of them are one request or token), so that nothing
 * here is a floating-point number. It may be negative, which is debt: what was taken is the truth,
 * and whoever comes next waits until it is paid. Only the top is bounded, by the capacity.
 *
 * Refilling is exact: the balance at an instant does not depend on how often anybody looked before.
 * What refills between two changes of the rate is one closed formula, its fraction is carried over
 * the change, and a change never re-values what is owed or saved.
 *
 * Warm-up: from its start the rate grows in a straight line from 0 to the full one in T, so that
 * R t^2 / 2T is issued by t < T, and R T/2 + R (t - T) after.
 *
 * A row of zeroes is a budget without bound: everything passes, nothing but taken_micro is counted. All functions:
 * lock held. Every amount is >= 0 and is cut to BUCKET_AMOUNT_MAX, a rate to BUCKET_RATE_MAX, a
 * warm-up to BUCKET_WARMUP_MAX_NS: values that no quota reaches, and with which nothing overflows.
 */
#ifndef SHARED_BUCKET_H
#define SHARED_BUCKET_H

#include "base/check.h"
#include "shared/layout.h"

#include <stdbool.h>
#include <stdint.h>

#define BUCKET_UNIT INT64_C(1000000) /* micro-units */
#define BUCKET_AMOUNT_MAX (INT64_C(1000000000000) * BUCKET_UNIT)
#define BUCKET_RATE_MAX (INT64_C(400000000) * BUCKET_UNIT) /* per minute */
#define BUCKET_WARMUP_MAX_NS INT64_C(600000000000)
#define BUCKET_LATE_NS INT64_C(500000000)

struct bucket_terms {
    int64_t capacity_micro; /* 0 = no bound at all */
    int64_t rate_micro;     /* per minute */
    int64_t initial_micro;  /* balance at the start, and at most after a restart */
    int64_t warmup_ns;      /* 0 = full rate at once */
};

/* Terms with which no 60 s carry more than the quota (units per minute, > 0), neither here nor
 * upstream, where some arrive up to BUCKET_LATE_NS later than others (a connection had to be made
 * first): a second and a half of it, at least one unit, as capacity; two seconds less than the whole
 * as rate. Empty at the start, no warm-up. (A single take that is larger than the capacity goes into
 * debt; that take can exceed the quota by its debt.) */
struct bucket_terms bucket_terms_strict(int64_t quota);

void bucket_init(struct bucket_row *row, const struct bucket_terms *terms, int64_t now_ns);
/* Nobody has wanted anything for long: the warm-up begins again, and the balance is not more than
 * at the start. Debt stays. */
void bucket_restart(struct bucket_row *row, int64_t now_ns);
/* From now on; what is owed or saved stays what it is, except that a smaller capacity cuts. */
void bucket_set_rate(struct bucket_row *row, int64_t rate_micro, int64_t now_ns);
/* Another warm-up from the next restart on; one that is going on is over. */
void bucket_set_warmup(struct bucket_row *row, int64_t warmup_ns, int64_t now_ns);
void bucket_set_capacity(struct bucket_row *row, int64_t capacity_micro, int64_t now_ns);

int64_t bucket_balance_micro(struct bucket_row *row, int64_t now_ns);
/* Is there enough? A cost above the capacity has enough at a full bucket. */
MUST_CHECK bool bucket_has(struct bucket_row *row, int64_t cost_micro, int64_t now_ns);
/* The first instant from now on at which bucket_has says yes if nothing else happens; INT64_MAX =
 * never (the rate is 0). */
MUST_CHECK int64_t bucket_due_ns(struct bucket_row *row, int64_t cost_micro, int64_t now_ns);
/* Also when there is not enough. */
void bucket_take(struct bucket_row *row, int64_t cost_micro, int64_t now_ns);
/* What was taken and not used. */
void bucket_give_back(struct bucket_row *row, int64_t amount_micro, int64_t now_ns);
/* What was taken turned out to be used_micro. */
void bucket_settle(struct bucket_row *row, int64_t taken_micro, int64_t used_micro, int64_t now_ns);

/* A moment to look back to. */
struct bucket_mark {
    uint64_t taken_micro; /* the row's, then */
    int64_t at_ns;
};
/* At the mark there was no more than left_micro in it, as it turns out: as if it had been lowered then.
 * What was taken since is missing, what filled since (at today's rate) is there. Never raises. */
void bucket_lower(struct bucket_row *row, int64_t left_micro, const struct bucket_mark *then,
                  int64_t now_ns);

/* The warm-up's curve: what is issued by elapsed_ns, and the first instant by which amount is. The
 * latter is INT64_MAX when never. */
int64_t bucket_curve_micro(int64_t rate_micro, int64_t warmup_ns, int64_t elapsed_ns);
int64_t bucket_curve_ns(int64_t rate_micro, int64_t warmup_ns, int64_t amount_micro);

#endif
