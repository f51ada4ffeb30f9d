/* account_model.h - an upstream's account with a quota of requests, and nothing else of an upstream. */
#ifndef TESTS_SHARED_ACCOUNT_MODEL_H
#define TESTS_SHARED_ACCOUNT_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* An account of 600 a minute: in any 60 s, or filling evenly like a bucket. */
#define ACCOUNT 600
#define TICKS_PER_S 100
struct account {
    bool slides;
    double level;                       /* of the bucket */
    uint8_t admitted[60 * TICKS_PER_S]; /* by tick, of the last minute */
    int in_minute;
    int64_t tick;
};

static inline void account_tick(struct account *account)
{
    uint8_t *slot = &account->admitted[++account->tick % (60 * TICKS_PER_S)];

    account->in_minute -= *slot;
    *slot = 0;
    account->level += ACCOUNT / 60.0 / TICKS_PER_S;
    if (account->level > ACCOUNT)
        account->level = ACCOUNT;
}

static inline int64_t account_left(const struct account *account)
{
    return account->slides ? ACCOUNT - account->in_minute : (int64_t)account->level;
}

static inline bool account_admits(struct account *account)
{
    if (account_left(account) < 1)
        return false;
    account->admitted[account->tick % (60 * TICKS_PER_S)]++;
    account->in_minute++;
    account->level--;
    return true;
}

#endif
