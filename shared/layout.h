/*
 * layout.h - every struct that lies in the segment, and nothing else; those of the adaptive controller are
 * in layout_adaptive.h.
 *
 * The segment is one POSIX shared memory object per gate name: "/penstock-<gate>". It survives
 * restarts; it is created zeroed, so that all-zero must be a valid empty state of every struct here.
 * Fixed width, indices instead of pointers (each process maps it elsewhere). What lies in the segment
 * is named _row or _area.
 *
 *   core_area     frozen for ever (CORE_VERSION): what programs of different layouts must agree on to
 *                 obey one limit: the lock, the limit, the semaphore, the roster, who holds a slot,
 *                 leases, and how many wait per layout (M8)
 *   layout_area   may change with LAYOUT_VERSION: places in the queue, instances with their journals
 *                 and counters
 *
 * Everything is read and written under core.lock unless the comment says "atomic".
 * All times are CLOCK_MONOTONIC nanoseconds unless the name ends in _wall_ms.
 */
#ifndef SHARED_LAYOUT_H
#define SHARED_LAYOUT_H

#include "shared/layout_adaptive.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define SEGMENT_MAGIC UINT64_C(0x314b434f54534e50) /* "PNSTOCK1" as stored on x86-64 */
#define CORE_VERSION 1U
#define LAYOUT_VERSION 2U
#define LAYOUTS_MAX 8U /* layout versions that can have waiters at the same time */

#define ROSTER_MAX 512U  /* processes of all instances and generations that share a gate */
#define HELD_MAX 2048U   /* the highest limit */
#define LEASES_MAX 2048U /* background work that outlives its call */
#define PLACES_MAX 6144U /* calls at the gate: waiting (at most WAITING_MAX) and holding ones */
#define WAITING_MAX 4096U
#define INSTANCES_MAX 8U  /* Penstock instances (each with its own ledger) that share one gate */
#define SOURCES_MAX 64U   /* upstream sources of one configuration */
#define SOURCE_ROWS 128U  /* and beside them those of the one before, whose workers still drain */
#define OWNERS_MAX 65536U /* ids of responses, files, tasks whose source is remembered */

#define FLOWS_MAX 128U        /* (quota group, model) pairs whose calls are counted and held back */
#define FLOW_PLACES_MAX 8192U /* calls in a flow: waiting, and running ones */
#define FLOW_CLIENTS 16384U   /* who waits in which flow, hashed; at least twice FLOW_PLACES_MAX */
#define FLOW_CLASSES 3U       /* enum flow_class; the image queue has the same */

#define NO_INDEX UINT32_MAX

#define CALL_ID_SIZE 40
#define NAME_SIZE 64 /* names of scopes, sources, clients, models, endpoints: cut to fit */

/* ---- core ------------------------------------------------------------------------------------ */

/* The one lock (M3). Robust and process-shared. */
struct lock_area {
    pthread_mutex_t mutex;
    _Atomic uint32_t owner; /* for people: roster index + 1 of the holder, or 0 (atomic) */
    uint32_t unused;
    _Atomic uint64_t acquisitions; /* takings; stuck is who holds while they stand still (atomic) */
    uint64_t owner_deaths;         /* times a holder died inside */
};

enum process_role { PROCESS_NONE, PROCESS_MASTER, PROCESS_WORKER, PROCESS_MONITOR, PROCESS_TOOL };

/* One living process. A row is free when pid is 0. */
struct roster_row {
    _Atomic int32_t pid;      /* written last when the row is taken, first when it is freed */
    uint32_t role;            /* enum process_role */
    uint64_t incarnation;     /* never used twice; index + incarnation is the identity (M6) */
    uint64_t start_ticks;     /* field 22 of /proc/PID/stat: tells a reused pid from the real one */
    uint32_t instance;        /* index into layout_area.instances */
    uint32_t layout;          /* LAYOUT_VERSION of the program */
    uint64_t generation;      /* of its master's configuration; grows with every reload */
    uint64_t semaphore_epoch; /* the semaphore epoch its share is taken in (M9) */
    _Atomic uint32_t bell; /* futex word: incremented and woken to make the process look (atomic) */
    uint32_t draining;     /* serves what it has, takes nothing new */
    int64_t since_ns;
    _Atomic uint32_t threads;      /* request threads (atomic) */
    _Atomic uint32_t threads_busy; /* of them, those with a request (atomic) */
};

