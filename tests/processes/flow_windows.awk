# flow_windows.awk - has an upstream been sent more than its quotas? From its own log (simulated_upstream -l), in
# the order of ends and then in that of sends:
#   awk -v rpm=600 -v tpm=400000 [-v any=1 -v pace=1 -v late_ms=N] -f flow_windows.awk <(sort -nk2 LOG) <(sort -n LOG)
# Looks at each window that ends with a send. All of 60 s: sends <= rpm; tokens <= tpm + what estimates of the
# window were wrong by. With any=1 also the shorter ones, against what the bucket lets through:
# quota/40 + quota * 29/30 * length / 60 s, and what a pace of so many times rpm/60 a second does; late_ms is how
# much later than others one may have arrived.
#
# A call's tokens count when it is sent. What it was charged then is not what it used, and that is known when it
# ends. So within a window more was used than was granted by at most
#   - what those are larger than their estimates that are still in flight at its end
#   - what those are smaller that were in flight at its beginning: their correction came within it
#   - what those are larger that broke off: nobody told what they used
# An estimate is wrong by a tenth of the input; of the output it is the moving mean of what ended before.
function max(a, b) { return a > b ? a : b }
function over(i) { return max(0, out[i] - least_out) + 0.1 * in_[i] }
function under(i) { return max(0, most_out - out[i]) + 0.1 * in_[i] }
# Of those in flight at the instant, in seconds, looking back from call i.
function in_flight_error(i, at, is_end,    sum) {
    for (; i > 0 && at - sent[i] <= longest + 1; i--)
        if (sent[i] <= at && ended[i] > at - (is_end ? SETTLED_S : 0)) sum += is_end ? over(i) : under(i)
    return sum + 0
}
function flag(what, i, j, had, most) {
    violations++
    if (violations <= 5) printf "violation: %s: %.0f of %.0f within %.3f s until %.3f\n", what, had, most, sent[j] - sent[i], sent[j]
}
BEGIN { SETTLED_S = 0.3; SPAN_S = 60 } # a call's end is booked here so much later than it is there
function is_told() { return $3 >= 400 || $6 == "done" }
# The bounds of what was predicted: the mean moves by a twentieth, first it is 300 and then the mean of all.
NR == FNR {
    if (NR == 1) least_out = most_out = mean = 300
    if (!is_told() || $5 == 0) next
    done++
    mean = done == 1 ? $5 : mean + ($5 - mean) / (done < 20 ? done : 20)
    least_out = mean < least_out ? mean : least_out
    most_out = max(most_out, mean)
    next
}
{
    if (FNR == 1) from = $1
    n = FNR
    sent[n] = ($1 - from) / 1e9; ended[n] = ($2 - from) / 1e9
    in_[n] = $4; out[n] = $5; told[n] = is_told()
    longest = max(longest, ended[n] - sent[n])
}
function tokens_of(i) { return in_[i] + out[i] }
function look_at_minutes(    i, j, sends, tokens, broken, most) {
    i = 1
    for (j = 1; j <= n; j++) {
        sends++; tokens += tokens_of(j)
        if (!told[j]) broken += over(j)
        for (; sent[i] <= sent[j] - SPAN_S; i++) {
            sends--; tokens -= tokens_of(i)
            if (!told[i]) broken -= over(i)
        }
        most = tpm + in_flight_error(j, sent[j], 1) + in_flight_error(i, sent[j] - SPAN_S, 0) + broken
        if (sends > sends_max) sends_max = sends
        if (tokens > tokens_max) { tokens_max = tokens; tokens_most = most }
        if (most > tpm_most) tpm_most = most
        windows += sent[j] >= SPAN_S
        near += sent[j] >= SPAN_S && (sends >= 0.95 * rpm || tokens >= 0.95 * tpm)
        if (sends > rpm) flag("sends", i, j, sends, rpm)
        if (tokens > most) flag("tokens", i, j, tokens, most)
    }
}
function look_at_any(    i, j, sends, tokens, broken, length_s, share, end_error, most) {
    for (j = 1; j <= n; j++) {
        sends = tokens = broken = 0
        end_error = in_flight_error(j, sent[j], 1)
        for (i = j; i > 0 && sent[i] > sent[j] - SPAN_S; i--) {
            sends++; tokens += tokens_of(i)
            if (!told[i]) broken += over(i)
            length_s = sent[j] - sent[i] + late_ms / 1000
            share = 1 / 40 + 29 / 30 * length_s / 60
            most = 1 + pace * rpm / 60 * length_s
            if (most > rpm * share) most = rpm * share
            any_sends = max(any_sends, sends / most)
            if (sends > most + 1e-6) flag("sends of any window", i, j, sends, most)
            any_tokens = max(any_tokens, tokens / (tpm * share))
            if (tokens <= tpm * share) continue
            most = tpm * share + max(0, tokens_of(j) - tpm / 40) + end_error + in_flight_error(i - 1, sent[i], 0) + broken
            if (tokens > most) flag("tokens of any window", i, j, tokens, most)
        }
    }
}
END {
    look_at_minutes()
    if (any) look_at_any()
    printf "sends %d, answered %d, in %.0f s\n", n, done, sent[n]
    printf "sends of a minute: at most %d of %d\n", sends_max, rpm
    printf "tokens of a minute: at most %d of %d; wrong estimates allowed for %d then, at most for %d\n", tokens_max, tpm, tokens_most - tpm, tpm_most - tpm
    if (windows) printf "minutes looked at: %d, of them within 5 %% of a quota: %d\n", windows, near
    if (any) printf "windows of any length: at most %.1f %% of the sends and %.1f %% of the tokens that may be\n", 100 * any_sends, 100 * any_tokens
    printf "violations %d\n", violations + 0
    exit violations > 0
}
