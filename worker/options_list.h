/*
 * options_list.h - every option. One list yields the struct, the defaults, validation, `penstockd -T`,
 * the option lists of penstock.conf(5) and conf/penstock.conf, and the environment overrides.
 *
 * OPTION(section, key, field, TYPE, default, min, max, reload, help)
 *   section   penstock, image_concurrency (one each); source, scope, route (one per NAME)
 *   field     the member of the section's struct; its unit is in its name (times are _ms)
 *   TYPE      BOOL     bool
 *             COUNT    int64_t, min..max; the word "auto" (stored as -1) where min is -1 (numbers from
 *                      1 on) or -2 (from 0 on); 600k and 2m are 600000 and 2000000 where max is 1000000
 *                      or more
 *             SECONDS  int64_t milliseconds; written in seconds or with a unit (500ms, 30s, 5m, 2h,
 *                      1d); min..max in seconds; "" (stored as -1) = not set, where the default is ""
 *             SIZE     int64_t bytes; written 65536, 64k, 64m, 2g; min..max in bytes
 *             STRING   const char *, never NULL
 *             CHOICE   int: index into the words of `choices_<section>_<key>` in options.c
 *             LIST     const char *const *, NULL-terminated; written comma-separated
 *             SECRET   const char *: resolved from @credential:NAME, @file:PATH or @env:NAME
 *             MODE     int64_t, octal
 *   reload    RELOAD: a reload applies it; RESTART: only a restart does
 */

/* ---- [penstock]: this instance --------------------------------------------------------------- */
OPTION(
    penstock, listen, listen, STRING, "unix:/run/penstock/penstock.sock", 0, 0, RESTART,
    "where the web server's FastCGI connections arrive: unix:PATH, or ADDRESS:PORT on loopback "
    "(with a warning: any local user can connect). systemd passes it as the socket named \"fcgi\"")
OPTION(penstock, status_listen, status_listen, STRING, "unix:/run/penstock/status.sock", 0, 0,
       RESTART,
       "where /penstock/status, /penstock/metrics, /penstock/ping and penstockctl arrive; answered "
       "by a process of its own, so it works while every worker is busy. systemd passes it as the "
       "socket named \"status\"")
OPTION(penstock, listen_mode, listen_mode, MODE, "0660", 0, 0777, RESTART,
       "permission bits of unix sockets Penstock makes itself")
OPTION(penstock, listen_group, listen_group, STRING, "", 0, 0, RESTART,
       "group of unix sockets Penstock makes itself: the web server's; empty = Penstock's own")
OPTION(penstock, workers, workers, COUNT, "auto", -1, 100, RELOAD,
       "worker processes; auto = one per CPU, at least 2")
OPTION(penstock, threads, threads, COUNT, "auto", -1, 2000, RELOAD,
       "request threads of each worker; auto = as many as image slots, the wait queue and the "
       "reserve need, at least 64, and 64 more where calls wait in a flow")
OPTION(
    penstock, reserve_percent, reserve_percent, COUNT, "25", 0, 90, RELOAD,
    "share of all threads that image calls and calls that wait in a flow can never take, so that "
    "other calls always find one")
OPTION(penstock, state_directory, state_directory, STRING, "/var/lib/penstock", 0, 0, RESTART,
       "local disk for the ledger and for spooled bodies; names this instance")
OPTION(penstock, runtime_directory, runtime_directory, STRING, "/run/penstock", 0, 0, RESTART,
       "for lock files; instances that share a gate share this directory")
OPTION(penstock, body_read_timeout_s, body_read_timeout_ms, SECONDS, "60", 1, 3600, RELOAD,
       "longest time without enough of a request body: the whole body must arrive at body_min_rate "
       "after this long")
OPTION(penstock, body_min_rate, body_min_rate_bytes, SIZE, "1k", 0, 1073741824, RELOAD,
       "bytes per second a request body must keep up, on average, once body_read_timeout_s has "
       "passed; 0 = body_read_timeout_s is the limit for the whole body")
OPTION(penstock, max_json_body, max_json_body_bytes, SIZE, "64m", 1024, 4294967296, RELOAD,
       "largest request body that is not multipart; a larger one is answered 413, and what still "
       "comes of it is thrown away, for at most 30 seconds: a web server that looks for the answer "
       "only when it has sent the whole body (Caddy) then finds it")
