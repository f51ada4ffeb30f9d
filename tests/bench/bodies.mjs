// bodies.mjs - P4: 8 MB of image JSON down, 10 MB of form up, four at a time; the gate is on, the request's
// intent is read and the pictures of the answers are counted.
import { direct, floor, gateway, haveGateway, havePenstock, penstock, server } from './chains.mjs';
import { interleave, measure } from './measure.mjs';
import { medianOf, number, over, ratio } from './report.mjs';

function chains({ place, quick }) {
    const list = [direct(place), server(place, 'nginx')];
    if (!quick) list.push(...['haproxy', 'apache', 'caddy'].map((name) => Object.assign(server(place, name), { rounds: 3 })));
    if (!quick && haveGateway) list.push(Object.assign(gateway(place), { rounds: 3 }));
    list.push(floor(place, 'nginx'));
    if (havePenstock) list.push(penstock(place, 'nginx'));
    return list;
}

const inFlight = 4;
const prompt = JSON.stringify({ model: 'mock:size=8388608,chunked=1', prompt: 'a cat' });
export const down = (count) => ['-u', '/v1/images/generations', '-c', inFlight, '-n', count, '-b', prompt];
export const up = (count) => ['-u', '/v1/images/edits', '-c', inFlight, '-n', count, '-F', 10485760, '-M', 'mock:size=1000'];

const ownGrowthMb = (r) => (r.ownPssPeakKb - r.ownPssBeforeKb) / 1024 / inFlight;

async function table(bench, key, title, bytes, args) {
    const { report, rounds, place, quick } = bench;
    const perGb = (r) => (r.cpu / bytes(r)) * 1e9;
    const records = await interleave(chains(bench), rounds, async (chain) => {
        await measure(chain, place.upstream, args(4));
        return measure(chain, place.upstream, args(chain.slow ? 8 : quick ? 40 : 80), { sampleMs: 40, every: true });
    }, { fresh: true });
    report.keep(key, records);
    report.table(`${title}; a fresh start each time (${medianOf(records)})`,
        ['chain', 'MB/s', 'p50 ms', 'CPU s per GB', '/ floor', 'own PSS growth, MB per call in flight', 'failed', 'other load %'],
        Object.entries(records).map(([name, runs]) => [name,
            number(over(runs, (r) => bytes(r) / r.seconds / 1e6), 0), number(over(runs, (r) => r.latency_ms.p50), 1),
            number(over(runs, perGb)), number(ratio(runs, records['floor+nginx'], perGb)),
            /floor|Penstock/.test(name) ? number(over(runs, ownGrowthMb)) : '–',
            runs.reduce((n, r) => n + r.bad, 0), number(over(runs, (r) => r.otherLoad), 0)]));
    const ours = records['Penstock+nginx'];
    if (!ours) return;
    report.judge('P4', `${key}: CPU per GB, of floor+nginx`, ratio(ours, records['floor+nginx'], perGb), '≤', 1);
    report.judge('P4', `${key}: own PSS growth, MB per call`, over(ours, ownGrowthMb), '≤', 2);
}

export async function bodyTables(bench) {
    await table(bench, 'P4-down', 'P4: 8 MB image JSON down, 4 connections', (r) => r.received_bytes, down);
    await table(bench, 'P4-up', 'P4: 10 MB multipart up, 4 connections', (r) => r.sent_bytes, up);
}
