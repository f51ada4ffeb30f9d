/*
 * candidates.h - who may serve a call: the members of its scope, without those that cannot (a pinned
 * call belongs to one source; an alias that cannot be put into the body, or that would make an image
 * call of what is none, bars its source). Made once for each pass over a scope.
 */
#ifndef WORKER_CANDIDATES_H
#define WORKER_CANDIDATES_H

#include "shared/sources.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct request;
struct attempt;
struct body_edit;

struct candidates {
    struct source_candidate list[SOURCES_MAX];
    size_t count;
    uint64_t barred;                /* bits over list */
    uint64_t accounts[SOURCES_MAX]; /* of each: those of its quota group, as bits over list */
    const char *model; /* that a fallback puts in place of the one asked; NULL = as asked */
};

/* From request->scope and request->candidates.model. */
void candidates_make(struct request *request);
/* The model name that goes to this candidate; NULL = as asked. */
const char *candidates_model(const struct request *request, size_t candidate);
/* What is to be changed in the body for the attempt's candidate; its text is in attempt->model.
 * False: out of memory. */
MUST_CHECK bool candidates_edit(struct attempt *attempt, struct body_edit *ret);
bool candidates_are_none(const struct candidates *candidates);
/* Can a hedge go anywhere? (at least two that are not barred) */
bool candidates_allow_hedge(const struct candidates *candidates);

#endif
