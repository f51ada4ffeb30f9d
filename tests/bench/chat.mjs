// chat.mjs - P1 and P2: small chat calls, as fast as they go and 200 a second. P7: what the ledger costs.
import { direct, floor, gateway, haveGateway, havePenstock, penstock, server } from './chains.mjs';
import { interleave, measure, pause } from './measure.mjs';
import { difference, number, over, ratio } from './report.mjs';

export const chatUrl = '/v1/chat/completions';
const chat = JSON.stringify({ model: 'mock:size=64', messages: [{ role: 'user', content: 'Say hello in one short sentence.' }] });

export const fastest = (requests) => ['-u', chatUrl, '-c', 32, '-n', requests, '-b', chat];
export const steady = (rate, requests) => ['-u', chatUrl, '-m', 'rate', '-r', rate, '-c', 64, '-n', requests, '-b', chat];

function chains({ place, quick }) {
    const list = [direct(place), server(place, 'nginx'), server(place, 'haproxy')];
    if (!quick) list.push(server(place, 'apache'), server(place, 'caddy'));
    if (haveGateway) list.push(gateway(place));
    list.push(floor(place, 'nginx'));
    if (!quick) list.push(floor(place, 'apache'), floor(place, 'caddy'));
    if (havePenstock) {
        list.push(penstock(place, 'nginx'));
        if (!quick) list.push(penstock(place, 'apache'), penstock(place, 'caddy'));
    }
    return list;
}

async function withAll(list, work) {
    try {
        for (const chain of list) await chain.start();
        return await work();
    } finally {
        for (const chain of list) await chain.stop();
    }
}

const cpu = (run) => run.cpuPer10k;
const floorOf = (records, name) => records[name.replace('Penstock', 'floor')];
const showRatio = (records, name, other, figure) =>
    (name === other || !records[other] ? '–' : number(ratio(records[name], records[other], figure)));

async function p1(bench, list) {
    const { report, rounds, quick } = bench;
    const count = (chain) => (chain.slow ? 1200 : /caddy/.test(chain.name) ? 5000 : 10000) / (quick ? 2 : 1);
    const records = await interleave(list, rounds, async (chain) => {
        await measure(chain, bench.place.upstream, fastest(count(chain) / 10));
        return measure(chain, bench.place.upstream, fastest(count(chain)));
    });
    report.keep('P1', records);
    report.table(`P1: small chat, 32 keep-alive connections, closed loop (median of ${rounds})`,
        ['chain', 'req/s', 'p50 ms', 'p99 ms', 'CPU s per 10,000', 'of it own', 'CPU / floor+nginx', 'CPU / its floor', 'PSS MB', 'failed', 'other load %'],
        Object.entries(records).map(([name, runs]) => [name,
            number(over(runs, (r) => r.per_second), 0), number(over(runs, (r) => r.latency_ms.p50)),
            number(over(runs, (r) => r.latency_ms.p99)), number(over(runs, cpu)),
            number(over(runs, (r) => (r.ownCpu / r.finished) * 1e4)),
            showRatio(records, name, 'floor+nginx', cpu),
            /^Penstock/.test(name) && floorOf(records, name) ? number(ratio(runs, floorOf(records, name), cpu)) : '–',
            number(over(runs, (r) => r.pssPeakKb / 1024), 1), runs.reduce((n, r) => n + r.bad, 0),
            number(over(runs, (r) => r.otherLoad), 0)]));
    const ours = records['Penstock+nginx'];
    if (!ours) return;
    report.judge('P1', 'CPU of the chain, of floor+nginx', ratio(ours, records['floor+nginx'], cpu), '≤', 1);
    report.judge('P1', 'the same, second step', ratio(ours, records['floor+nginx'], cpu), '≤', 0.8);
    if (records.Portkey)
        report.judge('P1', "requests a second, of Portkey's", ratio(ours, records.Portkey, (r) => r.per_second), '≥', 12, 1);
}

