/* diagnose_traffic.h - exchanges of known pattern, for the tests of the diagnosis. */
#ifndef TESTS_WORKER_DIAGNOSE_TRAFFIC_H
#define TESTS_WORKER_DIAGNOSE_TRAFFIC_H

#include "base/text.h"
#include "worker/diagnose.h"

#include <string.h>

#define TRAFFIC_MOST 20000U
#define TRAFFIC_BEGIN_MS INT64_C(1800000000000)

struct traffic {
    struct diagnose_flow flow;
    struct diagnose_exchange exchanges[TRAFFIC_MOST];
    int64_t now_ms;
};

static inline void traffic_begin(struct traffic *traffic, int64_t rpm, int64_t tpm)
{
    memset(traffic, 0, sizeof *traffic);
    traffic->now_ms = TRAFFIC_BEGIN_MS;
    traffic->flow.exchanges = traffic->exchanges;
    traffic->flow.rpm = rpm;
    traffic->flow.tpm = tpm;
    (void)text_copy(traffic->flow.quota_group, NAME_SIZE, "acme");
    (void)text_copy(traffic->flow.model, NAME_SIZE, "qwen-max");
}

/* One that begins now, of 100 tokens, and is answered after two seconds; the next begins after_ms
 * later. */
static inline struct diagnose_exchange *traffic_good(struct traffic *traffic, int64_t after_ms)
{
    struct diagnose_exchange *exchange = &traffic->exchanges[traffic->flow.count++];

    *exchange = (struct diagnose_exchange){.started_ms = traffic->now_ms,
                                           .ended_ms = traffic->now_ms + 2000,
                                           .tokens = 100,
                                           .input = 100,
                                           .limit = DIAGNOSE_NONE,
                                           .good = true};
    traffic->now_ms += after_ms;
    return exchange;
}

/* Likewise, refused after 20 ms. */
static inline struct diagnose_exchange *traffic_refused(struct traffic *traffic, const char *kind,
                                                        int64_t after_ms)
{
    struct diagnose_exchange *exchange = traffic_good(traffic, after_ms);

    exchange->ended_ms = exchange->started_ms + 20;
    exchange->limit = diagnose_limit_of(kind);
    exchange->good = false;
    exchange->code = diagnose_code(&traffic->flow, "some_code");
    return exchange;
}

/* Ten minutes of two a second, of which the last five seconds of each minute are refused. */
static inline void traffic_of_a_used_up_minute(struct traffic *traffic, const char *kind)
{
    for (unsigned i = 0; i < 1200; i++) {
        if (i % 120 >= 110)
            (void)traffic_refused(traffic, kind, 500);
        else
            (void)traffic_good(traffic, 500);
    }
}

/* One a second, and every minute and a half twelve at once, of which eight are refused. */
static inline void traffic_of_surges(struct traffic *traffic, const char *kind)
{
    for (unsigned i = 0; i < 600; i++) {
        for (unsigned k = 0; i % 90 == 45 && k < 12; k++)
            (void)(k < 4 ? traffic_good(traffic, 10) : traffic_refused(traffic, kind, 10));
        (void)traffic_good(traffic, 1000);
    }
}

/* After each minute without a call, ten in two seconds, of which six are refused; then ten good ones. */
static inline void traffic_of_starts(struct traffic *traffic, const char *kind)
{
    for (unsigned start = 0; start < 8; start++) {
        for (unsigned k = 0; k < 10; k++)
            (void)(k < 4 ? traffic_good(traffic, 200) : traffic_refused(traffic, kind, 200));
        traffic->now_ms += 5000;
        for (unsigned k = 0; k < 10; k++)
            (void)traffic_good(traffic, 1000);
        traffic->now_ms += 60000;
    }
}

/* Two a second, every tenth of them ten times as long, of which all but the first of a minute are
 * refused. */
static inline void traffic_of_long_texts(struct traffic *traffic, const char *kind)
{
    for (unsigned i = 0; i < 1200; i++) {
        if (i % 10 == 9 && i % 120 != 9) {
            struct diagnose_exchange *exchange = traffic_refused(traffic, kind, 500);

            exchange->input = exchange->tokens = 1000;
        } else {
            (void)traffic_good(traffic, 500);
        }
    }
}

#endif
