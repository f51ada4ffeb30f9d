// hedge.mjs - P8: two upstreams of which 5 % of the calls take ten times as long; with and without hedging.
import { direct, havePenstock, penstock } from './chains.mjs';
import { chatUrl } from './chat.mjs';
import { interleave, measure, pause, Upstream } from './measure.mjs';
import { medianOf, number, over } from './report.mjs';

const usualMs = 50, hangShare = 0.05, hedgeAfterMs = 150, perSecond = 200;
const kinds = {
    documents: { keys: `delay_ms=${usualMs}`, stream: false },
    streams: { keys: `prelude_ms=${usualMs},events=3`, stream: true },
};
const body = ({ keys, stream }) => JSON.stringify({
    model: `mock:${keys},hang_share=${hangShare},size=64`,
    stream,
    messages: [{ role: 'user', content: 'hi' }],
});

const scope = (second, hedging) => ({
    penstock: { threads: 256 },
    source: { timeout_s: 60 },
    route: 'scope = pair',
    more: `[source second]
base_url = ${second.url}
timeout_s = 60
[scope pair]
sources = simulated, second
balance = weighted
${hedging ? `hedge_after_s = ${hedgeAfterMs}ms` : ''}
`,
});

// Each race has left two rows: a winner and a loser that was cancelled and keeps its estimate.
function races(chain) {
    return chain.ledger(`SELECT count(*) AS losers, coalesce(sum(NOT EXISTS (SELECT 1 FROM attempts AS winner
        WHERE winner.logical_call_id = loser.logical_call_id AND winner.error IS NULL)), 0) AS alone,
        coalesce(sum(kept_est = 0), 0) AS settled FROM attempts AS loser WHERE error = 'hedge_cancelled'`)[0];
}

async function run(bench, chain, second, kind, requests) {
    const { place } = bench;
    await second.reset();
    const result = await measure(chain, place.upstream, ['-u', chatUrl, '-m', 'rate', '-r', perSecond, '-c', 256,
        '-n', requests, '-b', body(kind)]);
    const other = await second.stats();
    const calls = result.stats.requests + other.requests;
    // The share of the calls that took longer than the threshold is the share that the upstreams let hang.
    return { ...result, hung: (result.stats.hung + other.hung) / calls, extra: calls / requests - 1 };
}

export async function hedgeTables(bench) {
    if (!havePenstock) return;
    const { place, report, quick } = bench;
    const rounds = quick ? 1 : 3;
    const second = new Upstream();
    await second.start(place.directory);
    const off = penstock(place, 'nginx', { name: 'hedging off', ...scope(second, false) });
    const on = penstock(place, 'nginx', { name: 'hedging on', ...scope(second, true) });
    const list = [Object.assign(direct(place), { rounds: 1 }), off, on];
    const requests = perSecond * (quick ? 4 : 6);
    try {
        for (const chain of list) await chain.start();
        for (const [name, kind] of Object.entries(kinds)) {
            const records = await interleave(list, rounds, (chain) => run(bench, chain, second, kind, requests));
            report.keep(`P8-${name}`, records);
            report.table(`P8 ${name}: ${perSecond} a second, ${usualMs} ms each, ${hangShare * 100} % of them ten times that; hedge after ${hedgeAfterMs} ms (${medianOf(records)})`,
                ['chain', 'p50 ms', 'p90 ms', 'p99 ms', '% that hung', 'more upstream calls %', 'failed', 'CPU s per 10,000', 'other load %'],
                Object.entries(records).map(([which, runs]) => [which,
                    ...['p50', 'p90', 'p99'].map((p) => number(over(runs, (r) => r.latency_ms[p]), 1)),
                    number(over(runs, (r) => r.hung * 100), 1), number(over(runs, (r) => r.extra * 100), 1),
                    runs.reduce((n, r) => n + r.bad, 0), number(over(runs, (r) => r.cpuPer10k)),
                    number(over(runs, (r) => r.otherLoad), 0)]));
            const ours = records[on.name];
            if (!ours) continue;
            report.judge('P8', `${name}: p99, of hedge_after + p50`,
                over(ours, (r) => r.latency_ms.p99 / (hedgeAfterMs + r.latency_ms.p50)), '≤', 1.3);
            report.judge('P8', `${name}: more upstream calls, % over the share above the threshold`,
                over(ours, (r) => (r.extra - r.hung) * 100), '≤', 1);
            report.judge('P8', `${name}: failed`, ours.reduce((n, r) => n + r.bad, 0), '=', 0, 0);
        }
        await pause(500);
        const { losers, alone, settled } = races(on);
        report.judge('P8', 'races in the ledger', losers, '≥', 1, 0);
        report.judge('P8', 'losers without a winner of the same call', alone, '=', 0, 0);
        report.judge('P8', 'losers whose estimate was not kept', settled, '=', 0, 0);
    } finally {
        for (const chain of list) await chain.stop();
        await second.stop();
    }
}
