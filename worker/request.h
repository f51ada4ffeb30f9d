/*
 * request.h - one request's state, and the table of steps that is its life (request.c).
 *
 * A request belongs to one thread from accept to settle; the struct is used again for the thread's
 * next request. Steps never call each other; request.c alone knows their order; settle runs on
 * every path.
 */
#ifndef WORKER_REQUEST_H
#define WORKER_REQUEST_H

#include "base/text.h"
#include "shared/gate.h"
#include "worker/attempt.h"
#include "worker/bell.h"
#include "worker/candidates.h"
#include "worker/client_watch.h"
#include "worker/door.h"
#include "worker/fastcgi.h"
#include "worker/fault.h"
#include "worker/flow_call.h"
#include "worker/http_client.h"
#include "worker/intent.h"
#include "worker/options.h"
#include "worker/plan.h"
#include "worker/spool.h"
#include "worker/ticket.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What the threads of one worker process share. */
struct worker {
    const struct options *options;
    struct segment *segment;
    int32_t pid; /* of this process */
    struct gate gate;
    struct http_pool *pool;
    uint32_t source_rows[SOURCES_MAX]; /* by source_options.index */
    bool flows;                        /* some scope has flow control: requests are estimated */
    unsigned flow_waiters_max;         /* calls that may wait in flows at a time, without images */
    _Atomic unsigned flow_waiters;
    struct bell bell;
    struct door door;
    struct spool_limits spool_limits;
    _Atomic int64_t spooled_bytes;
    int listen_fd;
    int stop_fd;              /* eventfd: readable once no new request may be taken */
    atomic_bool draining;     /* the same as a flag */
    int cut_fd;               /* eventfd: readable once running requests must end too (fast stop) */
    _Atomic uint64_t accepts; /* requests taken so far: a standing value means nobody takes any */
};

enum step_result {
    STEP_NEXT,  /* go on */
    STEP_FAULT, /* request->fault says why: go on at respond */
    STEP_OVER,  /* nothing to answer (no request, client gone): go on at settle */
};

/* What of the answer has been sent. */
enum response_state {
    RESPONSE_NONE,      /* nothing: a fault can still be a status */
    RESPONSE_STREAM,    /* 200 and an event stream: a fault is an event in it */
    RESPONSE_HEARTBEAT, /* 200 and blanks before a JSON document: a fault is the document */
    RESPONSE_BODY,      /* the upstream's head: a fault can only cut it off */
};

#define REQUEST_PATH_MAX 4096

struct request {
    struct worker *worker;
    struct fastcgi *fcgi;
    struct bell_seat *seat;
    unsigned thread; /* index of the thread, at the door and at the bell */

    /* accept */
    bool accepted; /* there is a request to settle */
    int64_t arrived_ns, arrived_wall_ms;
    char call_id[CALL_ID_SIZE];
    const char *method;          /* as the web server gave it; valid until finish */
    const char *raw_target;      /* path and query as sent */
    char path[REQUEST_PATH_MAX]; /* decoded once, no query */
    const char *content_type;    /* NULL = absent */
    int64_t announced_bytes;     /* CONTENT_LENGTH when it is a number, else -1 */

    /* identify */
    const char *client_name; /* for people and the ledger; "" = not known */
    uint64_t random;         /* 64 bits of chance, this call's own */

    /* intent */
    struct intent_reader reader; /* reader.intent is what is asked for */
    struct spool body;

    /* route */
    const struct route_options *route;
    const struct scope_options *scope; /* a fallback may change it */
    enum call_kind kind;
    bool add_version; /* the client left out /v1: it is put in front of the path */

    /* admission */
    struct ticket ticket;
    struct client_watch watch;
    bool watch_asked; /* the kernel was asked about this client, or need not be */
    int64_t queue_ns;
    int64_t flow_waited_ns; /* for its flow, under plans that are over */

    /* attempts, relay */
    struct http_client *client; /* borrowed; its exchanges are those of the lanes */
    struct candidates candidates;
    struct flow_targets flow_targets;
    enum flow_verdict flow_refusal; /* of its last wish; FLOW_OPEN = none, and then: */
    struct flow_standing requests_standing, units_standing; /* of the flow that refused it */
    enum flow_unit standing_unit;
    struct plan plan;
    struct attempt *lanes[PLAN_LANES]; /* the second is made for the first hedge */
    struct attempt
        *attempt;      /* whose answer is told of: the one in charge, at last the chosen one */
    unsigned attempts; /* exchanges begun, hedges included */
    unsigned retries, hedges, hedges_skipped, fallbacks;
    bool hedge_won;
    int64_t retry_after_ms; /* told with an upstream's error that is passed on; -1 = nothing */
    int should_retry;       /* likewise: 1, 0, -1 = nothing */
    int64_t deadline_ns;    /* of the call, its body included; CLOCK_NEVER = none */
    bool committed;
    bool discard;              /* the client is gone, the upstream is read to its end */
    int64_t discard_bytes_max; /* or until so much of it has come; 0 = to its end */

    /* respond */
    enum response_state response;
    int64_t next_heartbeat_ns;
    int status; /* told to the client; logical status after a heartbeat */
    bool client_gone;
    struct fault fault;
};

/* NULL: out of memory. seat: where this thread waits. */
MUST_CHECK struct request *request_new(struct worker *worker, struct bell_seat *seat);
void request_free(struct request *request);
/* Take one request from the worker's socket and live through all its steps. */
enum fastcgi_accepted request_run(struct request *request);

/* The client cannot be answered any more: note it once, as a fault. */
enum step_result request_client_left(struct request *request);
/* Is the answer to be an event stream, as far as the request tells? */
bool request_wants_stream(const struct request *request);
enum stream_family request_family(const struct request *request);

#endif