/* One slot in use. Owner first, state last. */
struct held_row {
    _Atomic uint32_t held; /* 0 free, 1 held: written last */
    uint32_t owner;        /* roster index */
    uint64_t incarnation;  /* of the owner */
    uint32_t place;        /* index into layout_area.places, or NO_INDEX */
    uint32_t layout;
    int64_t since_ns;
};

/* A slot kept for work that goes on upstream after its call ended (G13). Never a semaphore share. */
struct lease_row {
    _Atomic uint32_t used; /* written last when it is taken */
    uint32_t instance;
    int64_t expires_ns;
    int64_t since_ns;
    char id[NAME_SIZE];     /* upstream's id of the response or task */
    char source[NAME_SIZE]; /* the source that owns the id */
};

struct core_area {
    _Atomic uint64_t magic; /* written last at creation (atomic) */
    uint32_t core_version;
    uint32_t creator_layout;
    uint64_t total_bytes;
    uint64_t boot; /* random, made with the segment; with a seq it names a ledger row for ever */
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid and .../ipc of the creator (M6) */
    uint64_t ipc_namespace;
    struct lock_area lock;

    uint32_t limit;       /* slots of this host; 0 = no limit */
    uint32_t max_waiting; /* bound of the queue */
    int32_t semaphore_id; /* SysV set of one semaphore whose value is the number of slots in use */
    uint32_t unused;
    uint64_t semaphore_epoch; /* grows when the set had to be made anew (M9) */
    uint64_t next_incarnation;
    uint64_t next_arrival_seq; /* shared by all layouts: order of arrival on this host */
    uint64_t next_grant_seq;
    uint32_t waiting_by_layout[LAYOUTS_MAX]; /* index: layout version % LAYOUTS_MAX */
    uint32_t held_count;  /* how many of held[] are held: an index, built again from the rows */
    uint32_t lease_count; /* of leases[], likewise */
    int64_t lease_next_expiry_ns; /* no lease expires before this */
    struct roster_row roster[ROSTER_MAX];
    struct held_row held[HELD_MAX];
    struct lease_row leases[LEASES_MAX];
};

/* ---- layout ---------------------------------------------------------------------------------- */

/* How good the token estimates of one model's requests are (shared/calibration.h); lies in flow_row. */
struct estimate_row {
    /* Sums over calls: products of the shares of their input that are Latin and in another script, and
     * of these with usage / estimate. */
    double latin_latin, latin_script, script_script, latin_used, script_used;
    uint32_t ratio_samples, output_samples; /* calls that told; stand still at their highest */
    int64_t output_parts; /* tokens of an answer, moving average, in thousandths */
};

/* States of one image call at the gate, in the words of the ledger. */
enum wait_state {
    WAIT_NONE,
    WAIT_WAITING,
    WAIT_GRANTED,
    WAIT_DONE,
    WAIT_REFUSED,
    WAIT_TIMED_OUT,
    WAIT_CLIENT_GONE,
    WAIT_WORKER_DIED,
    WAIT_SHUTDOWN,
};

/* What the ledger's table "waits" knows of one call. Copied whole into the journal at every change. */
struct wait_record {
    uint64_t boot; /* boot + arrival_seq is the key of the row */
    uint64_t arrival_seq;
    uint64_t grant_seq; /* 0 = not granted */
    uint32_t state;     /* enum wait_state */
    uint32_t position;  /* in the queue at arrival: 1 = first, 0 = did not queue */
    int64_t arrived_wall_ms;
    int64_t arrived_ns;
    int64_t granted_ns;  /* 0 = never */
    int64_t released_ns; /* 0 = not yet; also the end of a wait that was not granted */
    uint32_t in_use_at_arrival, waiting_at_arrival;
    uint32_t in_use_at_grant, waiting_at_grant; /* in_use includes this call */
    int32_t pid;
    uint32_t refusal; /* enum gate_refusal when state is WAIT_REFUSED */
    char call_id[CALL_ID_SIZE];
    char class_name[16];
    char client[NAME_SIZE];
    char scope[NAME_SIZE];
    char model[NAME_SIZE];
    char endpoint[NAME_SIZE];
};

