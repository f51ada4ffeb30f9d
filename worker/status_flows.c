/* status_flows.c - flow control on the status page; see status_flows.h. */
#include "worker/status_flows.h"

#include "base/clock.h"
#include "shared/calibration.h"
#include "worker/flow_call.h"
#include "worker/status.h"
#include "worker/status_html.h"

#include <inttypes.h>
#include <string.h>

const char *status_strategy_name(enum flow_strategy strategy)
{
    static const char *const names[] = {"none", "retry", "rate", "shaping", "adaptive"};

    return (size_t)strategy < LENGTH(names) ? names[strategy] : "unknown";
}

const char *status_unit_name(enum flow_unit unit)
{
    static const char *const names[] = {"tokens", "images", "seconds", "tasks"};

    return (size_t)unit < LENGTH(names) ? names[unit] : "unknown";
}

/* NULL: the quota is not known. */
static const char *origin_name(enum flow_quota_origin origin)
{
    static const char *const names[] = {NULL, "configured", "headers", "refusals"};

    return (size_t)origin < LENGTH(names) ? names[origin] : NULL;
}

static bool is_adaptive(const struct flow_view *flow)
{
    return flow->strategy == FLOW_STRATEGY_ADAPTIVE;
}

#define SHARE_BELOW 0.97 /* adaptive uses so much of what was refused */
#define SHARE_LOW 0.8

/* ---- text ------------------------------------------------------------------------------------ */

static void text_quota(struct text *out, int64_t used, int64_t quota, const char *what)
{
    text_printf(out, "%" PRId64 " %s", used, what);
    if (quota > 0)
        text_printf(out, " of %" PRId64, quota);
}

/* Of a flow's view, for one of its quotas. */
struct quota_view {
    const char *what;
    enum flow_quota_origin origin;
    int64_t configured, told, left;
    double share; /* that is used, adaptive; 1 = all */
};

/* Where a quota is known from, what the upstream says against the configuration, and what is left of it
 * as it said last. */
static void text_origin(struct text *out, const struct quota_view *quota)
{
    static const char *const words[] = {
        [FLOW_QUOTA_UNKNOWN] = "not known",
        [FLOW_QUOTA_CONFIGURED] = "configured",
        [FLOW_QUOTA_HEADERS] = "from its headers",
        [FLOW_QUOTA_REFUSALS] = "from refusals",
    };

    text_printf(out, "%s %s", quota->what, words[quota->origin]);
    if (quota->origin == FLOW_QUOTA_HEADERS && quota->configured > 0)
        text_printf(out, ": configured %" PRId64 ", the upstream says %" PRId64, quota->configured,
                    quota->told);
    else if (quota->origin == FLOW_QUOTA_CONFIGURED && quota->share < SHARE_LOW)
        text_printf(out, " %" PRId64 ", refused at about %.0f", quota->configured,
                    quota->share * (double)quota->configured / SHARE_BELOW);
    if (quota->left >= 0)
        text_printf(out, " (%" PRId64 " left there)", quota->left);
}

static double used_share(const struct flow_view *flow, double share)
{
    return is_adaptive(flow) ? share : 1;
}

static void text_quotas(const struct flow_view *flow, struct text *out)
{
    if (flow->strategy < FLOW_STRATEGY_RATE)
        return;
    text_append_string(out, "  quotas        ");
    text_origin(out, &(struct quota_view){.what = "sends",
                                          .origin = flow->requests_origin,
                                          .configured = flow->requests_configured,
                                          .told = flow->requests_told,
                                          .left = flow->requests_left,
                                          .share = used_share(flow, flow->learned.requests_share)});
    if (flow->strategy != FLOW_STRATEGY_RATE) {
        text_append_string(out, "; ");
        text_origin(out,
                    &(struct quota_view){.what = status_unit_name(flow->unit),
                                         .origin = flow->units_origin,
                                         .configured = flow->units_configured,
                                         .told = flow->units_told,
                                         .left = flow->units_left,
                                         .share = used_share(flow, flow->learned.tokens_share)});
    }
    text_append_char(out, '\n');
}

