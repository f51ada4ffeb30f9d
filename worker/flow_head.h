/*
 * flow_head.h - what the head of an answer says of the upstream's quotas, for the flow of the attempt
 * that it answers (F7); shared/flow_told.h makes something of it.
 */
#ifndef WORKER_FLOW_HEAD_H
#define WORKER_FLOW_HEAD_H

#include "worker/ratelimit_headers.h"

#include "shared/flow_told.h"

struct attempt;
struct http_head;

/* What the numbers mean for a flow that counts in the unit: tokens say nothing of pictures. */
struct flow_told flow_head_told(const struct ratelimit_headers *headers, enum flow_unit unit);

/* The head has come. Nothing happens where the scope keeps no quota, or the source's headers are not
 * believed. */
void flow_head_hear(const struct attempt *attempt, const struct http_head *head);

#endif
