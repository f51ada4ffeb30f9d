/* fastcgi_pieces.c - records of an answer as pieces for one sendmsg; see fastcgi_pieces.h. */
#include "worker/fastcgi_pieces.h"

#include "base/check.h"

#include <string.h>

void fastcgi_pieces_add(struct fastcgi_pieces *pieces, uint16_t request_id, const void *content,
                        size_t length)
{
    unsigned char *header = pieces->headers[pieces->count / 2];

    REQUIRE(pieces->count / 2 < LENGTH(pieces->headers));
    fastcgi_record_write(header, FASTCGI_STDOUT, request_id, length);
    pieces->iov[pieces->count++] = (struct iovec){header, FASTCGI_HEADER_BYTES};
    pieces->iov[pieces->count++] = (struct iovec){(void *)(uintptr_t)content, length};
}

void fastcgi_pieces_add_end(struct fastcgi_pieces *pieces, uint16_t request_id)
{
    unsigned char *end = pieces->end;

    memset(end, 0, sizeof pieces->end);
    fastcgi_record_write(end, FASTCGI_STDOUT, request_id, 0);
    fastcgi_record_write(end + FASTCGI_HEADER_BYTES, FASTCGI_END_REQUEST, request_id,
                         FASTCGI_HEADER_BYTES);
    pieces->iov[pieces->count++] = (struct iovec){end, sizeof pieces->end};
}

uint64_t fastcgi_pieces_sent(struct fastcgi_pieces *pieces, size_t *at, size_t sent)
{
    uint64_t content = 0;

    while (*at < pieces->count) {
        struct iovec *piece = &pieces->iov[*at];
        size_t take = sent < piece->iov_len ? sent : piece->iov_len;

        if (*at % 2 == 1)
            content += take;
        piece->iov_base = (char *)piece->iov_base + take;
        piece->iov_len -= take;
        sent -= take;
        if (piece->iov_len > 0)
            break;
        (*at)++;
    }
    return content;
}