static void text_use(const struct flow_view *flow, struct text *out)
{
    const char *unit = status_unit_name(flow->unit);

    text_append_string(out, "  last 60 s     ");
    text_quota(out, flow->use.sends, flow->requests_quota, "sends");
    text_append_string(out, ", ");
    text_quota(out, flow->use.units, flow->units_quota, unit);
    if (flow->requests_balance != INT64_MAX)
        text_printf(out, "; in hand %" PRId64 " sends", flow->requests_balance);
    if (flow->units_balance != INT64_MAX)
        text_printf(out, "%s %" PRId64 " %s",
                    flow->requests_balance != INT64_MAX ? "," : "; in hand", flow->units_balance,
                    unit);
    text_printf(out, "\n  in flight     %" PRIu32, flow->in_flight);
    if (flow->in_flight_limit != UINT32_MAX)
        text_printf(out, " of %" PRIu32, flow->in_flight_limit);
    text_append_string(out, "\n  waiting       ");
    for (unsigned i = 0; i < FLOW_CLASSES; i++)
        text_printf(out, "%s%s %" PRIu32, i > 0 ? ", " : "", flow_class_name((enum flow_class)i),
                    flow->waiting[i]);
    text_append_string(out, "; begun so far ");
    for (unsigned i = 0; i < FLOW_CLASSES; i++)
        text_printf(out, "%s%" PRIu64, i > 0 ? ", " : "", flow->granted[i]);
    text_printf(out, "; answered %" PRIu64 "\n", flow->completed);
}

static void text_share(struct text *out, int64_t told, double share, double learned,
                       const char *what)
{
    if (told > 0)
        text_printf(out, ", %.0f %% of %s", share * 100, what);
    else if (learned > 0)
        text_printf(out, ", %.0f %s a minute", learned, what);
}

static void text_learned(const struct flow_view *flow, struct text *out)
{
    const struct adaptive_memory *learned = &flow->learned;

    if (!is_adaptive(flow))
        return;
    text_printf(out,
                "  state         %s, %" PRIu64 " cuts so far\n"
                "  learned       %.1f in flight (%.1f went well), %.2f a second growing by %.1f %%",
                adaptive_state_name(flow->adaptive_state), flow->cuts, flow->limit,
                learned->watermark, learned->pace, learned->growth * 100);
    text_share(out, flow->requests_quota, learned->requests_share, learned->requests_learned,
               "sends");
    text_share(out, flow->units_quota, learned->tokens_share, learned->tokens_learned,
               status_unit_name(flow->unit));
    if (learned->tpt_base_s > 0)
        text_printf(out, ", a token in %.1f ms", learned->tpt_base_s * 1e3);
    text_append_char(out, '\n');
}

static void text_estimates(const struct flow_view *flow, struct text *out)
{
    const struct estimate_row *estimate = &flow->estimate;
    const struct token_ratios ratios = calibration_ratios(estimate);

    if (estimate->ratio_samples == 0 && estimate->output_samples == 0)
        return;
    text_printf(out,
                "  estimates     input x %.3f (other scripts than Latin x %.3f) by %" PRIu32
                " calls, output %.0f tokens by %" PRIu32 "\n",
                ratios.latin, ratios.script, estimate->ratio_samples,
                (double)estimate->output_parts / 1e3, estimate->output_samples);
}

