/*
 * fastcgi_pieces.h - records of an answer as pieces for one sendmsg, and how much of them has been sent.
 * Pure.
 */
#ifndef WORKER_FASTCGI_PIECES_H
#define WORKER_FASTCGI_PIECES_H

#include "worker/fastcgi_head.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define FASTCGI_RECORDS_PER_SEND 8

/* Even pieces are record headers, odd ones content; the end of the request may stand last. Holds
 * FASTCGI_RECORDS_PER_SEND records more than one, and an end. Begin with count 0. */
struct fastcgi_pieces {
    struct iovec iov[2 * FASTCGI_RECORDS_PER_SEND + 3];
    unsigned char headers[FASTCGI_RECORDS_PER_SEND + 1][FASTCGI_HEADER_BYTES];
    unsigned char end[3 * FASTCGI_HEADER_BYTES];
    size_t count;
};

/* content stays the caller's and must live until it is sent; length is at most 65535. */
void fastcgi_pieces_add(struct fastcgi_pieces *pieces, uint16_t request_id, const void *content,
                        size_t length);
/* The end of the answer and of the request; nothing can be added after it. */
void fastcgi_pieces_add_end(struct fastcgi_pieces *pieces, uint16_t request_id);
/* sent bytes went out, from piece *at on; moves *at. Returns how many of them were content. */
uint64_t fastcgi_pieces_sent(struct fastcgi_pieces *pieces, size_t *at, size_t sent);

#endif
