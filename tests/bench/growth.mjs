// growth.mjs - P10: does a request cost more when there are more of them, more waiters, sources, rows?
import { floor, havePenstock, penstock } from './chains.mjs';
import { fastest } from './chat.mjs';
import { interleave, measure } from './measure.mjs';
import { median, number, over } from './report.mjs';

const cpu = (r) => r.cpuPer10k;

// sizes: [{ size, ours, floor, args }] -> one table, and how much the ratio to the floor moves from `from` up.
async function table(bench, key, title, sizes, from) {
    const { report, place } = bench;
    const rounds = bench.quick ? 1 : 3;
    const all = {}, rows = [], ratios = [];
    for (const { size, ours, peer, args, floorArgs = args } of sizes) {
        const records = await interleave([peer, ours], rounds, async (chain) => {
            const used = chain === peer ? floorArgs : args;
            await measure(chain, place.upstream, used(0.2));
            return measure(chain, place.upstream, used(1));
        }, { fresh: true });
        const mine = records[ours.name] ?? [], theirs = records[peer.name] ?? [];
        const relation = median(mine.map((r, i) => (theirs[i] ? cpu(r) / cpu(theirs[i]) : NaN)));
        all[size] = records;
        ratios.push({ size, relation });
        rows.push([size.toLocaleString('en'), number(over(mine, (r) => r.per_second), 0), number(over(mine, (r) => r.latency_ms.p50), 1),
            number(over(mine, cpu)), number(over(theirs, cpu)), number(relation), mine.reduce((n, r) => n + r.bad, 0),
            theirs.reduce((n, r) => n + r.bad, 0), number(over(mine, (r) => r.otherLoad), 0)]);
    }
    report.keep(key, all);
    report.table(`P10: ${title} (median of ${rounds})`,
        ['', 'req/s', 'p50 ms', 'CPU s per 10,000', 'floor+nginx', 'ratio', 'failed', 'floor failed', 'other load %'], rows);
    const counted = ratios.filter(({ size, relation }) => size >= from && Number.isFinite(relation)).map(({ relation }) => relation);
    if (counted.length > 1) report.judge('P10', `${key}: most / least ratio`, Math.max(...counted) / Math.min(...counted), '≤', 1.2);
}

const chat = (delayMs) => JSON.stringify({ model: `mock:size=64,delay_ms=${delayMs}`, messages: [{ role: 'user', content: 'hi' }] });
const picture = (delayMs) => JSON.stringify({ model: `mock:size=1000,delay_ms=${delayMs}`, prompt: 'a cat' });

// Always about 2,000 a second, however many are in flight.
async function inFlight(bench) {
    const sizes = (bench.quick ? [10, 100, 1000] : [10, 100, 1000, 4000]).map((size) => ({
        size,
        ours: penstock(bench.place, 'nginx', {
            penstock: size > 1000 ? { workers: 3, threads: 1500 } : { workers: 2, threads: Math.max(64, size * 0.6) },
            image: { max_waiting_requests: 16 },
        }),
        peer: floor(bench.place, 'nginx', { workers: Math.max(32, size + 32) }),
        args: (share) => ['-u', '/v1/chat/completions', '-c', size, '-n', Math.max(size * 2, 5000) * share, '-d', 30, '-b', chat(size / 2)],
    }));
    await table(bench, 'in flight', 'calls in flight, about 2,000 a second', sizes, 100);
}

// 8 slots, 10 ms each: 800 a second, whatever waits. The floor has no gate: there all are in flight.
async function waiters(bench) {
    const sizes = [10, 100, 1000].map((size) => ({
        size,
        ours: penstock(bench.place, 'nginx', {
            penstock: { workers: 2, threads: Math.max(64, Math.ceil(size * 0.75) + 16) },
            image: { max_waiting_requests: size + 8 },
        }),
        peer: floor(bench.place, 'nginx', { workers: size + 40 }),
        args: (share) => ['-u', '/v1/images/generations', '-c', size + 8, '-n', Math.max(size * 2, 1000) * share, '-d', 30, '-b', picture(10)],
        floorArgs: (share) => ['-u', '/v1/images/generations', '-c', size + 8, '-n', Math.max(size * 2, 1000) * share, '-d', 30,
            '-b', picture(Math.round((size + 8) * 1.25))],
    }));
    await table(bench, 'waiters', 'image calls waiting at 8 slots', sizes, 100);
}

function manySources(place, count) {
    let text = '';
    for (let i = 1; i < count; i++)
        text += `[source s${i}]\nbase_url = ${place.upstream.url}\n[route r${i}]\npath = /v1/s${i}/\nsource = s${i}\n`;
    return text;
}

async function sources(bench) {
    const sizes = [1, 100].map((size) => ({
        size,
        ours: penstock(bench.place, 'nginx', { more: manySources(bench.place, size) }),
        peer: floor(bench.place, 'nginx'),
        args: (share) => fastest(8000 * share),
    }));
    await table(bench, 'sources', 'sources and routes', sizes, 1);
}

// Rows as a month of calls would leave them, of today so that none is too old.
const fill = (from, to) => `PRAGMA synchronous = OFF; BEGIN;
WITH RECURSIVE n(i) AS (SELECT ${from} UNION ALL SELECT i + 1 FROM n WHERE i < ${to - 1})
INSERT INTO calls (call_id, arrived_at, kind, client, route, scope, source, endpoint, model_asked, model_served, status, outcome, stream,
    attempts, retries, hedges, hedge_won, fallback, images, pid)
SELECT printf('0fill%012d', i), strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-60 seconds'), 'chat', '', 'all', 'all', 'simulated',
    'chat/completions', 'mock', 'mock', 200, 'ok', 0, 1, 0, 0, 0, 0, 0, 1 FROM n; COMMIT;`;

async function ledgerRows(bench) {
    const { place } = bench;
    const most = Number(process.env.LEDGER_ROWS ?? (bench.quick ? 1e5 : 1e6));
    const sizes = [];
    for (let size = 1e4; size <= most; size *= 10) {
        const ours = penstock(place, 'nginx', { name: `Penstock ${size} rows`, penstock: { ledger_max: '100g' } });
        await ours.start(); // makes the ledger
        await ours.stop();
        ours.ledger(fill(0, size), { write: true });
        sizes.push({ size, ours, peer: floor(place, 'nginx'), args: (share) => fastest(8000 * share) });
    }
    await table(bench, 'ledger rows', 'rows in the ledger', sizes, 1e4);
    for (const { ours } of sizes) ours.forgetLedger();
}

export async function growthTables(bench) {
    if (!havePenstock) return;
    await inFlight(bench);
    await waiters(bench);
    await sources(bench);
    await ledgerRows(bench);
}
