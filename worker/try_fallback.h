/*
 * try_fallback.h - `penstockctl try-fallback SCOPE`: one small chat call to each entry of a scope's fallback
 * list, through the gateway itself, so that it is known before it is needed whether it answers (F12a).
 */
#ifndef WORKER_TRY_FALLBACK_H
#define WORKER_TRY_FALLBACK_H

#include "base/check.h"
#include "base/text.h"
#include "worker/fastcgi_call.h"
#include "worker/options.h"

#include <stdbool.h>

#define TRY_PATH_SIZE 600
#define TRY_MODEL_SIZE 256

/* What is asked of the gateway for one entry. */
struct fallback_try {
    char path[TRY_PATH_SIZE], model[TRY_MODEL_SIZE];
};
/* What all entries of a scope have in common. */
struct fallback_trial {
    const struct options *options;
    const struct scope_options *scope;
    const char *model; /* as callers ask for it; NULL = not told */
};
/* False: it cannot be tried; why gets one sentence. entry: one of the scope's. */
MUST_CHECK bool try_fallback_plan(const struct fallback_trial *trial,
                                  const struct scope_fallback *entry, struct fallback_try *ret,
                                  struct text *why);
/* One line about the answer. True: it is good. */
bool try_fallback_judge(const struct fastcgi_reply *reply, struct text *out);

/* All of it, a line for each entry. False: there is no such scope, no entry, or one of them did not
 * answer well. */
MUST_CHECK bool try_fallback_run(const struct options *options, const char *scope_name,
                                 const char *model, struct text *out);

#endif