OPTION(penstock, max_multipart_body, max_multipart_body_bytes, SIZE, "256m", 1024, 4294967296,
       RELOAD, "largest multipart request body; a larger one is answered 413")
OPTION(penstock, max_params, max_params_bytes, SIZE, "64k", 4096, 65536, RELOAD,
       "largest set of FastCGI parameters (request headers); a larger one is answered 431")
OPTION(penstock, spool_above, spool_above_bytes, SIZE, "256k", 0, 67108864, RELOAD,
       "a request body larger than this lies in an unnamed file in the state directory while its "
       "call waits and runs")
OPTION(penstock, spool_max, spool_max_bytes, SIZE, "4g", 1048576, 1099511627776, RELOAD,
       "all spooled bodies of this instance together; a body that does not fit is answered 503")
OPTION(penstock, client_stall_timeout_seconds, client_stall_timeout_ms, SECONDS, "60", 1, 3600,
       RELOAD, "a client that stays connected but takes nothing for this long is treated as gone")
OPTION(penstock, client_watch, client_watch, BOOL, "true", 0, 0, RELOAD,
       "ask the kernel whether the client's TCP connection to the web server still stands, while "
       "nothing can be written: the only way to notice a client that left behind Apache or Caddy; "
       "for HTTP/1.1 clients that connect to the web server directly")
OPTION(penstock, penstock_headers, penstock_headers, BOOL, "false", 0, 0, RELOAD,
       "add X-Penstock-Scope, -Source, -Wait-Ms, -Attempts and, where there were any, -Hedges to "
       "responses")
OPTION(penstock, stop_timeout_s, stop_timeout_ms, SECONDS, "600", 1, 86400, RELOAD,
       "after a graceful stop or reload, calls still running after this long are cut")
OPTION(penstock, orphan_timeout_s, orphan_timeout_ms, SECONDS, "30", 1, 3600, RELOAD,
       "workers whose master was killed go on serving this long for a new master to take over, "
       "then finish what they have and end")
OPTION(penstock, log_level, log_level, CHOICE, "info", 0, 0, RELOAD,
       "what is logged: error, warning, notice, info or debug; info has one line per call")
OPTION(penstock, log_format, log_format, CHOICE, "logfmt", 0, 0, RELOAD,
       "form of a log line: logfmt or json")
OPTION(penstock, log_file, log_file, STRING, "", 0, 0, RELOAD,
       "where the log goes; empty = standard error (journald under systemd); a file is reopened on "
       "SIGUSR1")
OPTION(penstock, ledger, ledger, BOOL, "true", 0, 0, RELOAD,
       "write the wait ledger (ledger.db in the state directory)")
OPTION(
    penstock, ledger_group, ledger_group, STRING, "", 0, 0, RELOAD,
    "group that may read the ledger: one that Penstock's user is in and that may enter the state "
    "directory; empty = Penstock's own")
OPTION(penstock, ledger_keep_s, ledger_keep_ms, SECONDS, "30d", 3600, 315360000, RELOAD,
       "rows older than this are deleted")
OPTION(penstock, ledger_max, ledger_max_bytes, SIZE, "1g", 1048576, 1099511627776, RELOAD,
       "the oldest rows are deleted when the ledger is larger than this")

/* ---- [image_concurrency]: the gate ----------------------------------------------------------- */
OPTION(image_concurrency, enabled, enabled, BOOL, "false", 0, 0, RELOAD,
       "limit image calls; off changes nothing")
OPTION(image_concurrency, gate, gate, STRING, "default", 0, 0, RESTART,
       "which host-wide limit this instance shares: all instances that name the same gate obey one "
       "limit together")
OPTION(image_concurrency, max_concurrent_requests, max_concurrent_requests, COUNT, "0", 0, 2048,
       RELOAD, "image calls in progress on this whole host; 0 = no limit")
OPTION(image_concurrency, overflow_mode, overflow_mode, CHOICE, "reject", 0, 0, RELOAD,
       "what happens to an image call that finds no free slot: reject (429 at once) or wait (in a "
       "queue; class_weights tells whose turn is next)")
OPTION(image_concurrency, wait_timeout_seconds, wait_timeout_ms, SECONDS, "30", 1, 3600, RELOAD,
       "longest wait; then 429. Only for wait")
OPTION(image_concurrency, max_waiting_requests, max_waiting_requests, COUNT, "100", 1, 4096, RELOAD,
       "longest queue, host-wide; a call beyond it is answered 429 at once. Only for wait")
