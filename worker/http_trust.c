/* http_trust.c - one store of trusted authorities per file and process; see http_trust.h. */
#include "worker/http_trust.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct trust {
    struct trust *next;
    X509_STORE *store;
    char ca_file[];
};

/* Never shrinks; a reload makes new processes. */
static struct trust *trusts;
static pthread_mutex_t trusts_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct trust *load(const char *ca_file)
{
    size_t size = strlen(ca_file) + 1;
    struct trust *trust = malloc(sizeof *trust + size);
    X509_STORE *store = X509_STORE_new();

    /* PARTIAL_CHAIN: an intermediate in the file is trusted by itself, as with libcurl's own. */
    if (!trust || !store ||
        X509_STORE_set_flags(store, X509_V_FLAG_TRUSTED_FIRST | X509_V_FLAG_PARTIAL_CHAIN) != 1 ||
        X509_STORE_load_file(store, ca_file) != 1) {
        ERR_clear_error();
        X509_STORE_free(store);
        free(trust);
        return NULL;
    }
    memcpy(trust->ca_file, ca_file, size);
    trust->store = store;
    return trust;
}

static struct trust *find_or_load_locked(const char *ca_file)
{
    struct trust *trust;

    for (trust = trusts; trust; trust = trust->next)
        if (strcmp(trust->ca_file, ca_file) == 0)
            return trust;
    trust = load(ca_file);
    if (trust) {
        trust->next = trusts;
        trusts = trust;
    }
    return trust;
}

bool http_trust_apply(void *ssl_ctx, const char *ca_file)
{
    struct trust *trust;

    INVARIANT(pthread_mutex_lock(&trusts_mutex) == 0);
    trust = find_or_load_locked(ca_file);
    INVARIANT(pthread_mutex_unlock(&trusts_mutex) == 0);
    if (!trust)
        return false;
    SSL_CTX_set1_cert_store(ssl_ctx, trust->store);
    /* A connection that rests needs no buffers: 34 kB less for each stream between two events. */
    (void)SSL_CTX_set_mode(ssl_ctx, SSL_MODE_RELEASE_BUFFERS);
    return true;
}

bool http_trust_heard_goodbye(const void *ssl)
{
    return (SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN) != 0;
}