enum place_state { PLACE_FREE, PLACE_WAITING, PLACE_HELD };

/* One call at the gate. Free rows are all zero. Lists are an index; rows are the truth. */
struct place_row {
    _Atomic uint32_t state;  /* enum place_state: written last */
    uint32_t owner;          /* roster index */
    uint64_t incarnation;    /* of the owner */
    uint32_t next, previous; /* queue links while waiting; next = free list link while free */
    uint32_t held;           /* index into core.held while held and counted, else NO_INDEX */
    _Atomic uint32_t rung;   /* 1 = its turn may have come: its bell thread wakes it (atomic) */
    int64_t rung_ns;         /* when it was first rung without answering, 0 = not */
    uint32_t flow_place;  /* waits for a flow's grant as well: index into flow_places + 1; or 0 */
    uint32_t passed_over; /* slots that went to others because its flow was not ready */
    uint32_t class_index; /* enum flow_class: which list it waits in */
    uint32_t pictures;    /* what its class is charged for its slot */
    struct wait_record record;
};

/* One class of calls at the image gate (wait_queue.h). */
struct queue_terms {
    uint32_t weight;      /* of all 0 = no classes: only the middle one is used */
    uint32_t max_waiting; /* 0 = as many as all together may */
};
struct queue_class_row {
    struct queue_terms terms;
    uint32_t head, tail, waiting; /* its list: an index, built again from the rows */
    uint32_t unused;
    uint64_t pictures_waiting; /* likewise */
    int64_t finish;            /* tag at which what was granted last ends, in virtual time */
};

/* Hand-off to the ledger (M10): a ring of whole records. head and tail only grow; the entry of n is
 * rows[n % length]. Written under core.lock; read by the one drainer, which advances tail after
 * COMMIT. */
#define JOURNAL_WAITS 4096U
#define JOURNAL_CALLS 8192U
#define JOURNAL_ATTEMPTS 8192U
#define JOURNAL_EVENTS 512U

/* What the ledger's table "calls" knows of one call. Written once, when it ends. -1 = not known. */
struct call_record {
    char call_id[CALL_ID_SIZE];
    int64_t arrived_wall_ms;
    int64_t generation_ms, total_latency_ms, queue_ms, ttft_ms;
    int64_t tokens_in, tokens_out, tokens_cached, tokens_reasoning;
    int64_t image_tokens_in, image_tokens_out;
    int64_t bytes_in, bytes_out;
    int32_t status;          /* what the client was told (logical status after a heartbeat) */
    int32_t upstream_status; /* 0 = none */
    uint32_t stream, hedges, hedge_won, retries, fallback;
    uint32_t images;
    int32_t pid;
    uint32_t attempts;
    char kind[16];
    char client[NAME_SIZE];
    char route[NAME_SIZE];
    char scope[NAME_SIZE];
    char source[NAME_SIZE];
    char model_asked[NAME_SIZE];
    char model_served[NAME_SIZE];
    char endpoint[NAME_SIZE];
    char outcome[24];    /* ok, refused, upstream_error, client_gone, ... */
    char error_code[48]; /* "" = none */
    char image_size[24], image_quality[16], image_format[16];
    char upstream_id[NAME_SIZE]; /* of background work: what a later poll asks about; "" = none */
    uint32_t poll;               /* this call only asked: what it shows is booked on the call that
                                    created the work, once */
    /* Its one attempt has no record of its own: all that an attempt_record would say follows from
     * this one and the next three. */
    uint32_t tells_attempt;
    int64_t attempt_start_ms, attempt_ms; /* from arrival to its start; from there to its end */
    int64_t est_tokens;                   /* -1 = not known */
};

