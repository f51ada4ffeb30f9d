/*
 * diagnose_advice.h - what to write into the configuration for the limits that were met (F12), for the
 * configuration that there is: the weakest strategy that answers to them, where it has what it needs.
 * Pure.
 */
#ifndef WORKER_DIAGNOSE_ADVICE_H
#define WORKER_DIAGNOSE_ADVICE_H

#include "worker/diagnose.h"
#include "worker/options.h"

#define ADVICE_LINES_MAX 64U
#define ADVICE_NOTES_MAX 12U

struct diagnose_advice {
    unsigned line_count, note_count;
    struct advice_line {
        char section[NAME_SIZE + 16]; /* "scope main" */
        char line[NAME_SIZE + 40];    /* "flow = shaping" */
        char now[40];                 /* what it is; "" = not there */
    } lines[ADVICE_LINES_MAX];        /* those of a section together */
    char notes[ADVICE_NOTES_MAX][320];
};

/* What the account is granted for the model, as the caller calls it. options: NULL: not known. */
struct model_limit diagnose_quota(const struct options *options, const char *quota_group,
                                  const char *model);
/* The model as the account's source calls it; model itself when it is not known. */
const char *diagnose_source_model(const struct options *options, const char *quota_group,
                                  const char *model);
/* flow: looked at. options: NULL = it could not be read; then there are notes alone. */
void diagnose_advise(const struct options *options, const struct diagnose_flow *flow,
                     struct diagnose_advice *ret);

/* What no gateway can do (F12a): count sentences. */
extern const char *const diagnose_beyond[];
extern const size_t diagnose_beyond_count;

#endif
