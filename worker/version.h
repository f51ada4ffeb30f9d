/* version.h - the version that programs, the status page and the metrics tell. */
#ifndef WORKER_VERSION_H
#define WORKER_VERSION_H

#define PENSTOCK_VERSION "0.1.0"

#endif