OPTION(
    image_concurrency, class_weights, class_weights, LIST, "16, 4, 1", 0, 0, RELOAD,
    "shares of the pictures that interactive, normal and bulk calls get while all have some that "
    "wait, 1 to 1000; inside a class first in first out. A call's class is its scope's flow_class, "
    "or what flow_class_header_max lets it claim, so where no scope says anything the queue is "
    "first in first out; empty = it is, whatever they say. Only for wait")
OPTION(image_concurrency, class_max_waiting, class_max_waiting, LIST, "", 0, 0, RELOAD,
       "how many of max_waiting_requests may be interactive, normal and bulk calls, 1 to 4096, so "
       "that one class leaves room to the others; empty = any. Only for wait")
OPTION(image_concurrency, queue_stream_headers_after_seconds, queue_stream_headers_after_ms,
       SECONDS, "45", 0, 3600, RELOAD,
       "a streaming client that waits this long is sent 200, the stream's headers and a comment; 0 "
       "= never. After that a refusal is an event in the stream, which SDKs do not retry")
OPTION(image_concurrency, queue_heartbeat_seconds, queue_heartbeat_ms, SECONDS, "15", 1, 300,
       RELOAD,
       "comments to such a client while it waits on; each also finds out whether it is still there")
OPTION(image_concurrency, image_stream_data_interval_timeout, image_stream_data_interval_timeout_ms,
       SECONDS, "900", 0, 1800, RELOAD,
       "an image stream whose upstream sends no byte for this long is ended with an error event; 0 "
       "= never, else 60 to 1800. Not a queue timeout. Works whenever set in the file, and with "
       "its default while the gate is on")
OPTION(image_concurrency, image_first_byte_timeout_seconds, image_first_byte_timeout_ms, SECONDS,
       "900", 0, 3600, RELOAD,
       "longest time from sending an image call to the first byte of its answer; 0 = never. Works "
       "whenever set in the file, and with its default while the gate is on")
OPTION(image_concurrency, on_client_gone, on_client_gone, CHOICE, "cancel", 0, 0, RELOAD,
       "an image call whose client left: cancel the upstream call at once, or finish it to learn "
       "what it used; the slot is held as long as upstream work is in flight")
OPTION(image_concurrency, nonstream_heartbeat_seconds, nonstream_heartbeat_ms, SECONDS, "0", 0, 300,
       RELOAD,
       "send blanks before a JSON answer this often, so that proxies in between do not give up; 0 "
       "= never. Commits status 200: a later error arrives as an error object under 200")
OPTION(image_concurrency, image_models, image_models, LIST,
       "gpt-image-*, chatgpt-image-*, dall-e-*, grok-imagine*, gemini-*-image*, imagen-*, "
       "qwen-image*, wan*-t2i*, flux*",
       0, 0, RELOAD,
       "models that draw: globs, case ignored; each also matches behind any provider prefix "
       "(openai/gpt-image-2, models/imagen-4)")
OPTION(image_concurrency, count_chat_images, count_chat_images, BOOL, "true", 0, 0, RELOAD,
       "count chat completions and Gemini calls that ask for an image")
OPTION(image_concurrency, background_lease_seconds, background_lease_ms, SECONDS, "600", 1, 86400,
       RELOAD,
       "a background response or async task keeps its slot until a poll through us shows that it "
       "ended, at most this long")
OPTION(image_concurrency, refuse_hopeless, refuse_hopeless, BOOL, "false", 0, 0, RELOAD,
       "refuse a call at once when its predicted wait is longer than it may wait")
OPTION(image_concurrency, image_retry_hold_seconds, image_retry_hold_ms, SECONDS, "5", 0, 600,
       RELOAD, "the most an image call may spend waiting between attempts while it holds a slot")

/* ---- [source NAME]: one upstream endpoint with one account ----------------------------------- */
OPTION(
    source, base_url, base_url, STRING, "", 0, 0, RELOAD,
    "the http:// or https:// URL that a call's path (/v1/...) is appended to, without /v1 at its "
    "end; required")
OPTION(source, api_key, api_key, SECRET, "", 0, 0, RELOAD,
       "key sent upstream as Authorization: Bearer; empty = the client's own Authorization passes "
       "through")
OPTION(source, dialect, dialect, CHOICE, "openai", 0, 0, RELOAD,
       "how errors, keys and usage look: openai, dashscope, azure, gemini, anthropic or plain")