/* What the ledger's table "attempts_more" knows of one exchange with a source. Written when it ends; one
 * of a hedged call also when the hedge is sent, so that the row can be closed if the worker dies.
 * None for a call's only attempt when that went well: see call_record. -1 = not known. */
struct attempt_record {
    char call_id[CALL_ID_SIZE]; /* the logical call: rows of one call share it */
    int64_t started_wall_ms;
    int64_t ended_wall_ms; /* 0 = still running */
    int64_t ttft_ms;       /* transport start to first content (stream) or first body byte */
    int64_t generation_ms; /* transport start to last byte received */
    int64_t est_tokens, settled_tokens;
    int32_t status; /* of the upstream's answer; 0 = none */
    int32_t pid;
    uint32_t n;        /* 1 = the call's first */
    uint32_t hedge;    /* sent beside a running one */
    uint32_t kept_est; /* cancelled: its reservation stays at the estimate */
    uint32_t unused;
    char source[NAME_SIZE];
    char error[48]; /* "" = none; hedge_cancelled, client_cancelled, deadline, ttft_timeout, ... */
    char limit_kind[16]; /* which limit of the upstream refused it: rpm, burst, ...; "" = none */
};

/* What the ledger's table "events" knows. */
struct event_record {
    int64_t wall_ms;
    int32_t pid;
    uint32_t unused;
    char name[32];    /* start, reload, limit_changed, burial, ... */
    char detail[200]; /* key=value pairs for people; no secrets */
};

struct journal_area {
    _Atomic uint32_t doorbell; /* futex word for the drainer (atomic) */
    uint32_t unused;
    pthread_mutex_t seat; /* robust: who holds it drains; taken by trylock only */
    uint32_t seat_ready;
    uint32_t unused2;
    _Atomic uint64_t waits_head, waits_tail, waits_lost;
    _Atomic uint64_t calls_head, calls_tail, calls_lost;
    _Atomic uint64_t attempts_head, attempts_tail, attempts_lost;
    _Atomic uint64_t events_head, events_tail, events_lost;
    _Atomic uint64_t written;  /* records that reached the ledger */
    _Atomic uint64_t failures; /* transactions that did not */
    struct wait_record waits[JOURNAL_WAITS];
    struct call_record calls[JOURNAL_CALLS];
    struct attempt_record attempts[JOURNAL_ATTEMPTS];
    struct event_record events[JOURNAL_EVENTS];
};

/* Counters live beside their readers' names in counters_list.h. */
enum counter {
#define COUNTER(name, kind, help) COUNTER_##name,
#include "shared/counters_list.h"
#undef COUNTER
    COUNTERS
};

/* Histogram buckets of waits and upstream times; bounds in counters.c. */
#define HISTOGRAM_BUCKETS 16
struct histogram_row {
    _Atomic uint64_t buckets[HISTOGRAM_BUCKETS + 1]; /* last: above every bound (atomic) */
    _Atomic uint64_t count, sum_us;                  /* (atomic) */
};

struct counters_area {
    _Atomic uint64_t values[COUNTERS]; /* atomic, relaxed; never go backwards */
    struct histogram_row queue_wait, upstream_time, first_byte;
};

/* ---- sources: breaker and health (H7, H8) ---------------------------------------------------- */

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };

#define SOURCE_WINDOW_S 30U /* the failure share looks back so far, in buckets of one second */

