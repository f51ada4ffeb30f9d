/* http_exchange.c - what is told of an exchange; see http_client.h. */
#include "worker/http_exchange.h"

enum http_outcome http_exchange_outcome(const struct http_exchange *exchange)
{
    return exchange->in_multi ? HTTP_RUNNING : exchange->outcome;
}

const char *http_exchange_error(const struct http_exchange *exchange)
{
    if (exchange->own_error)
        return exchange->own_error;
    switch (http_exchange_outcome(exchange)) {
    case HTTP_RUNNING:
    case HTTP_COMPLETE:
        return "";
    case HTTP_ABORTED:
        return "given up by ourselves";
    case HTTP_BODY_FAILED:
        return "the request body could not be read";
    case HTTP_OUT_OF_MEMORY:
        return "out of memory";
    case HTTP_NOT_SENT:
    case HTTP_CONNECT_TIMEOUT:
    case HTTP_CUT:
    case HTTP_BAD_ANSWER:
        break;
    case HTTP_NO_ANSWER:
        if (exchange->sent_twice || exchange->error[0] == '\0')
            return "the connection ended without an answer";
        break;
    }
    return exchange->error;
}

int64_t http_exchange_sent_ns(const struct http_exchange *exchange)
{
    return exchange->sent_ns;
}

int64_t http_exchange_first_byte_ns(const struct http_exchange *exchange)
{
    return exchange->first_byte_ns;
}

int64_t http_exchange_last_byte_ns(const struct http_exchange *exchange)
{
    return exchange->last_byte_ns;
}
