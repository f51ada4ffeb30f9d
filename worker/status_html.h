/*
 * status_html.h - the status page for browsers: one file, no outside resource, no JavaScript; it
 * renews itself by <meta refresh>. Dark and light as the browser wishes, usable on a phone. Pure.
 */
#ifndef WORKER_STATUS_HTML_H
#define WORKER_STATUS_HTML_H

#include "worker/status.h"

#define STATUS_HTML_REFRESH_S 2

/* view->parts is not looked at: the page always has all of them. */
void status_html(const struct snapshot *snapshot, const struct status_view *view, struct text *out);
/* Text of others inside the page: cannot become markup, in or outside of an attribute. */
void status_html_escaped(struct text *out, const char *string);

#endif
