// streams.mjs - P3: a thousand slow event streams; a hundred that bring 50 events a second.
import { direct, floor, gateway, haveGateway, havePenstock, penstock, server, TlsUpstream } from './chains.mjs';
import { interleave, measure } from './measure.mjs';
import { chatUrl } from './chat.mjs';
import { difference, medianOf, number, over, ratio } from './report.mjs';

export const streamBody = (events, chunkMs) => JSON.stringify({
    model: `mock:delay_ms=50,events=${events},chunk_ms=${chunkMs},size=40,stamp`,
    stream: true,
    messages: [{ role: 'user', content: 'hi' }],
});

function chains(bench, { slow, tls }) {
    const { place, quick } = bench;
    const few = slow ? 1 : 3; // for peers that decide nothing: each run takes long
    const workers = slow ? 1020 : 120;
    const threads = slow ? 600 : 128;
    const image = { max_waiting_requests: 16 };
    const list = [direct(place), server(place, 'nginx')];
    if (!quick) list.push(...['haproxy', 'apache', 'caddy'].map((name) => Object.assign(server(place, name), { rounds: few })));
    if (!quick && haveGateway) list.push(Object.assign(gateway(place), { rounds: few }));
    list.push(floor(place, 'nginx', { workers }));
    if (havePenstock) {
        list.push(penstock(place, 'nginx', { penstock: { threads }, image }));
        if (tls)
            list.push(penstock(place, 'nginx', {
                name: 'Penstock+nginx, TLS upstream',
                penstock: { threads },
                image,
                source: { base_url: tls.url, ca_file: tls.caFile },
            }));
    }
    return list;
}

const perChunk = (r) => (r.cpu / r.chunks) * 1e6;
const ownPerStream = (streams) => (r) => (r.ownPssPeakKb - r.ownPssBeforeKb) / streams;

async function table(bench, kind, list, { streams, events, chunkMs, ramp }) {
    const { report, rounds, place } = bench;
    const records = await interleave(list, rounds, async (chain) => {
        await measure(chain, place.upstream, ['-u', chatUrl, '-c', 8, '-n', 64, '-b', streamBody(1, 0)]);
        return measure(chain, place.upstream,
            ['-u', chatUrl, '-m', 'once', '-c', streams, '-r', ramp, '-d', 90, '-b', streamBody(events, chunkMs)],
            { sampleMs: (streams / ramp) * 1000 + 800 });
    }, { fresh: true });
    const whole = (r) => Math.min(r.ok, r.done_marked);
    report.keep(`P3-${kind}`, records);
    report.table(`P3 ${kind}: ${streams} streams, ${events} events each, one every ${chunkMs} ms; a fresh start each time (${medianOf(records)})`,
        ['chain', 'complete', 'first byte p50 / p99 ms', 'added p99', 'event delay p50 / p99 ms', 'CPU µs per event', '/ floor', 'CPU ms per stream', 'PSS kB per stream', 'own PSS kB per stream', 'other load %'],
        Object.entries(records).map(([name, runs]) => [name,
            `${over(runs, whole)}/${streams}`,
            `${number(over(runs, (r) => r.first_byte_ms.p50), 1)} / ${number(over(runs, (r) => r.first_byte_ms.p99), 1)}`,
            number(difference(runs, records.direct, (r) => r.first_byte_ms.p99), 1),
            `${number(over(runs, (r) => r.chunk_delay_ms.p50))} / ${number(over(runs, (r) => r.chunk_delay_ms.p99))}`,
            number(over(runs, perChunk), 1), number(ratio(runs, records['floor+nginx'], perChunk)),
            number(over(runs, (r) => (r.cpu / streams) * 1e3)),
            number(over(runs, (r) => (r.pssPeakKb - r.pssBeforeKb) / streams), 1),
            number(over(runs, ownPerStream(streams)), 1), number(over(runs, (r) => r.otherLoad), 0)]));
    return records;
}

export async function streamTables(bench) {
    const { place, quick, report } = bench;
    const fast = await table(bench, 'fast', chains(bench, { slow: false }), {
        streams: 100, events: quick ? 50 : 125, chunkMs: 20, ramp: 200,
    });
    const tls = havePenstock && new TlsUpstream(place);
    if (tls) await tls.start();
    const slow = await table(bench, 'slow', chains(bench, { slow: true, tls }), {
        streams: 1000, events: 8, chunkMs: 500, ramp: 500,
    }).finally(() => tls && tls.stop());
    const ours = fast['Penstock+nginx'], oursSlow = slow['Penstock+nginx'];
    if (!ours || !oursSlow) return;
    const delay = (r) => r.chunk_delay_ms.p99;
    report.judge('P3', 'fast: CPU per event, of floor+nginx', ratio(ours, fast['floor+nginx'], perChunk), '≤', 0.8);
    report.judge('P3', 'slow: CPU per event, of floor+nginx', ratio(oursSlow, slow['floor+nginx'], perChunk), '≤', 0.8);
    report.judge('P3', 'own PSS, kB per stream, http', over(oursSlow, ownPerStream(1000)), '≤', 60, 1);
    if (slow['Penstock+nginx, TLS upstream'])
        report.judge('P3', 'own PSS, kB per stream, TLS', over(slow['Penstock+nginx, TLS upstream'], ownPerStream(1000)), '≤', 130, 1);
    report.judge('P3', 'slow: first byte p99 over direct, ms', difference(oursSlow, slow.direct, (r) => r.first_byte_ms.p99), '≤', 5, 1);
    report.judge('P3', 'fast: event delay p99 over nginx, ms', difference(ours, fast.nginx, delay), '≤', 2);
    report.judge('P3', 'slow: event delay p99 over nginx, ms', difference(oursSlow, slow.nginx, delay), '≤', 2);
}
