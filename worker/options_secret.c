/* options_secret.c - keys stay out of the configuration: @credential:, @file: and @env: name where
 * they are; see options_table.h. No message ever holds what was read. */
#include "worker/options_file.h"
#include "worker/options_table.h"

#include <stdio.h>
#include <string.h>

struct secret {
    struct options_loader *loader;
    struct option_subject subject;
    char bytes[OPTION_SECRET_MAX];
    size_t length;
};

/* Strip the line end, and see to it that the rest can stand in a header. */
static const char *keep_secret(struct secret *secret)
{
    if (secret->length > 0 && secret->bytes[secret->length - 1] == '\n')
        secret->length--;
    if (secret->length > 0 && secret->bytes[secret->length - 1] == '\r')
        secret->length--;
    if (secret->length == 0) {
        options_error(secret->loader, secret->subject, "the secret is empty");
        return NULL;
    }
    for (size_t i = 0; i < secret->length; i++) {
        unsigned char c = (unsigned char)secret->bytes[i];

        if (c <= 0x20 || c >= 0x7f) {
            options_error(secret->loader, secret->subject,
                          "the secret has a blank or another character that no key has; allowed: "
                          "one line of plain ASCII");
            return NULL;
        }
    }
    return options_keep_text(secret->loader, secret->bytes, secret->length);
}

static const char *read_file(struct secret *secret, const char *path, bool warn)
{
    struct options_bytes bytes;
    const char *problem;
    char excerpt[OPTION_EXCERPT_SIZE];

    if (!options_file_read(path, secret->bytes, sizeof secret->bytes, &bytes, &problem)) {
        options_error(secret->loader, secret->subject, "the secret %s cannot be read: %s",
                      option_excerpt(excerpt, path), problem);
        return NULL;
    }
    if (warn && bytes.world_readable)
        options_warning(secret->loader, secret->subject,
                        "every user of this host can read %s; chmod o-r it",
                        option_excerpt(excerpt, path));
    secret->length = bytes.length;
    return keep_secret(secret);
}

static const char *read_credential(struct secret *secret, const char *name)
{
    const char *directory = options_variable(secret->loader->around, "CREDENTIALS_DIRECTORY");
    char path[1024];

    if (*name == '\0' || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        options_error(secret->loader, secret->subject,
                      "not the name of a credential; allowed: @credential:NAME as in the unit's "
                      "LoadCredential=NAME:PATH");
        return NULL;
    }
    if (!secret->loader->around->read_secrets)
        return "";
    if (*directory == '\0') {
        options_error(secret->loader, secret->subject,
                      "there is no $CREDENTIALS_DIRECTORY: credentials exist only inside a systemd "
                      "unit with LoadCredential=; allowed elsewhere: @file:PATH or @env:NAME");
        return NULL;
    }
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path) {
        options_error(secret->loader, secret->subject, "the credential's path is too long");
        return NULL;
    }
    return read_file(secret, path, false);
}

static const char *read_path(struct secret *secret, const char *path)
{
    if (*path != '/') {
        options_error(secret->loader, secret->subject,
                      "the secret's path is not absolute; allowed: @file:/PATH");
        return NULL;
    }
    return secret->loader->around->read_secrets ? read_file(secret, path, true) : "";
}

static const char *read_variable(struct secret *secret, const char *name)
{
    const char *value = options_variable(secret->loader->around, name);
    size_t length = strlen(value);
    char excerpt[OPTION_EXCERPT_SIZE];

    if (*name != '\0' && !secret->loader->around->read_secrets)
        return "";
    if (*name == '\0' || *value == '\0') {
        options_error(secret->loader, secret->subject, "the variable %s is not set or empty",
                      option_excerpt(excerpt, name));
        return NULL;
    }
    if (length > sizeof secret->bytes) {
        options_error(secret->loader, secret->subject,
                      "the secret is too long; allowed: 8192 bytes");
        return NULL;
    }
    memcpy(secret->bytes, value, length);
    secret->length = length;
    return keep_secret(secret);
}

const char *option_secret_read(struct options_loader *loader, struct option_subject subject,
                               const char *reference)
{
    static const struct {
        const char *prefix;
        const char *(*read)(struct secret *secret, const char *name);
    } kinds[] = {
        {"@credential:", read_credential}, {"@file:", read_path}, {"@env:", read_variable}};
    struct secret secret = {.loader = loader, .subject = subject};
    const char *kept = NULL;

    for (size_t i = 0; i < LENGTH(kinds); i++) {
        size_t length = strlen(kinds[i].prefix);

        if (strncmp(reference, kinds[i].prefix, length) == 0) {
            kept = kinds[i].read(&secret, reference + length);
            explicit_bzero(&secret, sizeof secret);
            return kept;
        }
    }
    options_error(loader, subject,
                  "a secret must not stand here itself; allowed: @credential:NAME, @file:PATH or "
                  "@env:NAME, which name where it is kept");
    return kept;
}
