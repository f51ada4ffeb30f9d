/* fault_list.h - every refusal and failure of our own: the words used alike in responses, log,
 * counters and ledger. FAULT(name, status, type, should_retry, message)
 *   code on the wire: "penstock_" name; status 499 is never sent (nobody is there);
 *   should_retry: YES/NO send x-should-retry, OPEN leaves it to the client. */
FAULT(image_limit, 429, "rate_limit_error", OPEN,
      "The image concurrency limit of this gateway's host was reached.")
FAULT(image_queue_full, 429, "rate_limit_error", OPEN,
      "The image concurrency limit of this gateway's host was reached and its wait queue is full.")
FAULT(image_queue_timeout, 429, "rate_limit_error", OPEN,
      "The image concurrency limit of this gateway's host was reached and no slot became free in "
      "time.")
FAULT(busy, 503, "server_error", OPEN, "The gateway is busy: every request thread is in use.")
FAULT(shutting_down, 503, "server_error", OPEN, "The gateway is shutting down.")
FAULT(spool_full, 503, "server_error", OPEN,
      "The gateway has no room to keep this request body while it waits.")
FAULT(out_of_memory, 503, "server_error", OPEN,
      "The gateway is out of memory or descriptors for this request.")
FAULT(body_too_large, 413, "invalid_request_error", NO,
      "The request body is larger than this gateway accepts.")
FAULT(body_incomplete, 400, "invalid_request_error", NO,
      "The request body ended early or does not have the announced length.")
FAULT(body_too_slow, 408, "invalid_request_error", NO, "The request body arrived too slowly.")
FAULT(body_too_deep, 400, "invalid_request_error", NO,
      "The request body is nested deeper than this gateway reads.")
FAULT(body_encoding, 415, "invalid_request_error", NO,
      "The gateway must read this request body but cannot: send it as UTF-8 without "
      "Content-Encoding.")
FAULT(headers_too_large, 431, "invalid_request_error", NO,
      "The request headers are larger than this gateway accepts.")
FAULT(bad_request, 400, "invalid_request_error", NO, "The gateway could not read the request.")
FAULT(method, 405, "invalid_request_error", NO,
      "This gateway does not pass this method on; the header Allow names those that it does.")
FAULT(bad_path, 400, "invalid_request_error", NO,
      "The request path has an encoded slash, an empty segment, a dot segment or a NUL in it.")
FAULT(bad_deadline, 400, "invalid_request_error", NO,
      "The header X-Penstock-Deadline has no time that can be. Allowed: seconds, more than 0 and at "
      "most 86400, or a number with a unit: ms, s, m, h, d.")
FAULT(no_route, 404, "invalid_request_error", NO, "No route of this gateway serves this path.")
FAULT(no_source, 500, "server_error", NO, "No upstream is configured on this gateway.")
FAULT(websocket, 426, "invalid_request_error", NO,
      "WebSocket is not served through this gateway; use HTTP.")
FAULT(upstream_connect, 502, "server_error", OPEN, "The upstream could not be reached.")
FAULT(upstream_no_answer, 502, "server_error", NO,
      "The upstream closed the connection without a complete answer; whether it did the work is "
      "unknown.")
FAULT(upstream_timeout, 504, "server_error", NO,
      "The upstream did not answer in time; whether it did the work is unknown.")
FAULT(upstream_bad_answer, 502, "server_error", NO,
      "The upstream's answer is not valid HTTP or is larger than the gateway accepts.")
FAULT(upstream_cut, 502, "server_error", NO, "The upstream's answer broke off.")
FAULT(upstream_stalled, 504, "server_error", NO,
      "The upstream stopped sending in the middle of its answer.")
FAULT(model_fixed, 400, "invalid_request_error", NO,
      "This gateway serves the model under another name and cannot put it into this request: the "
      "body must name its model once, as one string.")
FAULT(call_deadline, 504, "server_error", NO, "The call's deadline passed before it was answered.")
FAULT(sources_unavailable, 503, "server_error", OPEN,
      "Every upstream that serves this call is out of service at the moment.")
FAULT(source_busy, 429, "rate_limit_error", OPEN,
      "Every upstream that serves this call has as many calls in progress as this gateway allows.")
FAULT(rate_limit, 429, "rate_limit_error", OPEN,
      "The upstream's rate limit, as this gateway keeps it, does not let this call through in time.")
FAULT(upstream_credentials, 502, "server_error", NO,
      "The upstream refused this gateway's own credentials.")
FAULT(client_gone, 499, "client_gone", NO, "The client left.")
FAULT(internal, 500, "server_error", NO, "The gateway failed.")
