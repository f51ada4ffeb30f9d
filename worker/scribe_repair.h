/*
 * scribe_repair.h - what must be so, read from the gate and the roster under one short lock, and put
 * into the ledger: for rows whose records were lost, or whose process died.
 */
#ifndef WORKER_SCRIBE_REPAIR_H
#define WORKER_SCRIBE_REPAIR_H

#include "base/check.h"
#include "shared/gate.h"
#include "shared/ledger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scribe_copy {
    uint64_t boot, next_seq;
    struct wait_record *records; /* of this instance's calls at the gate */
    uint64_t *seqs;              /* theirs, sorted */
    size_t count;
};

/* False: out of memory. To be released either way. */
MUST_CHECK bool scribe_copy_gate(struct scribe_copy *copy, struct gate *gate);
void scribe_copy_release(struct scribe_copy *copy);
/* Put the rows of who is at the gate, close those of who is not; one transaction. What was in the
 * journal before the copying has been put before. */
MUST_CHECK bool scribe_put_copy(const struct scribe_copy *copy, struct ledger *ledger);

/* Close attempts whose process has gone. */
MUST_CHECK bool scribe_close_attempts(struct gate *gate, struct ledger *ledger);

#endif
