/*
 * plan_verdict.c - the rules of a failed round as a table over the classes of judge.h, and how two
 * failures make one verdict: a request's fault beats a real failure beats a throttling (D13); any
 * fault of the request ends it (D12); one real failure costs one unit, two cost one as well, and only
 * throttlings are free (R21 to R23).
 */
#include "worker/plan_verdict.h"

#include "base/check.h"

enum excludes { EXCLUDES_NOBODY, EXCLUDES_CANDIDATE, EXCLUDES_ACCOUNT };

static const struct class_row {
    enum verdict_kind kind; /* alone */
    int told_rank;          /* the higher of a pair is told */
    bool throttling;        /* too much, too fast: status 429 in most dialects */
    enum excludes excludes;
    int should_retry;
} classes[] = {
    [ATTEMPT_OK] = {VERDICT_END, 0, false, EXCLUDES_NOBODY, -1},
    [ATTEMPT_THROTTLE] = {VERDICT_THROTTLED, 3, true, EXCLUDES_NOBODY, 1},
    [ATTEMPT_QUOTA_DAY] = {VERDICT_ROTATE, 2, true, EXCLUDES_ACCOUNT, 0},
    [ATTEMPT_MONEY] = {VERDICT_ROTATE, 1, false, EXCLUDES_ACCOUNT, 0},
    [ATTEMPT_CREDENTIAL] = {VERDICT_ROTATE, 1, false, EXCLUDES_CANDIDATE, 0},
    [ATTEMPT_REQUEST] = {VERDICT_END, 5, false, EXCLUDES_NOBODY, -1},
    [ATTEMPT_TRANSIENT] = {VERDICT_REAL, 4, false, EXCLUDES_NOBODY, 0},
    [ATTEMPT_UNSENT] = {VERDICT_REAL, 4, false, EXCLUDES_NOBODY, 0},
    [ATTEMPT_UNKNOWN] = {VERDICT_REAL, 4, false, EXCLUDES_NOBODY, 0},
    /* Says nothing about any source: beside another failure it does not count. */
    [ATTEMPT_OURS] = {VERDICT_END, 0, false, EXCLUDES_NOBODY, -1},
};

static const struct class_row *row_of(enum attempt_class class)
{
    REQUIRE((size_t) class < LENGTH(classes) && class != ATTEMPT_OK);
    return &classes[class];
}

/* Is a the better one to tell? A whole answer beats none at the same rank, the primary the hedge. */
static bool is_told_before(const struct plan_lane *a, const struct plan_lane *b)
{
    int rank_a = row_of(a->judgement.class)->told_rank;
    int rank_b = row_of(b->judgement.class)->told_rank;

    return rank_a != rank_b ? rank_a > rank_b : a->has_answer && !b->has_answer;
}

void verdict_of_round(const struct plan_lane lanes[PLAN_LANES], bool unknown_too,
                      struct verdict *ret)
{
    bool found = false;
    bool seen[] = {[VERDICT_END] = false, false, false, false};
    bool barred = false; /* by a fault of the request, or an outcome that must not be repeated */

    *ret = (struct verdict){.kind = VERDICT_END, .refund = true};
    for (unsigned i = 0; i < PLAN_LANES; i++) {
        const struct plan_lane *lane = &lanes[i];

        if (lane->state != LANE_FAILED)
            continue;
        const struct class_row *row = row_of(lane->judgement.class);

        if (!found || is_told_before(lane, &lanes[ret->lane]))
            ret->lane = i;
        found = true;
        seen[row->kind] = true;
        barred |= lane->judgement.class == ATTEMPT_REQUEST ||
                  (lane->judgement.class == ATTEMPT_UNKNOWN && !unknown_too);
        if (!row->throttling && lane->judgement.class != ATTEMPT_OURS)
            ret->refund = false;
    }
    REQUIRE(found);
    for (unsigned kind = VERDICT_REAL; !barred && kind <= VERDICT_ROTATE; kind++) {
        if (seen[kind]) {
            ret->kind = (enum verdict_kind)kind;
            break;
        }
    }
    ret->refund &= verdict_is_throttling(lanes[ret->lane].judgement.class);
}

uint64_t verdict_excludes(const struct judgement *judgement, unsigned candidate, uint64_t account)
{
    uint64_t self = UINT64_C(1) << candidate;
    enum excludes excludes = row_of(judgement->class)->excludes;
    uint64_t mask = judgement->should_retry == 0 ? self : 0;

    if (judgement->retry_after_ms > PLAN_RETRY_AFTER_MAX_MS)
        mask |= judgement->class == ATTEMPT_THROTTLE ? account : self;
    if (excludes != EXCLUDES_NOBODY)
        mask |= excludes == EXCLUDES_ACCOUNT ? account : self;
    return mask;
}

bool verdict_is_throttling(enum attempt_class class)
{
    return row_of(class)->throttling;
}

int verdict_should_retry(const struct judgement *judgement)
{
    int said = row_of(judgement->class)->should_retry;

    return said >= 0 ? said : judgement->should_retry;
}