OPTION(source, timeout_s, timeout_ms, SECONDS, "600", 1, 86400, RELOAD,
       "longest time for one whole exchange with the upstream")
OPTION(source, connect_timeout_s, connect_timeout_ms, SECONDS, "5", 1, 300, RELOAD,
       "longest time to connect, TLS included")
OPTION(
    source, stream_idle_timeout_s, stream_idle_timeout_ms, SECONDS, "180", 0, 86400, RELOAD,
    "a stream whose upstream sends no byte for this long is ended with an error event; 0 = never")
OPTION(source, ca_file, ca_file, STRING, "", 0, 0, RELOAD,
       "PEM file of the certificate authorities trusted for this source; empty = the system's")

OPTION(source, quota_group, quota_group, STRING, "", 0, 0, RELOAD,
       "sources of one account at one upstream name the same group: what one of them is refused, "
       "the others are too, so a hedge never goes from one to another; empty = a group of its own")
OPTION(source, ttft_timeout_s, ttft_timeout_ms, SECONDS, "", 1, 86400, RELOAD,
       "longest time from sending a streaming call to the first content of its answer; comments do "
       "not count; empty = no such limit. A call that was sent may have been paid for: it is tried "
       "again only where the scope's retry_unknown_outcome is true, otherwise it only fails sooner")
OPTION(source, max_in_flight, max_in_flight, COUNT, "0", 0, 100000, RELOAD,
       "exchanges in progress with this source, by all workers together; 0 = no limit. One more "
       "goes to another source of the scope, or waits a moment")
OPTION(source, model_aliases, model_aliases, LIST, "", 0, 0, RELOAD,
       "models that this source calls otherwise: ASKED=SERVED, so gpt-5=my-deployment sends "
       "my-deployment for a call that asks for gpt-5")
OPTION(source, add_headers, add_headers, LIST, "", 0, 0, RELOAD,
       "headers sent with every call to this source: NAME=VALUE. They replace those of the client; "
       "a value cannot have a comma; keys belong in api_key")

OPTION(source, rpm, rpm, COUNT, "0", 0, 10000000, RELOAD,
       "requests per minute that the upstream grants this account, for each model; 0 = not known. "
       "For scopes with flow = rate, shaping or adaptive. All sources of a quota_group share it, "
       "and all clients, also those whose own keys pass through")
OPTION(source, tpm, tpm, COUNT, "0", 0, 10000000000, RELOAD,
       "tokens per minute, in and out, that the upstream grants this account, for each model; 0 = "
       "not known. With another flow_unit so many of that unit per minute")
OPTION(source, model_limits, model_limits, LIST, "", 0, 0, RELOAD,
       "models with an rpm and tpm of their own: MODEL:RPM:TPM, so qwen-max:1200:1m; MODEL as this "
       "source calls it, or a glob; the first that fits counts, and a 0 means not known")
OPTION(
    source, limit_headers, limit_headers, CHOICE, "believe", 0, 0, RELOAD,
    "the x-ratelimit and anthropic-ratelimit headers of its answers: believe (what they tell as "
    "limit is the quota where rpm, tpm and model_limits tell none, and lowers theirs; when little "
    "remains, calls go more slowly), rely (the same, and flow = rate or shaping needs no rpm and "
    "tpm: nothing is held back until three answers told them) or ignore")
OPTION(source, max_concurrency, max_concurrency, COUNT, "0", 0, 8192, RELOAD,
       "calls or tasks in progress for each model of this account, by all its sources together; 0 "
       "= no limit. One more waits its turn. For scopes with flow = rate, shaping or adaptive")
OPTION(source, flow_unit, flow_unit, CHOICE, "tokens", 0, 0, RELOAD,
       "what tpm counts: tokens, images (pictures asked for, by n), seconds (of sound or film) or "
       "tasks")
OPTION(source, dashscope_wait_s, dashscope_wait_ms, SECONDS, "", 0, 120, RELOAD,
       "sent as X-DashScope-Wait-Timeout, unless the client sends one: so long DashScope may keep "
       "a call that its burst limit would refuse, and all time-outs up to the first byte grow by "
       "it; 0 = it refuses at once. Whole seconds; only for dialect = dashscope")