static void text_refusals(const struct flow_view *flow, struct text *out)
{
    const char *comma = "  upstream      refused ";

    for (unsigned i = 0; i < ADAPTIVE_KINDS; i++) {
        if (flow->refusals[i] == 0)
            continue;
        text_printf(out, "%s%" PRIu64 " %s", comma, flow->refusals[i],
                    adaptive_kind_name((enum adaptive_kind)i));
        comma = ", ";
    }
    if (flow->last_refusal_age_ns >= 0)
        text_printf(out, "; the last %.1f s ago, %s\n", (double)flow->last_refusal_age_ns / 1e9,
                    adaptive_kind_name(flow->last_refusal_kind));
    if (flow->paused_for_ns > 0)
        text_printf(out, "  paused        for %.1f s\n", (double)flow->paused_for_ns / 1e9);
    if (flow->refused_full + flow->refused_client + flow->refused_hopeless + flow->expired +
            flow->refused_threads >
        0)
        text_printf(out,
                    "  refused here  %" PRIu64 " queue full, %" PRIu64
                    " client's share full, %" PRIu64 " hopeless, %" PRIu64
                    " waited too long, %" PRIu64 " without a thread to wait in\n",
                    flow->refused_full, flow->refused_client, flow->refused_hopeless, flow->expired,
                    flow->refused_threads);
}

static void text_flow(const struct flow_view *flow, struct text *out)
{
    char name[NAME_SIZE];

    text_printf(out, "%s", status_plain(name, flow->quota_group));
    text_printf(out, " / %s: %s\n", status_plain(name, flow->model),
                status_strategy_name(flow->strategy));
    text_use(flow, out);
    text_quotas(flow, out);
    text_learned(flow, out);
    text_estimates(flow, out);
    text_refusals(flow, out);
}

