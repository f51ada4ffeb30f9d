/*
 * scribe_config.h - what is in force, into the ledger's tables config and sources.
 */
#ifndef WORKER_SCRIBE_CONFIG_H
#define WORKER_SCRIBE_CONFIG_H

#include "base/check.h"
#include "shared/ledger.h"
#include "worker/options.h"

#include <stdbool.h>
#include <stdint.h>

/* Replaces both tables in one transaction. Secrets are references already (`penstockd -T`); a password
 * in a URL is masked. */
MUST_CHECK bool scribe_config_write(struct ledger *ledger, const struct options *options,
                                    int64_t now_wall_ms);

/* Put "***" in place of USER:PASSWORD in every SCHEME://USER:PASSWORD@HOST of the text. */
void scribe_config_mask(char *text);

#endif
