/*
 * reason.h - the words behind a status number (RFC 9110, 15; RFC 6585). nginx passes a Status line on as it
 * is, and a status line without the blank after its number is no HTTP.
 */
#ifndef WORKER_REASON_H
#define WORKER_REASON_H

/* "Too Many Requests"; for numbers without a name that of their class ("Client Error"). */
const char *reason_of(int status);

#endif
