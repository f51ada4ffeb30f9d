/*
 * gate.h - the admission decision for image calls: slot now, wait, or refusal; one decision under
 * the one lock, nothing taken when it is a refusal (G4).
 *
 * struct gate is a process's handle: segment, own roster row. Every function takes the lock itself
 * (names without _locked), brings the state in order when the last holder died, and writes the
 * ledger's record into the journal in the same critical section.
 *
 * Life of a call:  gate_arrive -> GATE_GRANTED                          -> gate_leave(DONE)
 *                              -> GATE_QUEUED: wait for the bell, gate_try -> GATE_GRANTED -> ...
 *                                                                     -> gate_leave(TIMED_OUT, ...)
 *                              -> GATE_REFUSED_*, GATE_OPEN: nothing to give back
 */
#ifndef SHARED_GATE_H
#define SHARED_GATE_H

#include "base/check.h"
#include "shared/flow_terms.h"
#include "shared/roster.h"
#include "shared/segment.h"

#include <stdbool.h>

struct gate {
    struct segment *segment;
    uint32_t self; /* own roster row */
};

enum gate_refusal {
    GATE_REFUSAL_NONE,
    GATE_REFUSAL_LIMIT,
    GATE_REFUSAL_QUEUE_FULL,
    GATE_REFUSAL_HOPELESS
};

enum gate_verdict {
    GATE_GRANTED, /* has a slot: place must be left */
    GATE_QUEUED,  /* waits: place must be left */
    GATE_OPEN,    /* no limit is active: nothing held */
    GATE_REFUSED_LIMIT,
    GATE_REFUSED_QUEUE_FULL,
    GATE_REFUSED_HOPELESS,
};

struct gate_call {
    bool may_wait;
    bool refuse_hopeless;
    int64_t wait_timeout_ns;
    int64_t now_ns, now_wall_ms;
    enum flow_class class; /* not heard where the gate has no weights */
    int64_t pictures;      /* asked for; what its class is charged, within 1..QUEUE_PICTURES_MAX */
    const char *call_id, *class_name, *client, *scope, *model,
        *endpoint; /* never NULL; cut to fit */
};

struct gate_answer {
    enum gate_verdict verdict;
    uint32_t place;    /* for GRANTED and QUEUED */
    uint32_t position; /* in the queue (wait_queue.h), QUEUED only */
    uint32_t in_use, limit, waiting;
    int64_t predicted_wait_ns; /* for Retry-After; from queue length and recent hold times; >= 0 */
};

/* Set up the handle: enters the roster. False when the roster is full. */
MUST_CHECK bool gate_join(struct gate *gate, struct segment *segment,
                          const struct roster_member *member, int64_t now_ns);
/* Give back everything this process has left and leave the roster (clean end). */
void gate_resign(struct gate *gate, int64_t now_ns);

/* The segment's lock; what a dead holder left half-done is repaired before this returns. */
void gate_lock(struct gate *gate);
void gate_unlock(struct gate *gate);

void gate_arrive(struct gate *gate, const struct gate_call *call, struct gate_answer *ret_answer);
/* A waiting place asks for its slot: GRANTED, QUEUED (go on waiting; answer has the position), or
 * OPEN (the gate was switched off: the place holds no slot but must still be left). */
void gate_try(struct gate *gate, uint32_t place, int64_t now_ns, struct gate_answer *ret_answer);
/* End of the call at the gate, from waiting or holding; the place is gone afterwards. end is the
 * ledger's state: DONE, TIMED_OUT, CLIENT_GONE, SHUTDOWN. A lease (terms not NULL) takes the slot
 * over in the same step. */
struct lease_terms;
void gate_leave(struct gate *gate, uint32_t place, enum wait_state end, int64_t now_ns,
                const struct lease_terms *terms);
/* A poll showed that background work ended; true when there was a lease for it. */
bool gate_end_lease(struct gate *gate, const char *id, int64_t now_ns);
/* The source that owns the background work, copied; "" = unknown. */
void gate_lease_source(struct gate *gate, const char *id, char source[NAME_SIZE]);

/* The flag a place's own thread waits for; cleared by gate_try. Read by the bell thread without
 * lock. */
bool gate_is_rung(const struct gate *gate, uint32_t place);

/* Limits of the segment, written by the master at load; up rings waiters at once (M11). */
struct gate_limits {
    uint32_t limit; /* 0 = none */
    uint32_t max_waiting;
    bool on;                                  /* this instance's gate is active */
    struct queue_terms classes[FLOW_CLASSES]; /* all 0 = the queue is in the order of arrival */
};
void gate_set_limits(struct gate *gate, const struct gate_limits *limits, int64_t now_ns,
                     int64_t now_wall_ms);
void gate_limits_now(struct gate *gate, struct gate_limits *ret_limits);

/* What every worker does every 250 ms and whenever its bell rings (M4): answer a roll call, let
 * leases expire, ring whose turn it is. */
void gate_tick(struct gate *gate, int64_t now_ns);
/* Give back what a dead process held; idempotent, never on a living process. Returns false when
 * somebody was faster. */
struct gate_burial {
    unsigned slots, places;
    int32_t pid;
    enum process_role role;
};
bool gate_bury(struct gate *gate, const struct roster_death *death, int64_t now_ns,
               int64_t now_wall_ms, struct gate_burial *ret_burial);

/* Journal entries of other kinds; each takes the lock but the last. */
/* last: the call's last attempt, booked with it in one taking of the lock; NULL = none. */
void gate_journal_call(struct gate *gate, const struct call_record *record,
                       const struct attempt_record *last);
void gate_journal_attempt(struct gate *gate, const struct attempt_record *record);
void gate_journal_event(struct gate *gate, int64_t now_wall_ms, const char *name,
                        const char *detail);
void gate_journal_event_locked(struct gate *gate, int64_t now_wall_ms, const char *name,
                               const char *detail);

/* Into the journal of any instance; lock held. */
void gate_event_locked(struct instance_row *instance, int64_t now_wall_ms, const char *name,
                       const char *detail);

/* ---- lock held: parts of the above, for admit.c and flow.c ------------------------------------ */

/* Do image calls of this instance need slots? */
bool gate_is_on_locked(const struct gate *gate);
/* Is there a slot that a waiting call could have? */
bool gate_slot_is_free_locked(struct gate *gate, int64_t now_ns);

/* What an arriving call would get. Leaves no trace. */
struct gate_weighing {
    uint32_t used, free;
    bool may_take;                  /* a slot, now */
    enum gate_refusal wait_refusal; /* if it does not: NONE = it may wait */
};
void gate_weigh_locked(struct gate *gate, const struct gate_call *call,
                       struct gate_weighing *ret_weighing, struct gate_answer *answer);
/* Done: take a slot (QUEUED when the kernel refuses one after all), wait, or be refused. */
enum gate_step { GATE_STEP_TAKE, GATE_STEP_WAIT, GATE_STEP_REFUSE };
void gate_enter_locked(struct gate *gate, const struct gate_call *call,
                       const struct gate_weighing *weighing, enum gate_step step,
                       struct gate_answer *answer);
/* As gate_try; take: false only looks: GRANTED = could have its slot. */
void gate_ask_locked(struct gate *gate, uint32_t place, bool take, int64_t now_ns,
                     struct gate_answer *answer);
/* The place was rung, and something else than a slot is missing: QUEUED. */
void gate_heard_locked(struct gate *gate, uint32_t place, struct gate_answer *answer);
/* As gate_leave. */
void gate_leave_locked(struct gate *gate, uint32_t place, enum wait_state end, int64_t now_ns,
                       const struct lease_terms *terms);

#endif