/* ---- [scope NAME]: sources that can stand in for each other ---------------------------------- */
OPTION(scope, sources, sources, LIST, "", 0, 0, RELOAD,
       "the names of its sources, the preferred one first; NAME*WEIGHT gives one a larger share "
       "with balance = weighted, from 1 (as without) to 1000; required")
OPTION(scope, balance, balance, CHOICE, "ordered", 0, 0, RELOAD,
       "which source is tried first: ordered (the first in the list that can take the call) or "
       "weighted (drawn, by weight and by how well each has answered lately)")
OPTION(
    scope, call_deadline_s, call_deadline_ms, SECONDS, "", 1, 86400, RELOAD,
    "longest time for a call with all its attempts and waits; empty = none. A call may bring a "
    "shorter one in X-Penstock-Deadline or X-Stainless-Timeout, as seconds or with a unit (1.5, "
    "500ms, 2s); what is no time, or none up to 86400 s, is answered 400 in the first, ignored in "
    "the second")
OPTION(scope, retry_budget, retry_budget, COUNT, "2", 0, 10, RELOAD,
       "how often a call is tried again after real failures. Throttled attempts do not count: they "
       "are tried again at most 5 times, with waits of at most 60 seconds together")
OPTION(scope, stall_budget_s, stall_budget_ms, SECONDS, "", 1, 86400, RELOAD,
       "longest time that a call's attempts may spend without giving anything, together; after "
       "that no other is begun. Throttled ones do not count. Empty = twice the longest timeout_s "
       "of its sources")
OPTION(scope, backoff_base_s, backoff_base_ms, SECONDS, "500ms", 0, 60, RELOAD,
       "the wait before a call is tried again is a random part of this, the next time of twice "
       "this, and so on up to backoff_max_s; longer when the upstream asks for it")
OPTION(scope, backoff_max_s, backoff_max_ms, SECONDS, "8", 0, 600, RELOAD,
       "the longest such wait, unless the upstream asks for more")
OPTION(scope, retry_unknown_outcome, retry_unknown_outcome, BOOL, "false", 0, 0, RELOAD,
       "try a call again that was sent and then timed out or was cut before any answer. The "
       "upstream may have done it, so it may be paid for twice. Never for image calls")
OPTION(scope, hedge_after_s, hedge_after_ms, SECONDS, "", 0, 86400, RELOAD,
       "a chat call whose stream has no content, or whose answer is not complete, this long after "
       "it was sent is sent to another source as well; the first good answer wins and the other "
       "attempt is cancelled, which may be billed all the same. Empty = never. Less than "
       "call_deadline_s and than each timeout_s")
OPTION(scope, hedge_max_extra, hedge_max_extra, COUNT, "1", 1, 3, RELOAD,
       "how many such attempts may run beside the first; more than 1 has the effect of 1")
OPTION(
    scope, fallback, fallback, LIST, "", 0, 0, RELOAD,
    "where a call goes that every source of this scope has throttled, or that would wait too "
    "long for its turn in all their flows: the name of another [scope], with the model as asked, "
    "or of a model, in this scope; in order, each once. Only then, never after other failures")
OPTION(scope, breaker_failures, breaker_failures, COUNT, "5", 1, 1000, RELOAD,
       "a source that fails this often in a row gets no calls for breaker_cooldown_s, from any "
       "worker")
OPTION(scope, breaker_share_percent, breaker_share_percent, COUNT, "50", 1, 100, RELOAD,
       "the same happens to one that fails this share of its calls within 30 seconds")
OPTION(scope, breaker_share_calls, breaker_share_calls, COUNT, "20", 1, 100000, RELOAD,
       "the share is judged from this many calls on")
OPTION(scope, breaker_cooldown_s, breaker_cooldown_ms, SECONDS, "5", 1, 3600, RELOAD,
       "after this long one call is let through to try it; when that fails too, the time doubles")
OPTION(scope, breaker_cooldown_max_s, breaker_cooldown_max_ms, SECONDS, "300", 1, 86400, RELOAD,
       "the longest such time")
OPTION(scope, when_all_open, when_all_open, CHOICE, "try", 0, 0, RELOAD,
       "what happens to a call when no source may get one: try (the one that may again soonest) or "
       "refuse (503 at once)")

OPTION(scope, flow, flow, CHOICE, "none", 0, 0, RELOAD,
       "how calls are kept within what the upstream grants: none, retry (a throttled call is tried "
       "again as with none, but after random waits that grow from 1 to 60 seconds), rate (rpm of "
       "the sources is kept), shaping (rpm and tpm, evenly, with a slow start) or adaptive (the "
       "limits are learned). From rate on a call waits for its turn, and again when it is tried "
       "again")
