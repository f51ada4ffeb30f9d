/* test_http_trust.c - TLS upstreams: who is trusted, and that trust is not mixed up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/worker/scripted_server.h"
#include "worker/http_client.h"
#include "worker/http_trust.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

enum { GUARD_S = 20 };

static char directory[] = "/tmp/test_http_trust.XXXXXX";
static char right_file[64], other_file[64], both_file[64], empty_file[64];
static SSL_CTX *server_ctx;
static struct http_pool *pool;

/* ---- an authority of our own ----------------------------------------------------------------- */

/* A certificate for 127.0.0.1 that signs itself. */
static X509 *new_certificate(EVP_PKEY *key, const char *name, long serial)
{
    X509 *certificate = X509_new();
    X509_NAME *subject = X509_get_subject_name(certificate);
    X509_EXTENSION *names = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");

    assert_true(certificate && subject && names);
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(certificate, subject);
    X509_add_ext(certificate, names, -1);
    X509_EXTENSION_free(names);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    return certificate;
}

static void write_pem(char *path, size_t size, const char *name, X509 *const *certificates,
                      size_t count)
{
    FILE *file;

    (void)snprintf(path, size, "%s/%s", directory, name);
    file = fopen(path, "w");
    assert_non_null(file);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(PEM_write_X509(file, certificates[i]), 1);
    assert_int_equal(fclose(file), 0);
}

static int set_up_all(void **state)
{
    EVP_PKEY *key = EVP_EC_gen("P-256"), *other_key = EVP_EC_gen("P-256");
    X509 *both[2];

    (void)state;
    assert_true(key && other_key && mkdtemp(directory));
    both[0] = new_certificate(key, "right", 1);
    both[1] = new_certificate(other_key, "other", 2);
    write_pem(right_file, sizeof right_file, "right.pem", &both[0], 1);
    write_pem(other_file, sizeof other_file, "other.pem", &both[1], 1);
    write_pem(both_file, sizeof both_file, "both.pem", both, 2);
    write_pem(empty_file, sizeof empty_file, "empty.pem", NULL, 0);
    server_ctx = SSL_CTX_new(TLS_server_method());
    assert_non_null(server_ctx);
    assert_int_equal(SSL_CTX_use_certificate(server_ctx, both[0]), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(server_ctx, key), 1);
    X509_free(both[0]);
    X509_free(both[1]);
    EVP_PKEY_free(key);
    EVP_PKEY_free(other_key);
    assert_true(http_init_process());
    pool = http_pool_new();
    return pool ? 0 : -1;
}

static int tear_down_all(void **state)
{
    const char *const files[] = {right_file, other_file, both_file, empty_file};

    (void)state;
    http_pool_free(pool);
    SSL_CTX_free(server_ctx);
    for (size_t i = 0; i < LENGTH(files); i++)
        unlink(files[i]);
    return rmdir(directory);
}

/* ---- a TLS upstream -------------------------------------------------------------------------- */

#define ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

static atomic_bool says_goodbye; /* after each answer, as servers do with idle connections */
static atomic_bool hangs_up;     /* after each answer, without goodbye */
static const char *answer = ANSWER;

static void serve_connection(struct server *server, SSL *tls)
{
    char bytes[4096];
    int n;

    if (SSL_accept(tls) != 1)
        return;
    atomic_fetch_add(&server->opened, 1);
    while ((n = SSL_read(tls, bytes, sizeof bytes - 1)) > 0) {
        bytes[n] = '\0';
        if (strstr(bytes, "\r\n\r\n")) { /* requests here are small and come in one piece */
            atomic_fetch_add(&server->requests, 1);
            if (SSL_write(tls, answer, (int)strlen(answer)) <= 0)
                return;
            if (atomic_load(&hangs_up))
                return;
            if (atomic_load(&says_goodbye)) {
                (void)SSL_shutdown(tls);
                atomic_store(&server->saw_close, true);
                return;
            }
        }
    }
}

struct connection {
    struct server *server;
    int fd;
};

static void *connection_main(void *argument)
{
    struct connection *connection = argument;
    SSL *tls = SSL_new(server_ctx);

    assert_non_null(tls);
    SSL_set_fd(tls, connection->fd);
    serve_connection(connection->server, tls);
    SSL_free(tls);
    close(connection->fd);
    return NULL;
}

static void serve_tls(struct server *server)
{
    struct connection connections[8];
    pthread_t threads[LENGTH(connections)];
    size_t count = 0;

    while (count < LENGTH(connections)) {
        connections[count].server = server;
        connections[count].fd = server_accept(server);
        if (connections[count].fd < 0)
            break;
        if (pthread_create(&threads[count], NULL, connection_main, &connections[count]) != 0)
            abort();
        count++;
    }
    while (count > 0)
        if (pthread_join(threads[--count], NULL) != 0)
            abort();
}

static bool take_head(void *context, const struct http_head *head)
{
    (void)context;
    return head->status == 200;
}

static enum http_take take_body(void *context, const char *bytes, size_t length)
{
    (void)context, (void)bytes, (void)length;
    return HTTP_TAKEN;
}

static enum http_outcome call(struct http_client *client, const char *url, const char *ca_file)
{
    const struct http_sink sink = {.on_head = take_head, .on_body = take_body};
    const struct http_request request = {.method = "GET",
                                         .url = url,
                                         .body_bytes = -1,
                                         .connect_timeout_ms = GUARD_S * 1000,
                                         .ca_file = ca_file};
    struct http_exchange *exchange = http_exchange_start(client, &request, &sink);
    struct http_wait wait = {.until_ns = clock_monotonic_ns() + GUARD_S * NS_PER_S};
    enum http_outcome outcome;

