/* defaults.c - X-Mock keys that hold for every call: from -d, or set later by POST /defaults; see connection.h. */
#include "tests/tools/upstream/connection.h"

#include <string.h>

bool sim_defaults_set(struct server *server, const char *keys, char ret_bad_key[64])
{
    struct behaviour_source source = {keys, strlen(keys), NULL, NULL};
    struct behaviour behaviour;

    sim_behaviour_init(&behaviour);
    (void)text_copy(ret_bad_key, 64, "too long");
    if (strlen(keys) >= sizeof server->default_mock ||
        !sim_behaviour_apply(&behaviour, &source, ret_bad_key))
        return false;
    (void)text_copy(server->default_mock, sizeof server->default_mock, keys);
    server->defaults_vary = strstr(keys, "times=") != NULL;
    server->defaults = behaviour;
    return true;
}

void sim_defaults_get(struct server *server, struct behaviour *behaviour)
{
    char bad_key[64];
    struct behaviour_source source = {server->default_mock, strlen(server->default_mock),
                                      sim_stats_tag_use, &server->stats};

    *behaviour = server->defaults;
    if (!server->defaults_vary)
        return;
    sim_behaviour_init(behaviour);
    (void)sim_behaviour_apply(behaviour, &source, bad_key);
}

void sim_defaults_answer(struct server *server, const struct call *call, struct body *body)
{
    char bad_key[64];
    bool good =
        sim_defaults_set(server, call->kept.length ? text_string(&call->kept) : "", bad_key);

    sim_body_text(body, good ? "{\"defaults\":" : "{\"bad_key\":");
    sim_body_json(body, good ? server->default_mock : bad_key);
    sim_body_text(body, "}\n");
}
