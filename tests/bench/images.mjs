// images.mjs - P5 and P6: eight slots, two hundred clients at once, 200 ms of work; then every second
// client leaves after half a second. Beside HAProxy's queue.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { havePenstock, penstock, server } from './chains.mjs';
import { interleave, measure, pause } from './measure.mjs';
import { median, number, over, ratio } from './report.mjs';

const clients = 200, slots = 8, workS = 0.2;
const idealS = Math.ceil(clients / slots) * workS;
const prompt = JSON.stringify({ model: 'mock:delay_ms=200,size=1000', prompt: 'a cat' });

// Times are CLOCK_MONOTONIC of this host, also in the upstream's records and in the ledger.
function readLog(file) {
    return readFileSync(file, 'utf8').trim().split('\n').map((line) => {
        const [index, planned, , end, status, why] = line.split(' ');
        return { index: Number(index), plannedNs: Number(planned), endNs: Number(end), status: Number(status), why };
    });
}

// Rows that were granted after one that arrived later: by sequence numbers, never by time.
function outOfOrder(rows) {
    let latest = 0, count = 0;
    for (const { grant_seq: grant } of rows) {
        if (grant < latest) count++;
        latest = Math.max(latest, grant);
    }
    return count;
}

// From each release to the grant it made possible: the k-th release serves the (slots + k)-th grant.
function handOvers(rows) {
    const grants = rows.map((row) => row.granted_ns).sort((a, b) => a - b);
    const releases = rows.map((row) => row.released_ns).filter((ns) => ns != null).sort((a, b) => a - b);
    return grants.slice(slots).map((granted, k) => (granted - releases[k]) / 1e6);
}

async function fromLedger(chain) {
    await pause(400);
    const rows = chain.ledger(
        'SELECT arrival_seq, grant_seq, granted_ns, released_ns FROM waits WHERE grant_seq IS NOT NULL ORDER BY arrival_seq');
    const over = handOvers(rows);
    const all = chain.ledger('SELECT count(*) AS n FROM waits')[0].n;
    return { granted: rows.length, rows: all, outOfOrder: outOfOrder(rows), handOverMs: median(over), handOverMaxMs: Math.max(...over) };
}

// Served clients that were overtaken by one that came later, as the clients see it (0.1 s apart at least).
function overtakenPercent(served) {
    const inOrder = [...served].sort((a, b) => a.plannedNs - b.plannedNs);
    let pairs = 0, overtaken = 0;
    for (let i = 0; i < inOrder.length; i++)
        for (let j = i + 1; j < inOrder.length; j++) {
            pairs++;
            if (inOrder[j].endNs < inOrder[i].endNs - 1e8) overtaken++;
        }
    return (overtaken / pairs) * 100;
}

async function storm(bench, chain, leave) {
    const { place } = bench;
    const log = path.join(place.directory, 'clients.log');
    chain.forgetLedger?.();
    await chain.start();
    const run = await measure(chain, place.upstream, ['-u', '/v1/images/generations', '-m', 'once', '-c', clients, '-r', 0,
        ...(leave ? ['-L', '2,500'] : []), '-w', 60, '-d', 60, '-l', log, '-b', prompt]);
    await pause(leave ? 500 : 100);
    const stats = await place.upstream.stats(1000);
    const lines = readLog(log);
    const served = lines.filter((line) => line.status === 200 && line.why === 'ok');
    const begun = Math.min(...lines.map((line) => line.plannedNs));
    const gone = new Map(lines.filter((line) => line.why === 'left').map((line) => [line.index, line.endNs]));
    // A client that had left long before its call reached the upstream.
    const ghosts = stats.last.filter((call) => gone.has(Number(call.call)) && call.begun_ns - gone.get(Number(call.call)) >= 250e6);
    const ledger = chain.ledger ? await fromLedger(chain) : {};
    return {
        ...run,
        served: served.length,
        left: gone.size,
        makespan: (Math.max(...served.map((line) => line.endNs)) - begun) / 1e9,
        reached: stats.images,
        openMax: stats.images_open_max,
        ghosts: ghosts.length,
        overtaken: overtakenPercent(served),
        ledger,
    };
}

