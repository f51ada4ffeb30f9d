/*
 * diagnose_report.h - `penstockctl diagnose`: what upstreams refused lately, by the ledger, which limits
 * those were, what they have in common, and what to do (F12).
 */
#ifndef WORKER_DIAGNOSE_REPORT_H
#define WORKER_DIAGNOSE_REPORT_H

#include "base/check.h"
#include "base/text.h"
#include "worker/options.h"

#include <stdbool.h>
#include <stdint.h>

struct diagnose_wish {
    const char *state_directory;
    const struct options *options; /* NULL: could not be read */
    int64_t last_ms, now_wall_ms;
    bool json;
};
/* False: the ledger cannot be read; why gets the reason. */
MUST_CHECK bool diagnose_report(const struct diagnose_wish *wish, struct text *out,
                                struct text *why);

#endif