OPTION(
    scope, flow_initial, flow_initial, COUNT, "auto", -2, 10000000, RELOAD,
    "calls that may begin at once after a start or a long pause; auto = rpm with flow = rate, so "
    "that the first minute may carry twice rpm, and 0 with shaping, where at most a fortieth of "
    "rpm "
    "counts. For rate and shaping")
OPTION(scope, flow_warmup_s, flow_warmup_ms, SECONDS, "60", 0, 3600, RELOAD,
       "the rate grows from nothing to what is configured within this time after a start or a long "
       "pause; 0 = at once. Meanwhile calls that use all of rpm wait up to half of it, those that "
       "use a part of rpm up to that part of the half. For shaping")
OPTION(scope, tpm_charge, tpm_charge, CHOICE, "predicted", 0, 0, RELOAD,
       "what a call is charged of tpm when it begins: predicted (its input and the output that "
       "calls of this model usually have) or input; what it really used is settled when it ends. "
       "For shaping and adaptive")
OPTION(scope, flow_class, flow_class, CHOICE, "normal", 0, 0, RELOAD,
       "whose turn comes sooner among calls that wait: interactive, normal or bulk. For rate, "
       "shaping and adaptive, as the options below, and for image calls that wait for a slot")
OPTION(scope, flow_class_header_max, flow_class_header_max, CHOICE, "none", 0, 0, RELOAD,
       "the highest class that a client may claim with the header X-Penstock-Class: interactive, "
       "normal, bulk, or none: the header is ignored. Has an effect where flow_class has")
OPTION(scope, flow_weights, flow_weights, LIST, "16, 4, 1", 0, 0, RELOAD,
       "shares of interactive, normal and bulk while all have calls that wait: each gets at least "
       "its own, 1 to 1000")
OPTION(
    scope, flow_max_wait_s, flow_max_wait_s, LIST, "5, 30, 120", 0, 0, RELOAD,
    "longest wait of an interactive, a normal and a bulk call, its tries together, in seconds or "
    "with a unit; then 429, or at once when the wait would be longer")
OPTION(scope, flow_max_waiting, flow_max_waiting, COUNT, "1000", 1, 8192, RELOAD,
       "calls that may wait for one account and model, of each class; one more is answered 429 at "
       "once, and so is one for which no thread is left but those of reserve_percent")
OPTION(
    scope, flow_max_waiting_per_client, flow_max_waiting_per_client, COUNT, "0", 0, 8192, RELOAD,
    "those of one client among them, told apart by the key that it sends, without one by its "
    "address; 0 = no limit of its own. Clients that share a key share the limit, and nobody here "
    "looks whether a key is good")
OPTION(scope, flow_include_usage, flow_include_usage, BOOL, "true", 0, 0, RELOAD,
       "ask the upstream for the usage of a chat stream whose client did not, and take the answer "
       "out of the stream again. For shaping and adaptive")
OPTION(
    scope, flow_drain_s, flow_drain_ms, SECONDS, "5", 0, 60, RELOAD,
    "a stream whose client has left is read on for at most this long, to learn what it used, when "
    "it is nearly over: it has said why it ends, more than 80 % of its max_tokens have come, or "
    "the rest will probably come within this time; any other is closed at once. 0 = each is. Not "
    "for image calls. For shaping and adaptive")

/* ---- [route NAME]: which calls go where ------------------------------------------------------ */
OPTION(
    route, path, path, STRING, "/v1/", 0, 0, RELOAD,
    "calls whose path is this, or lies below it when it ends in /; the longest matching route wins")
OPTION(route, scope, scope, STRING, "", 0, 0, RELOAD,
       "the name of the scope that its calls go to; this or source is required")
OPTION(route, source, source, STRING, "", 0, 0, RELOAD,
       "the name of a single source instead: its answers pass as they are, and nothing is tried "
       "twice")
OPTION(
    route, kind, kind, CHOICE, "auto", 0, 0, RELOAD,
    "what its calls are: auto (told by path and body), chat, responses, embedding, image, ocr or "
    "other")
OPTION(route, strip_prefix, strip_prefix, STRING, "", 0, 0, RELOAD,
       "taken off the front of the path before it is appended to base_url")
