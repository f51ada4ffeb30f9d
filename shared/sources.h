/*
 * sources.h - the upstream sources of an instance as all its workers see them: breaker (H7), health
 * (H8), drain, exchanges in progress. One admission decision, all or nothing.
 *
 * Breaker: closed -> open after failures in a row, or a share of failures of enough calls within
 * SOURCE_WINDOW_S; open -> half-open when the cool-down has passed; half-open lets one probe through
 * host-wide: its success closes, its failure opens for twice as long. The probe is a lease: it comes
 * back without a verdict when its attempt is cancelled, when its process is buried, and when it
 * expires. A cool-down is never shortened by a later, shorter one.
 *
 * A permit is given back exactly once, by source_release; that of a dead process by burial. Calls
 * that are cancelled, throttled, refused for their own fault or lost as hedges feed nothing.
 *
 * Locking: functions named _locked want the segment's lock; the others take it themselves, and only
 * when the row's needs_lock says that there is more to do than count. All take `now`; no clock here.
 */
#ifndef SHARED_SOURCES_H
#define SHARED_SOURCES_H

#include "base/check.h"
#include "shared/breaker.h"
#include "shared/gate.h"
#include "shared/layout.h"

#include <stdbool.h>
#include <stddef.h>

/* What the master does at load, and each of its workers to learn the indexes: find or make a row for
 * each of the configuration's sources (name, quota_group; "" = a group of its own). ret_rows[i] =
 * index of names[i]. A newer generation ends "out": its configuration may bring another key. A row
 * whose name is gone is given to another source when room is needed, nothing of it is in flight, and
 * no process lives that could know it by its index. False: no room, which takes more than two
 * generations without a name in common. */
struct source_name {
    const char *name;
    const char *quota_group;
};
MUST_CHECK bool sources_register(struct gate *gate, const struct source_name *names, size_t count,
                                 uint32_t *ret_rows);

struct source_candidate {
    uint32_t row;           /* from sources_register */
    uint32_t weight;        /* > 0 */
    uint32_t max_in_flight; /* 0 = no bound */
};

/* Whom to ask. Bits of the masks are indexes into candidates (at most 64). */
struct source_wish {
    const struct source_candidate *candidates; /* in order of preference */
    size_t count;
    uint64_t excluded; /* never these */
    uint64_t tried;    /* these only when no other can be had, and not at all for a hedge */
    /* Draw by weight and health score (success, and to a lesser degree speed); else the first that
     * can be had, in order. Either way one whose upstream asked to wait comes after the others. */
    bool weighted;
    bool hedge;        /* beside a running attempt: never waits, never probes a throttled source */
    uint32_t hedge_of; /* index of the running one's candidate: its quota group is excluded too */
    bool insist;       /* a direct route: "out" is for its upstream itself to say, not for us */
    bool last_resort;  /* when every breaker is open, the one that closes first is tried */
    uint64_t random;   /* for weighted */
    int64_t now_ns, now_wall_ms;
    int64_t
        probe_ns; /* > 0; how long a probe may be held: the attempt's time-out and a little more */
};

/* After the first, in order of hope: the answer is the best of the candidates'. */
enum source_verdict {
    SOURCE_ADMITTED,
    SOURCE_NONE, /* every candidate is excluded (or, for a hedge, tried or of the same group) */
    SOURCE_OUT,  /* what is left is drained, out of money, or refuses our key */
    SOURCE_OUT_QUOTA, /* or has used up the quota of its day */
    SOURCE_OPEN,      /* what is left has an open breaker or its probe is out */
    SOURCE_BUSY,      /* what is left has max_in_flight exchanges */
    SOURCE_WAITING,   /* hedge only: what is left was asked to wait by its upstream */
};

struct source_permit {
    uint32_t row; /* NO_INDEX = none */
    bool probe;
    bool last_resort; /* went to a source whose breaker was open: its success closes it */
    uint64_t probe_seq;
};

struct source_answer {
    enum source_verdict verdict;
    unsigned candidate;          /* ADMITTED: index into candidates */
    struct source_permit permit; /* ADMITTED */
    int64_t earliest_ns; /* not admitted: when asking again may help; INT64_MAX = not by waiting */
};
void source_admit(struct gate *gate, const struct source_wish *wish, struct source_answer *ret);
/* Lock held. Whom source_admit_locked would choose from, as a mask over the candidates; 0: nobody, and
 * ret tells why. Takes nothing. A wish narrowed to some of them is admitted. */
uint64_t source_choices_locked(struct gate *gate, const struct source_wish *wish,
                               struct source_answer *ret);
void source_admit_locked(struct gate *gate, const struct source_wish *wish,
                         struct source_answer *ret);

enum source_end {
    SOURCE_END_UNJUDGED, /* cancelled, superseded, the client's fault: feeds nothing */
    SOURCE_END_SUCCESS,
    SOURCE_END_FAILURE,
    SOURCE_END_THROTTLED, /* out_ns: how long the upstream asks to wait (0 = not said); holds for all
                             sources of the quota group */
    SOURCE_END_OUT,       /* money, credential: out for out_ns */
    SOURCE_END_QUOTA,     /* the quota of its day: likewise */
};
struct source_outcome {
    enum source_end end;
    struct breaker_terms terms;
    int64_t transport_ns; /* SUCCESS: for the latency average; 0 = not known */
    int64_t out_ns;
    const char *reason; /* FAILURE, OUT: the judgement's word, for people; "" or NULL = none */
    int64_t now_ns, now_wall_ms;
};
/* Give the permit back and feed breaker and health. A change of state is written into the journal
 * as an event: source_open, source_half_open, source_closed, source_out, detail
 * "source=NAME reason=... for_ms=...". Sets permit->row to NO_INDEX; harmless when it is that. */
void source_release(struct gate *gate, struct source_permit *permit,
                    const struct source_outcome *outcome);

/* An operator's order; false: no such source. Events source_drained, source_undrained. Undraining
 * also closes the breaker and ends "out". */
MUST_CHECK bool source_drain(struct gate *gate, const char *name, bool drained,
                             int64_t now_wall_ms);

/* Part of burial and of a clean end (gate.c calls it): the process's exchanges and probes. */
void sources_bury_locked(struct segment_area *area, uint32_t roster_index, uint64_t incarnation);

/* For the status page (snapshot_take). */
struct source_view {
    char name[NAME_SIZE], quota_group[NAME_SIZE], out_reason[48];
    enum breaker_state breaker;
    bool drained, probing;
    bool leaving; /* not in the newest configuration: its last exchanges run */
    uint32_t in_flight, failures_in_a_row, health_permille, latency_ms;
    uint32_t window_calls, window_failures;
    int64_t open_for_ns, out_for_ns, throttled_for_ns; /* from now on; 0 = not */
};
/* Sources of the newest configuration, and others that are still in use. Returns their number. */
unsigned sources_view_locked(const struct instance_row *instance, int64_t now_ns,
                             struct source_view views[SOURCE_ROWS]);

#endif