async function p2(bench, list) {
    const { report, rounds, quick } = bench;
    const records = await interleave(list, rounds, (chain) =>
        measure(chain, bench.place.upstream, steady(200, quick ? 200 : 400)));
    const at = (percent) => (r) => r.latency_ms[percent];
    report.keep('P2', records);
    report.table(`P2: small chat, 200 a second, open loop; added = over direct in the same round (median of ${rounds})`,
        ['chain', 'p50 ms', 'p99 ms', 'added p50', 'added p90', 'added p50 over floor+nginx', 'CPU s per 10,000', 'failed', 'other load %'],
        Object.entries(records).map(([name, runs]) => [name,
            number(over(runs, at('p50')), 3), number(over(runs, at('p99'))),
            number(difference(runs, records.direct, at('p50')), 3), number(difference(runs, records.direct, at('p90')), 3),
            number(difference(runs, records['floor+nginx'], at('p50')), 3), number(over(runs, cpu)),
            runs.reduce((n, r) => n + r.bad, 0), number(over(runs, (r) => r.otherLoad), 0)]));
    const ours = records['Penstock+nginx'];
    if (ours) report.judge('P2', 'p50 over floor+nginx, ms', difference(ours, records['floor+nginx'], at('p50')), '≤', 0.1, 3);
}

export async function chatTables(bench, wanted) {
    const list = chains(bench);
    await withAll(list, async () => {
        if (wanted.has('P1')) await p1(bench, list);
        if (wanted.has('P2')) await p2(bench, list);
    });
}

// ---- P7 ----------------------------------------------------------------------------------------------
async function sustained(bench, chain) {
    const { quick, place, report } = bench;
    const seconds = quick ? 3 : 10;
    const rows = () => chain.ledger('SELECT count(*) AS n FROM calls')[0].n;
    const before = rows();
    const run = await measure(chain, place.upstream, ['-u', chatUrl, '-m', 'rate', '-r', 2000, '-c', 256, '-n', 2000 * seconds, '-b', chat]);
    const end = performance.now();
    let now = rows();
    while (now < before + run.finished && performance.now() - end < 10000) {
        await pause(100);
        now = rows();
    }
    const lost = before + run.finished - now;
    report.keep('P7-sustained', { run, lost });
    report.table(`P7: 2,000 calls a second for ${seconds} s, ledger on`,
        ['calls', 'a second', 'p50 ms', 'p99 ms', 'failed', 'rows lost', 'integrity_check', 'CPU s per 10,000', 'other load %'],
        [[run.finished, number(run.per_second, 0), number(run.latency_ms.p50), number(run.latency_ms.p99), run.bad, lost,
            chain.ledger('PRAGMA integrity_check')[0].integrity_check, number(run.cpuPer10k), number(run.otherLoad, 0)]]);
    report.judge('P7', 'rows lost at 2,000 calls/s', lost, '=', 0, 0);
    report.judge('P7', 'calls a second it kept up', run.per_second, '≥', 1900, 0);
}

export async function ledgerTables(bench) {
    if (!havePenstock) return;
    const { place, rounds, quick, report } = bench;
    const on = penstock(place, 'nginx', { name: 'ledger on' });
    const off = penstock(place, 'nginx', { name: 'ledger off', penstock: { ledger: false } });
    await withAll([on, off], async () => {
        await sustained(bench, on);
        // Alternately, and more often than elsewhere: the difference is small.
        const times = quick ? rounds : rounds + 2;
        const p1 = await interleave([on, off], times, (chain) => measure(chain, place.upstream, fastest(quick ? 4000 : 10000)));
        const p2 = await interleave([on, off], times, (chain) => measure(chain, place.upstream, steady(200, 300)));
        const name = 'ledger off';
        const p50 = (r) => r.latency_ms.p50, perSecond = (r) => r.per_second;
        report.keep('P7', { p1, p2 });
        report.table(`P7: P1 and P2 with and without ledger (median of ${times})`,
            ['', 'P1 CPU s per 10,000', 'P1 req/s', 'P2 p50 ms', 'P2 CPU s per 10,000'],
            [on.name, off.name].map((which) => [which, number(over(p1[which], cpu)), number(over(p1[which], perSecond), 0),
                number(over(p2[which], p50), 3), number(over(p2[which], cpu))]).concat([['on / off',
                number(ratio(p1[on.name], p1[name], cpu), 3), number(ratio(p1[on.name], p1[name], perSecond), 3),
                number(ratio(p2[on.name], p2[name], p50), 3), number(ratio(p2[on.name], p2[name], cpu), 3)]]));
        report.judge('P7', 'P1 CPU, ledger on / off', ratio(p1[on.name], p1[name], cpu), '≤', 1.05, 3);
        report.judge('P7', 'P2 p50, ledger on / off', ratio(p2[on.name], p2[name], p50), '≤', 1.05, 3);
    });
}