/* One upstream source as all workers of the instance see it; kept by name over reloads. */
struct source_row {
    _Atomic uint32_t used; /* written last when the row is taken */
    uint32_t taken;        /* times the row was: an owner's entry of an earlier source is void */
    /* 0 = closed, not drained, not out, not throttled, no failure in a row: a call may pass and a
     * success be booked without the lock. Set before any of these changes, cleared after (atomic) */
    _Atomic uint32_t needs_lock;
    _Atomic uint32_t breaker; /* enum breaker_state; written after what belongs to the state */
    uint32_t failures_in_a_row;
    uint32_t drained;  /* by an operator: takes no new call */
    uint32_t openings; /* in a row without a success in between: the cool-down doubles with each */
    uint32_t unused;
    uint64_t generation; /* the newest configuration that has it */
    int64_t open_until_ns;
    uint32_t out_is_quota; /* out for the quota of its day, and for nothing worse */
    int64_t out_until_ns;  /* no money, bad credential, a day's quota: not before; 0 = in service */
    int64_t throttled_until_ns; /* the upstream asked to wait; 0 = it did not */
    /* The one probe of a half-open breaker: a lease of a process (owner + incarnation), void when
     * that process is buried or probe_expires_ns has come. probe_held is written last when it is
     * given, first when it comes back. */
    _Atomic uint32_t probe_held;
    uint32_t probe_owner;
    uint64_t probe_incarnation, probe_seq; /* probe_seq: never used twice; tells an old permit */
    int64_t probe_expires_ns;
    _Atomic uint32_t health_permille; /* EWMA of success, 1000 = all well (atomic) */
    _Atomic uint32_t latency_ms; /* EWMA of transport time of successes, 0 = none yet (atomic) */
    /* The bucket of second s is [s % SOURCE_WINDOW_S]. Second, calls and failures are one word, so
     * that one exchange renews a stale bucket and counts in it: see breaker.c (atomic) */
    _Atomic uint64_t window[SOURCE_WINDOW_S];
    /* Exchanges in progress, by the roster row of their process: burial empties a dead one's
     * (atomic) */
    _Atomic uint32_t in_flight[ROSTER_MAX];
    char name[NAME_SIZE];
    char quota_group[NAME_SIZE]; /* sources of one account share it; its own name when not set */
    char out_reason[48];         /* why out or open, in the judgement's words */
};

/* Who owns an upstream's id: fixed places, four to a hash, the oldest gives way (owners.h). */
struct owner_row {
    _Atomic uint64_t id_hash; /* 0 = free; written last */
    uint16_t source;          /* index into the instance's sources ... */
    uint16_t taken;           /* ... while its row's taken, cut to 16 bits, is this */
    uint32_t at_s;            /* CLOCK_MONOTONIC seconds */
};

/* ---- flow control: budgets and the adaptive controller (F3-F5) ------------------------------- */

/* A budget that fills with time (bucket.h). Zeroes: without bound. */
struct bucket_row {
    int64_t balance_micro;  /* as of refilled_ns; negative = debt */
    int64_t capacity_micro; /* 0 = no bound */
    int64_t rate_micro;     /* per minute */
    int64_t initial_micro;  /* balance at the start and at most after a restart */
    int64_t warmup_ns;      /* length of a warm-up; 0 = none */
    int64_t refilled_ns;
    int64_t since_ns;     /* the rate is what it is since then ... */
    int64_t remainder;    /* ... and so many 60*10^9ths of a micro-unit were over */
    int64_t warm_from_ns; /* start of the warm-up while warming */
    uint64_t taken_micro; /* ever, less what was given back; wraps */
    uint32_t warming;
    uint32_t unused;
};

/* One Penstock instance: a state directory with one ledger, one master at a time. */
struct instance_row {
    uint32_t used;
    int32_t master_pid; /* 0 = none */
    uint64_t master_incarnation;
    uint64_t generation;
    uint32_t gate_on; /* this instance's [image_concurrency] is active: its calls need slots */
    uint32_t unused;
    int64_t since_wall_ms;
    char state_directory[256]; /* what makes it this instance and no other */
    int64_t mean_hold_ms;      /* moving average of how long slots are held; 0 = unknown */
    struct counters_area counters;
    struct source_row sources[SOURCE_ROWS];
    struct owner_row owners[OWNERS_MAX];
    struct journal_area journal;
};

/* ---- flow control (F): see flow.h ------------------------------------------------------------ */

#define FLOW_REFUSAL_KINDS 8U /* at least ADAPTIVE_KINDS */

enum flow_place_state {
    FLOW_PLACE_FREE,
    FLOW_PLACE_WAITING,
    FLOW_PLACE_GRANTED, /* charged, counted as in flight; nothing sent yet */
    FLOW_PLACE_SENT,
};

