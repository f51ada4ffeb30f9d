/*
 * activation.h - what systemd hands over (sockets by name) and is told (sd_notify), and the sockets
 * the master makes itself where nothing was handed over. No libsystemd: both protocols are a few
 * lines (sd_listen_fds(3), sd_notify(3)).
 */
#ifndef WORKER_ACTIVATION_H
#define WORKER_ACTIVATION_H

#include "base/check.h"
#include "base/text.h"
#include "worker/options.h"

#include <stdbool.h>

struct listeners {
    int fcgi; /* non-blocking, close-on-exec off: they survive the master's re-exec */
    int status;
    bool activated; /* the sockets are the service manager's: they outlive this daemon */
};

/* Sockets from a re-exec, from systemd, or made as the options say. why gets one sentence. */
MUST_CHECK bool activation_listen(const struct options *options, struct listeners *ret_listeners,
                                  struct text *why);
/* Before a re-exec: tell the new program where they are. */
void activation_keep(const struct listeners *listeners);

/* Send lines ("READY=1\nSTATUS=...") to the service manager; nothing without one. */
void activation_notify(const char *lines);
/* A reload begins; READY=1 ends it. */
void activation_notify_reloading(int64_t now_ns);
/* How often WATCHDOG=1 is wanted, in ms; 0 = not. */
int64_t activation_watchdog_ms(void);

#endif