function chains({ place }) {
    const list = [server(place, 'haproxy', 'limit8', 'HAProxy maxconn 8, abortonclose')];
    if (havePenstock)
        list.push(...['nginx', 'caddy', 'apache'].map((front) => penstock(place, front, {
            penstock: { workers: 4 },
            image: { max_concurrent_requests: slots, max_waiting_requests: clients },
        })));
    return list;
}

const stopAfter = (chain) => async (work) => {
    try {
        return await work();
    } finally {
        await chain.stop();
    }
};

async function tableP5(bench, list, rounds) {
    const { report } = bench;
    const records = await interleave(list, rounds, (chain) => stopAfter(chain)(() => storm(bench, chain, false)));
    report.keep('P5', records);
    report.table(`P5: ${slots} slots, ${clients} clients at once, ${workS * 1000} ms of work; ideal ${idealS.toFixed(1)} s (median of ${rounds})`,
        ['chain', 'served', 'makespan s', '/ ideal', 'most at once', 'out of order by seq', 'overtaken pairs %', 'hand-over median ms', 'CPU s', 'other load %'],
        Object.entries(records).map(([name, runs]) => [name, over(runs, (r) => r.served),
            number(over(runs, (r) => r.makespan), 3), number(over(runs, (r) => r.makespan / idealS), 3),
            Math.max(...runs.map((r) => r.openMax)),
            runs[0].ledger.rows ? Math.max(...runs.map((r) => r.ledger.outOfOrder)) : '–',
            number(over(runs, (r) => r.overtaken), 1), number(over(runs, (r) => r.ledger.handOverMs), 3),
            number(over(runs, (r) => r.cpu)), number(over(runs, (r) => r.otherLoad), 0)]));
    const ours = records['Penstock+nginx'], peer = records[list[0].name];
    if (!ours || !peer) return;
    const all = Object.entries(records).filter(([name]) => /^Penstock/.test(name)).flatMap(([, runs]) => runs);
    report.judge('P5', "makespan, of HAProxy's", ratio(ours, peer, (r) => r.makespan), '≤', 1.01, 4);
    report.judge('P5', 'most at the upstream at once', Math.max(...all.map((r) => r.openMax)), '=', slots, 0);
    report.judge('P5', 'grants out of order', Math.max(...all.map((r) => r.ledger.outOfOrder)), '=', 0, 0);
    report.judge('P5', 'served', Math.min(...all.map((r) => r.served)), '=', clients, 0);
    report.judge('P5', 'hand-over, median ms', over(ours, (r) => r.ledger.handOverMs), '≤', 1, 3);
}

async function tableP6(bench, list, rounds) {
    const { report } = bench;
    const records = await interleave(list, rounds, (chain) => stopAfter(chain)(() => storm(bench, chain, true)));
    report.keep('P6', records);
    report.table(`P6: as P5, every second client leaves after 0.5 s (median of ${rounds})`,
        ['chain', 'served', 'left', 'makespan s', 'reached the upstream', 'of them after leaving (250 ms)', 'most at once', 'CPU s', 'other load %'],
        Object.entries(records).map(([name, runs]) => [name, over(runs, (r) => r.served), over(runs, (r) => r.left),
            number(over(runs, (r) => r.makespan), 3), over(runs, (r) => r.reached), Math.max(...runs.map((r) => r.ghosts)),
            Math.max(...runs.map((r) => r.openMax)), number(over(runs, (r) => r.cpu)),
            number(over(runs, (r) => r.otherLoad), 0)]));
    const ours = records['Penstock+nginx'], peer = records[list[0].name];
    if (!ours || !peer) return;
    report.judge('P6', "makespan, of HAProxy abortonclose's", ratio(ours, peer, (r) => r.makespan), '≤', 1, 4);
    report.judge('P6', 'reached the upstream after leaving', Math.max(...ours.map((r) => r.ghosts)), '=', 0, 0);
    report.judge('P6', 'most at the upstream at once', Math.max(...ours.map((r) => r.openMax)), '=', slots, 0);
}

export async function imageTables(bench, wanted) {
    const rounds = bench.quick ? bench.rounds : Math.max(5, bench.rounds);
    const list = chains(bench);
    for (const chain of list) if (/caddy|apache/.test(chain.name)) chain.rounds = 1; // only whether the limit holds there too
    if (wanted.has('P5')) await tableP5(bench, list, rounds);
    if (wanted.has('P6')) await tableP6(bench, list, rounds);
}