/* One call in a flow. Free rows are all zero but for the link. Lists are an index; rows are the
 * truth. */
struct flow_place_row {
    _Atomic uint32_t state;  /* enum flow_place_state: written last */
    uint32_t owner;          /* roster index */
    uint64_t incarnation;    /* of the owner */
    uint64_t seq;            /* order of arrival on this host; never used twice */
    uint32_t flow;           /* index into flows */
    uint32_t class_index;    /* enum flow_class */
    uint32_t next, previous; /* queue links while waiting; next = free list link while free */
    uint32_t image_place;    /* waits for a slot too: index into places + 1; or 0 */
    _Atomic uint32_t rung;   /* 1 = its turn may have come: its bell thread wakes it (atomic) */
    int64_t rung_ns;         /* when it was first rung with all there, without answering; 0 = not */
    int64_t due_ns;          /* its thread asks again by itself then; 0 = it was not told */
    int64_t aside_until_ns;  /* its source is full: others may go before it until then; 0 = not */
    int64_t deadline_ns;     /* not granted after this */
    int64_t turn_ns;   /* when it would be granted, as the last tick saw it; 0 = none did yet */
    uint32_t hopeless; /* 1 = too late for it, as the last tick saw it: it is to be refused */
    uint32_t unused;
    int64_t arrived_ns, granted_ns, sent_ns;
    int64_t cost;      /* what its class is charged for, and its units when granted */
    int64_t charged;   /* units taken from the flow so far; settled against the real ones */
    int64_t predicted; /* units beyond cost that burial books of a sent one */
    int64_t pace_from_ns, pace_until_ns;  /* the flow's next_send_ns before and after its grant */
    uint64_t requests_taken, units_taken; /* of the flow's budgets after its grant (taken_micro) */
    int64_t tag_charged;                  /* what its class's finish tag was moved on by */
    uint64_t client_key;                  /* of flow_clients, 0 = not counted there */
    uint64_t epoch;                       /* of the controller, when it was granted */
};

/* How many of one client wait in one flow; an index, built again from the rows. */
struct flow_client_row {
    uint64_t key; /* 0 = free */
    uint32_t waiting;
    uint32_t unused;
};

struct flow_class_row {
    uint32_t weight, max_waiting; /* from the terms */
    int64_t max_wait_ns;
    int64_t finish;               /* tag at which what was granted last ends, in virtual time */
    uint32_t head, tail, waiting; /* the queue: an index, built again from the rows */
    uint32_t plain;               /* of them, those that need no image slot */
    int64_t queued_cost;          /* likewise */
    uint64_t granted, granted_cost;
};

#define FLOW_WINDOW_S 60U
struct flow_second {
    int64_t second; /* of CLOCK_MONOTONIC; an old one's counts are void */
    int64_t sends;  /* exchanges granted, but for those that were not sent after all */
    int64_t units;  /* booked: the estimate when granted, the difference when more is known */
};

/* What a step that moves balances and a place together began with; void unless place is not 0. Who
 * finds it after a holder of the lock died puts the balances back, unless the place got as far as the
 * step wanted (its state is written last). */
struct flow_undo {
    _Atomic uint32_t place; /* index + 1 */
    uint32_t wanted_state;  /* enum flow_place_state */
    int64_t charged;        /* of the place */
    int64_t virtual_time, finish, next_send_ns;
    struct bucket_row requests, units;
    struct flow_second second; /* window[second_at], the only one that the step counts in */
    uint32_t second_at, unused;
};

/* A quota per minute: as configured, and as the upstream tells it (flow_told.h). */
struct flow_quota_row {
    int64_t configured;     /* 0 = not */
    int64_t told;           /* as it is believed; 0 = not */
    int64_t told_ns;        /* when it was told last */
    int64_t other;          /* another one that is told lately; 0 = none ... */
    int64_t other_passed;   /* ... while so much was let through ... */
    int64_t other_ns;       /* ... since then */
    uint32_t other_answers; /* that told it, one after another */
    uint32_t unused;
    int64_t left;         /* of it, as the answer to the newest call told ... */
    int64_t left_ours;    /* ... when we had used so much within a minute ... */
    int64_t left_sent_ns; /* ... that call being sent then ... */
    int64_t left_ns;      /* ... and answered then; 0 = never told */
};

