/* sha256.h - SHA-256 (FIPS 180-4), fed bytes as they come, so that scripts can compare what arrived
 * with what sha256sum says. For tests only. */
#ifndef TESTS_TOOLS_UPSTREAM_SHA256_H
#define TESTS_TOOLS_UPSTREAM_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_HEX_SIZE 65

struct sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes fed */
    unsigned char block[64];
};

void sim_sha256_init(struct sha256 *sha);
void sim_sha256_feed(struct sha256 *sha, const void *bytes, size_t length);
/* Write the digest in hexadecimal into hex[SHA256_HEX_SIZE]; the state is used up. */
void sim_sha256_hex(struct sha256 *sha, char *hex);

#endif