void status_flows_text(const struct snapshot *snapshot, struct text *out)
{
    text_printf(out, "\nflows (quota group / model): %u\n", snapshot->flow_count);
    for (unsigned i = 0; i < snapshot->flow_count; i++)
        text_flow(&snapshot->flows[i], out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_name(struct text *out, const char *before, const char *value)
{
    text_append_string(out, before);
    text_append_json(out, value, strlen(value));
}

/* null: there is no such bound. */
static void json_bound(struct text *out, const char *key, int64_t value, bool bounded)
{
    text_printf(out, ",\"%s\":", key);
    if (bounded)
        text_append_number(out, value);
    else
        text_append_string(out, "null");
}

static void json_origin(struct text *out, const char *key, enum flow_quota_origin origin)
{
    const char *name = origin_name(origin);

    text_printf(out, ",\"%s\":%s%s%s", key, name ? "\"" : "", name ? name : "null",
                name ? "\"" : "");
}

static void json_classes(const struct flow_view *flow, struct text *out)
{
    text_append_string(out, ",\"waiting\":{");
    for (unsigned i = 0; i < FLOW_CLASSES; i++)
        text_printf(out, "%s\"%s\":%" PRIu32, i > 0 ? "," : "", flow_class_name((enum flow_class)i),
                    flow->waiting[i]);
    text_append_string(out, "},\"granted\":{");
    for (unsigned i = 0; i < FLOW_CLASSES; i++)
        text_printf(out, "%s\"%s\":%" PRIu64, i > 0 ? "," : "", flow_class_name((enum flow_class)i),
                    flow->granted[i]);
    text_printf(out, "},\"completed\":%" PRIu64, flow->completed);
}

static void json_learned(const struct flow_view *flow, struct text *out)
{
    const struct adaptive_memory *learned = &flow->learned;

    if (!is_adaptive(flow)) {
        text_append_string(out, ",\"state\":null,\"learned\":null");
        return;
    }
    text_printf(out,
                ",\"state\":\"%s\",\"learned\":{\"in_flight\":%.2f,\"watermark\":%.2f,"
                "\"pace\":%.3f,\"growth\":%.4f,\"requests_share\":%.3f,\"units_share\":%.3f,"
                "\"rpm\":%.0f,\"tpm\":%.0f,\"seconds_per_token\":%.5f,\"cuts\":%" PRIu64 "}",
                adaptive_state_name(flow->adaptive_state), flow->limit, learned->watermark,
                learned->pace, learned->growth, learned->requests_share, learned->tokens_share,
                learned->requests_learned, learned->tokens_learned, learned->tpt_base_s,
                flow->cuts);
}

static void json_refusals(const struct flow_view *flow, struct text *out)
{
    text_append_string(out, ",\"upstream_refusals\":{");
    for (unsigned i = 0; i < ADAPTIVE_KINDS; i++)
        text_printf(out, "%s\"%s\":%" PRIu64, i > 0 ? "," : "",
                    adaptive_kind_name((enum adaptive_kind)i), flow->refusals[i]);
    text_append_string(out, "},\"last_refusal\":");
    if (flow->last_refusal_age_ns < 0)
        text_append_string(out, "null");
    else
        text_printf(out, "{\"kind\":\"%s\",\"age_ms\":%" PRId64 "}",
                    adaptive_kind_name(flow->last_refusal_kind),
                    flow->last_refusal_age_ns / NS_PER_MS);
    text_printf(out,
                ",\"refused\":{\"full\":%" PRIu64 ",\"client\":%" PRIu64 ",\"hopeless\":%" PRIu64
                ",\"expired\":%" PRIu64 ",\"threads\":%" PRIu64 "},\"cancelled\":%" PRIu64
                ",\"buried\":%" PRIu64,
                flow->refused_full, flow->refused_client, flow->refused_hopeless, flow->expired,
                flow->refused_threads, flow->cancelled, flow->buried);
}

static void json_flow(const struct flow_view *flow, struct text *out)
{
    const struct estimate_row *estimate = &flow->estimate;
    const struct token_ratios ratios = calibration_ratios(estimate);

    json_name(out, "{\"quota_group\":", flow->quota_group);
    json_name(out, ",\"model\":", flow->model);
    text_printf(out, ",\"flow\":\"%s\",\"unit\":\"%s\"", status_strategy_name(flow->strategy),
                status_unit_name(flow->unit));
    json_bound(out, "rpm", flow->requests_quota, flow->requests_quota > 0);
    json_bound(out, "tpm", flow->units_quota, flow->units_quota > 0);
    json_origin(out, "rpm_from", flow->requests_origin);
    json_origin(out, "tpm_from", flow->units_origin);
    json_bound(out, "requests_left_upstream", flow->requests_left, flow->requests_left >= 0);
    json_bound(out, "units_left_upstream", flow->units_left, flow->units_left >= 0);
    text_printf(out, ",\"sends_60s\":%" PRId64 ",\"units_60s\":%" PRId64, flow->use.sends,
                flow->use.units);
    json_bound(out, "requests_in_hand", flow->requests_balance,
               flow->requests_balance != INT64_MAX);
    json_bound(out, "units_in_hand", flow->units_balance, flow->units_balance != INT64_MAX);
    text_printf(out, ",\"in_flight\":%" PRIu32, flow->in_flight);
    json_bound(out, "in_flight_limit", flow->in_flight_limit, flow->in_flight_limit != UINT32_MAX);
    json_classes(flow, out);
    text_printf(out, ",\"paused_ms\":%" PRId64, flow->paused_for_ns / NS_PER_MS);
    json_learned(flow, out);
    text_printf(
        out,
        ",\"estimates\":{\"input_ratio\":%.4f,\"script_ratio\":%.4f,\"input_calls\":%" PRIu32
        ",\"output_tokens\":%.1f,\"output_calls\":%" PRIu32 "}",
        ratios.latin, ratios.script, estimate->ratio_samples, (double)estimate->output_parts / 1e3,
        estimate->output_samples);
    json_refusals(flow, out);
    text_append_char(out, '}');
}

void status_flows_json(const struct snapshot *snapshot, struct text *out)
{
    text_append_char(out, '[');
    for (unsigned i = 0; i < snapshot->flow_count; i++) {
        if (i > 0)
            text_append_char(out, ',');
        json_flow(&snapshot->flows[i], out);
    }
    text_append_char(out, ']');
}

/* ---- HTML ------------------------------------------------------------------------------------ */

static void html_of(struct text *out, int64_t used, int64_t most, bool bounded)
{
    text_printf(out, "<td class=\"n\">%" PRId64, used);
    if (bounded)
        text_printf(out, " / %" PRId64, most);
    text_append_string(out, "</td>");
}

static void html_quota(struct text *out, int64_t used, int64_t quota, enum flow_quota_origin origin)
{
    const char *name = origin_name(origin);

    if (name && origin != FLOW_QUOTA_REFUSALS)
        text_printf(out, "<td class=\"n\" title=\"%s\">%" PRId64 " / %" PRId64 "%s</td>", name,
                    used, quota, origin == FLOW_QUOTA_HEADERS ? " (headers)" : "");
    else
        html_of(out, used, 0, false);
}

static void html_state(const struct flow_view *flow, struct text *out)
{
    bool held = flow->paused_for_ns > 0;

    text_printf(out, "<td class=\"%s\">%s", held ? "bad" : "good",
                is_adaptive(flow) ? adaptive_state_name(flow->adaptive_state)
                : held            ? "paused"
                                  : "open");
    if (held)
        text_printf(out, ", %.0f&nbsp;s", (double)flow->paused_for_ns / 1e9);
    text_append_string(out, "</td>");
}

static void html_last_refusal(const struct flow_view *flow, struct text *out)
{
    uint64_t refusals = 0;

    for (unsigned i = 0; i < ADAPTIVE_KINDS; i++)
        refusals += flow->refusals[i];
    text_printf(out, "<td class=\"n\">%" PRIu64 "</td><td>", refusals);
    if (flow->last_refusal_age_ns >= 0)
        text_printf(out, "%s, %.0f&nbsp;s ago", adaptive_kind_name(flow->last_refusal_kind),
                    (double)flow->last_refusal_age_ns / 1e9);
    else
        text_append_string(out, "–");
    text_append_string(out, "</td></tr>\n");
}

static void html_flow(const struct flow_view *flow, struct text *out)
{
    text_append_string(out, "<tr><td>");
    status_html_escaped(out, flow->quota_group);
    text_append_string(out, "</td><td>");
    status_html_escaped(out, flow->model);
    text_printf(out, "</td><td>%s</td>", status_strategy_name(flow->strategy));
    html_state(flow, out);
    html_quota(out, flow->use.sends, flow->requests_quota, flow->requests_origin);
    html_quota(out, flow->use.units, flow->units_quota, flow->units_origin);
    html_of(out, flow->in_flight, flow->in_flight_limit, flow->in_flight_limit != UINT32_MAX);
    text_printf(out, "<td class=\"n\">%" PRIu32 " / %" PRIu32 " / %" PRIu32 "</td>",
                flow->waiting[FLOW_INTERACTIVE], flow->waiting[FLOW_NORMAL],
                flow->waiting[FLOW_BULK]);
    if (is_adaptive(flow))
        text_printf(out, "<td class=\"n\">%.1f, %.2f/s</td>", flow->learned.watermark,
                    flow->learned.pace);
    else
        text_append_string(out, "<td class=\"n\">–</td>");
    html_last_refusal(flow, out);
}

void status_flows_html(const struct snapshot *snapshot, struct text *out)
{
    if (snapshot->flow_count == 0)
        return;
    text_append_string(
        out, "<section><h2>Flow control</h2><div class=\"wide\"><table><tr><th>quota group</th>"
             "<th>model</th><th>flow</th><th>state</th><th class=\"n\">sends in 60&nbsp;s</th>"
             "<th class=\"n\">units in 60&nbsp;s</th><th class=\"n\">in flight</th><th "
             "class=\"n\">waiting: interactive / normal / bulk</th><th class=\"n\">learned</th>"
             "<th class=\"n\">refused upstream</th><th>the last</th></tr>\n");
    for (unsigned i = 0; i < snapshot->flow_count; i++)
        html_flow(&snapshot->flows[i], out);
    text_append_string(out, "</table></div></section>\n");
}
