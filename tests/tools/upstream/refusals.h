/* refusals.h - the errors that providers are known to answer with, under a name each: error=NAME in X-Mock. */
#ifndef TESTS_TOOLS_UPSTREAM_REFUSALS_H
#define TESTS_TOOLS_UPSTREAM_REFUSALS_H

#include "tests/tools/upstream/behaviour.h"

#include "base/check.h"

/* Let the answer be this refusal: status, dialect, words, delay headers. False: no such name. */
MUST_CHECK bool sim_refusal_apply(struct behaviour *behaviour, const char *name);

#endif