/* One (quota group, model): what of it is in use, what may be, and who waits. */
struct flow_row {
    uint32_t strategy, unit; /* enum flow_strategy, enum flow_unit */
    uint32_t max_concurrent; /* 0 = no bound */
    char quota_group[NAME_SIZE], model[NAME_SIZE];
    _Atomic uint64_t terms_hash; /* of its terms, 0 = none or half of them: written last */
    uint64_t terms_generation;   /* whose terms these are */
    uint64_t terms_origin;       /* the scope (flow_terms.h) ... */
    uint32_t terms_instance;     /* ... of this Penstock's configuration */
    _Atomic uint32_t quotas_due; /* 1 = what is known of the quotas may not be in force yet */
    int64_t requests_quota, units_quota;               /* in force, per minute; 0 = not known */
    struct flow_quota_row requests_known, units_known; /* what they are made of */
    int64_t requests_rate_micro, units_rate_micro;     /* of the budgets when fully open */
    int64_t initial_requests, warmup_ns;               /* from the terms */
    int64_t interval_ns;                               /* between two sends, but for adaptive */
    struct bucket_row requests, units;
    struct adaptive_row adaptive;
    int64_t next_send_ns, paused_until_ns;
    int64_t last_demand_ns; /* when somebody last waited or was in flight */
    int64_t woken_ns;       /* when what was away for long was last made to start cold */
    int64_t last_used_ns;
    int64_t outlook_ns;          /* when the turns of those who wait were last reckoned */
    int64_t mean_hold_ns;        /* moving average of a call's time in flight; 0 = unknown */
    int64_t virtual_time;        /* start tag of what was granted last */
    uint32_t in_flight, waiting; /* indexes: counted again from the rows */
    struct flow_class_row classes[FLOW_CLASSES];
    struct flow_second window[FLOW_WINDOW_S];
    uint64_t refusals[FLOW_REFUSAL_KINDS]; /* by the upstream, enum adaptive_kind */
    int64_t last_refusal_ns;               /* 0 = none yet */
    uint32_t last_refusal_kind;
    uint64_t refused_full, refused_client, refused_hopeless, refused_threads;
    uint64_t expired, cancelled, buried;
    uint64_t completed; /* answered: the upstream knows the model */
    struct flow_undo undo;
    struct estimate_row estimate; /* what its calls' estimates have been worth */
};

struct layout_area {
    uint32_t layout_version;
    uint32_t lists_ready; /* 0: build the lists from the rows first */
    uint32_t free_head;
    uint32_t waiting; /* in all lists of queue_classes */
    struct queue_class_row queue_classes[FLOW_CLASSES];
    int64_t queue_virtual_time;      /* start tag of what was granted last */
    int64_t answered_last_ns;        /* when any process did */
    int64_t answered_ns[ROSTER_MAX]; /* when the process last did something at the gate */
    struct place_row places[PLACES_MAX];
    uint64_t flow_hashes[FLOWS_MAX]; /* of the names, 0 = free row: to find one fast */
    struct flow_row flows[FLOWS_MAX];
    uint64_t next_flow_seq;
    uint32_t flow_slot_waiters; /* of those that wait, how many need an image slot too */
    uint32_t unused;
    uint32_t flow_free_head; /* of flow_places */
    uint32_t flow_places_used;
    struct flow_place_row flow_places[FLOW_PLACES_MAX];
    struct flow_client_row flow_clients[FLOW_CLIENTS];
    struct instance_row instances[INSTANCES_MAX];
};

/* The mapping: core first, then the layout. */
struct segment_area {
    struct core_area core;
    struct layout_area layout;
};

static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2,
              "atomics in the segment must need no process-local lock");

#endif
