/*
 * attempt.h - one exchange with one source on behalf of a request: what is asked, what came, what
 * became of it. attempts.c runs one, or two side by side; relay.c hands on what the chosen one
 * brings.
 *
 * An attempt belongs to its request and to the request's thread. It is booked once: its permit given
 * back to the source, its row made for the ledger.
 */
#ifndef WORKER_ATTEMPT_H
#define WORKER_ATTEMPT_H

#include "base/text.h"
#include "shared/sources.h"
#include "worker/body_reader.h"
#include "worker/fault.h"
#include "worker/http_client.h"
#include "worker/judge.h"
#include "worker/pictures.h"
#include "worker/usage_strip.h"

#include <stdbool.h>
#include <stdint.h>

#define ATTEMPT_BODY_HELD_MAX (256U << 10) /* of an answer, before the commit (H4) */
#define ATTEMPT_ANSWER_HELD_MAX (8U << 20) /* of a document that may be beaten by a hedge (H4) */
#define ATTEMPT_EVENTS_HELD_MAX 64         /* of a stream, before its first content (H4) */
#define ATTEMPT_ERROR_BODY_MAX (16U << 10) /* of an error, for the judgement */

struct request;
struct source_options;

struct attempt {
    struct request *request;
    unsigned lane;

    /* What is asked. */
    const struct source_options *source;
    unsigned candidate; /* of the scope */
    unsigned n;         /* 1 = the call's first */
    bool hedge;
    struct source_permit permit;
    uint32_t flow_place; /* its grant of flow control; NO_INDEX = none */
    bool flow_sent;
    int64_t flow_progress_ns;     /* when what it used was last told */
    int64_t flow_paused_until_ns; /* refused: its flow is held back until then; 0 = not */
    bool strips_usage; /* usage was asked for by us: the event that tells it stays here */
    struct usage_strip strip;
    struct text url, header_bytes, model;
    struct http_header headers[HTTP_HEADERS_MAX];
    size_t header_count;
    struct body_reader body;

    /* The exchange; NULL when it was ended. */
    struct http_exchange *exchange;
    int64_t started_ns, started_wall_ms; /* 0 = no attempt in this struct yet */

    /* What came. */
    int status; /* 0 = no head yet */
    bool is_stream;
    bool is_encoded; /* compressed: what the body says cannot be read */
    bool by_close;   /* the body has no length and no chunks: its end is the connection's */
    int64_t length;  /* of the body, -1 = not said */
    int64_t bytes;   /* of the body, so far */
    int64_t last_ns; /* when something came last */
    int64_t
        ttft_ns; /* from started_ns to the first body byte, of a stream that is read to its first
                         content; 0 = not yet */
    struct text head;       /* CGI head for the client, without our own headers and its end */
    struct text held;       /* body that came before the commit */
    struct text error_body; /* the beginning of an error's body */
    struct judge_hints hints;
    struct pictures pictures;
    bool counting;
    bool was_sent;
    bool read_to_end; /* pictures has been told that nothing more comes */
    bool full;        /* as much is held as may be before a commit: the rest waits */

    /* What became of it. */
    bool booked;
    bool opened;               /* its row is in the ledger while it runs: one of a hedged call */
    enum fault_code fault;     /* why there is no (whole) answer; FAULT_NONE */
    char transport_error[200]; /* libcurl's or our words, for the log alone */
    struct judgement judgement;
    const char *limit_kind;       /* which limit refused it, in the ledger's word; NULL = none */
    struct attempt_record record; /* when booked */
};

/* NULL: out of memory. */
MUST_CHECK struct attempt *attempt_new(struct request *request, unsigned lane);
void attempt_free(struct attempt *attempt); /* takes NULL */
/* Empty it for the next request or the next round; ended and booked, or never begun. */
void attempt_clear(struct attempt *attempt);

/* Build the request's head for the source that is set, and begin. False: request->fault says why; it
 * is to be ended all the same. */
MUST_CHECK bool attempt_begin(struct attempt *attempt);
/* Once more, on a fresh connection: a call that asks for nothing but an answer got none. */
MUST_CHECK bool attempt_ask_again(struct attempt *attempt);
/* Close what runs, and shed; harmless when nothing does. */
void attempt_end(struct attempt *attempt);
/* Nobody wants what is held any more: a body may take hours, and the thread its next request. */
void attempt_shed(struct attempt *attempt);

/* Bytes of its body for the client; what we asked for ourselves is taken out. False: abort. */
MUST_CHECK bool attempt_pass(struct attempt *attempt, const char *bytes, size_t length);
/* Nothing more comes for the client: what was held back goes out. */
MUST_CHECK bool attempt_pass_end(struct attempt *attempt);

/* When the attempt's own time is over, and how that is told. */
struct attempt_deadline {
    int64_t at_ns; /* CLOCK_NEVER = never */
    enum fault_code fault;
    const char *error; /* the ledger's word */
};
struct attempt_deadline attempt_deadline(const struct attempt *attempt);

/* Is it a stream that is read far enough to tell its content from what comes before it? */
bool attempt_shows_content(const struct attempt *attempt);
/* Its last event was read, so it is whole however the connection ends. */
bool attempt_stream_has_ended(const struct attempt *attempt);
/* The exchange has finished: the fault for every outcome but a whole answer. */
enum fault_code attempt_outcome_fault(struct attempt *attempt);
/* Nothing more comes: what was delivered is complete. */
void attempt_read_end(struct attempt *attempt);
/* Was anything sent? Before that it costs nothing and counts for nothing (D9). */
bool attempt_was_sent(const struct attempt *attempt);
/* Judge what came, or did not, into attempt->judgement. */
void attempt_judge(struct attempt *attempt);

/* Its row as it stands now; ended_wall_ms 0 = it still runs. */
void attempt_fill_record(struct attempt *attempt, int64_t ended_wall_ms, const char *error);
/* Give the permit back, feed breaker and health, fill attempt->record. error: the ledger's word, ""
 * = none. Once; later calls do nothing. */
void attempt_book(struct attempt *attempt, enum source_end end, const char *error);

#endif
