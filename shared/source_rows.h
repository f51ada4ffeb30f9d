/* source_rows.h - inside sources: what sources.c needs of the rows; see sources.h. */
#ifndef SHARED_SOURCE_ROWS_H
#define SHARED_SOURCE_ROWS_H

#include "shared/layout.h"

#include <stdint.h>

/* Exchanges in progress at the source, of all processes; needs no lock. */
uint32_t source_in_flight(const struct source_row *row);

#endif
