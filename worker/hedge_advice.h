/*
 * hedge_advice.h - which hedge_after_s a scope could have, and what that would do, by the latencies
 * that the ledger has (H18, H19).
 *
 * The threshold for an extra load of m is the (1 - m) quantile of the latency: of m of all attempts
 * nothing has come by then, and each of these costs one more (Finagle's BackupRequestFilter chooses
 * its delay so). An attempt that was given up, a hedge's loser above all, is known to have taken at
 * least as long as it ran. Such values are neither left out nor taken for whole ones, either of which
 * would pull the quantiles down; they count as what they are, by the product-limit estimate of
 * Kaplan and Meier (1958): S(x) = product over the known values v <= x of
 * (1 - how many took v / how many took v or longer).
 *
 * What the p99 would have been: a call with a hedge after t is as fast as the faster of both, and the
 * hedge is taken for an independent draw from the same latencies:
 * S'(x) = S(x) for x < t, S(x) S(x - t) from t on.
 */
#ifndef WORKER_HEDGE_ADVICE_H
#define WORKER_HEDGE_ADVICE_H

#include "base/check.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEDGE_ADVICE_LEAST 100U /* attempts: the least that advice rests on */
#define HEDGE_ADVICE_LOADS 3U

struct hedge_sample {
    int64_t ms;
    bool at_least; /* it was given up after ms */
    double longer; /* filled in: S(ms), the share of all that takes longer */
};

/* -1: so many were given up that it cannot be told; it is longer than longest_ms. */
struct hedge_advice {
    size_t attempts, given_up;
    int64_t longest_ms; /* of all samples */
    int64_t p50_ms, p95_ms, p99_ms;
    struct hedge_threshold {
        int percent; /* of extra load: 1, 2, 5 */
        int64_t after_ms, p99_ms;
    } thresholds[HEDGE_ADVICE_LOADS];
};

/* Sorts the samples and fills them in. count >= 1. */
void hedge_advice_make(struct hedge_sample *samples, size_t count, struct hedge_advice *ret);

/* The whole answer of `penstockctl hedge-advice`. scope: NULL = all. False: there is no advice; why
 * gets the reason (out may have been written too: what there is, and is not enough). */
struct hedge_advice_wish {
    const char *state_directory;
    const char *scope;
    bool json;
    int64_t now_wall_ms;
};
MUST_CHECK bool hedge_advice_report(const struct hedge_advice_wish *wish, struct text *out,
                                    struct text *why);

#endif