    assert_non_null(exchange);
    assert_int_equal(http_client_run(client, &wait), HTTP_WAKE_FINISHED);
    outcome = http_exchange_outcome(exchange);
    http_exchange_end(exchange);
    return outcome;
}

struct setting {
    struct server *server;
    struct http_client *client;
    char url[64];
};

static int set_up(void **state)
{
    static struct setting setting;

    setting.server = server_start(serve_tls);
    setting.client = http_client_borrow(pool);
    assert_non_null(setting.client);
    (void)snprintf(setting.url, sizeof setting.url, "https://127.0.0.1:%u/", setting.server->port);
    *state = &setting;
    return 0;
}

static int tear_down(void **state)
{
    struct setting *setting = *state;

    http_client_return(pool, setting->client);
    http_pool_free(pool); /* closes the kept connections, so that the server can end */
    pool = http_pool_new();
    server_stop(setting->server);
    server_free(setting->server);
    return pool ? 0 : -1;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_trusted(void **state)
{
    struct setting *setting = *state;

    for (int i = 0; i < 3; i++)
        assert_int_equal(call(setting->client, setting->url, right_file), HTTP_COMPLETE);
    assert_int_equal(setting->server->opened, 1); /* one connection */
    assert_int_equal(setting->server->requests, 3);
    assert_int_equal(call(setting->client, setting->url, both_file), HTTP_COMPLETE);
}

/* The goodbye of TLS lies unread in a kept connection: it is no reason to send a call after it. */
static void m12_a_connection_that_said_goodbye_is_not_used_again(void **state)
{
    struct setting *setting = *state;
    int64_t until_ns = clock_monotonic_ns() + GUARD_S * NS_PER_S;

    atomic_store(&says_goodbye, true);
    for (int i = 1; i <= 3; i++) {
        atomic_store(&setting->server->saw_close, false);
        assert_int_equal(call(setting->client, setting->url, right_file), HTTP_COMPLETE);
        while (!atomic_load(&setting->server->saw_close) && clock_monotonic_ns() < until_ns)
            clock_sleep_ns(NS_PER_MS);
        assert_int_equal(setting->server->opened, i);
    }
    atomic_store(&says_goodbye, false);
}

/* N4: a body that ends with the stream is whole only when TLS says so. */
static void n4_a_stream_without_goodbye_was_cut(void **state)
{
    struct setting *setting = *state;

    answer = "HTTP/1.1 200 OK\r\n\r\nto the end";
    atomic_store(&says_goodbye, true);
    assert_int_equal(call(setting->client, setting->url, right_file), HTTP_COMPLETE);
    atomic_store(&says_goodbye, false);
    atomic_store(&hangs_up, true);
    assert_int_equal(call(setting->client, setting->url, right_file), HTTP_CUT);
    atomic_store(&hangs_up, false);
    answer = ANSWER;
}

/* N3: what was said beyond an answer is not the answer to the next call. */
static void n3_surplus_is_no_answer(void **state)
{
    struct setting *setting = *state;

    answer = ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(call(setting->client, setting->url, right_file), HTTP_COMPLETE);
        assert_int_equal(setting->server->opened, i);
    }
    answer = ANSWER;
}

static void test_not_trusted(void **state)
{
    struct setting *setting = *state;
    static const char *const files[] = {other_file, empty_file, "/nonexistent/ca.pem", ""};

    for (size_t i = 0; i < LENGTH(files); i++)
        assert_int_equal(call(setting->client, setting->url, files[i]), HTTP_NOT_SENT);
    assert_int_equal(setting->server->requests, 0);
}

/* A connection that was made under one authority is not used under another. */
static void test_trust_is_not_mixed_up(void **state)
{
    struct setting *setting = *state;

    assert_int_equal(call(setting->client, setting->url, right_file), HTTP_COMPLETE);
    assert_int_equal(call(setting->client, setting->url, other_file), HTTP_NOT_SENT);
    assert_int_equal(call(setting->client, setting->url, ""), HTTP_NOT_SENT);
    assert_int_equal(call(setting->client, setting->url, right_file), HTTP_COMPLETE);
    assert_int_equal(setting->server->requests, 2);
}

static void test_wrong_host_name(void **state)
{
    struct setting *setting = *state;
    char url[64];

    (void)snprintf(url, sizeof url, "https://localhost:%u/", setting->server->port);
    assert_int_equal(call(setting->client, url, right_file), HTTP_NOT_SENT);
    assert_int_equal(setting->server->requests, 0);
}

static void test_one_store_per_file(void **state)
{
    SSL_CTX *a = SSL_CTX_new(TLS_client_method()), *b = SSL_CTX_new(TLS_client_method());

    (void)state;
    assert_true(a && b);
    assert_true(http_trust_apply(a, right_file));
    assert_true(http_trust_apply(b, right_file));
    assert_ptr_equal(SSL_CTX_get_cert_store(a), SSL_CTX_get_cert_store(b));
    assert_true(http_trust_apply(b, both_file));
    assert_ptr_not_equal(SSL_CTX_get_cert_store(a), SSL_CTX_get_cert_store(b));
    assert_false(http_trust_apply(b, empty_file));
    assert_false(http_trust_apply(b, directory));
    SSL_CTX_free(a);
    SSL_CTX_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_trusted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(m12_a_connection_that_said_goodbye_is_not_used_again,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(n4_a_stream_without_goodbye_was_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(n3_surplus_is_no_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_not_trusted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_trust_is_not_mixed_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_host_name, set_up, tear_down),
        cmocka_unit_test(test_one_store_per_file),
    };

    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
