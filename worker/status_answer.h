/*
 * status_answer.h - what the status socket answers to whom: /penstock/status, /penstock/calls/ID,
 * /penstock/metrics, /penstock/ping, and penstockctl's requests to /penstock/control. Knows nothing
 * of FastCGI.
 *
 * Who is answered: a web server that has this socket makes it readable by its clients. So requests
 * that came through one from another host are refused, unless the web server was told to vouch for
 * them (FastCGI parameter PENSTOCK_STATUS_ALLOW=1, for a location with access control of its own).
 * Control needs PENSTOCK_CONTROL=1, which no client of a web server can set (what clients send
 * arrives as HTTP_...), and a peer process of root or of our own user.
 */
#ifndef WORKER_STATUS_ANSWER_H
#define WORKER_STATUS_ANSWER_H

#include "base/text.h"
#include "shared/gate.h"
#include "worker/options.h"

#include <stdbool.h>

struct status_question {
    /* as the web server's parameters have them; "" = absent, never NULL */
    const char *method, *uri, *accept, *remote_address, *forwarded_for;
    bool vouched; /* PENSTOCK_STATUS_ALLOW=1 */
    bool control; /* PENSTOCK_CONTROL=1 */
    bool trusted; /* the peer process belongs to root or our own user */
};

struct status_house {
    struct gate *gate;
    const struct options *options;
    int master_pidfd;
};

struct status_answer {
    int status;
    const char *content_type;
    const char *allow; /* the methods that the page has; NULL: it was asked by one of them */
    struct text body;
};

void status_answer_init(struct status_answer *answer);
void status_answer_release(struct status_answer *answer);
/* The answer is initialized and empty. */
void status_answer_make(const struct status_question *question, const struct status_house *house,
                        struct status_answer *answer);
/* Append the head of the CGI answer, with the blank line. */
void status_answer_head(const struct status_answer *answer, struct text *out);

#endif
