// compare.mjs - the loads of P1 to P4 on two Penstocks behind nginx: this build beside an older one, or flow
// control beside none; see compare.sh. What is printed is the second over the first.
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { down, up } from './bodies.mjs';
import { penstock } from './chains.mjs';
import { chatUrl, fastest, steady } from './chat.mjs';
import { build, interleave, measure, Upstream } from './measure.mjs';
import { median, number, over, quantile, Report } from './report.mjs';
import { streamBody } from './streams.mjs';

const bound = 1.03;
const rounds = Number(process.env.ROUNDS ?? 9);
const only = (process.env.ONLY ?? '').split(/[ ,]+/).filter(Boolean);

// So many calls that each run costs about a second of CPU; P2's rate is what it is about, and P3's pace.
const figures = {
    'CPU of the chain, µs a call': (r) => (r.cpu / r.finished) * 1e6,
    'own CPU, µs a call': (r) => (r.ownCpu / r.finished) * 1e6,
};
const streams = { threads: 128 };
// Where both stay up, a round is short and there are more of them: what other guests of the machine do
// changes from second to second.
const slices = 5;
const loads = [
    { id: 'P1', what: 'small chat, closed loop', slices, warm: fastest(500), args: fastest(20000 / slices), figures },
    {
        id: 'P2', what: 'small chat, 200 a second', slices, warm: steady(200, 20), args: steady(200, 1000 / slices),
        figures: { 'p50, ms': (r) => r.latency_ms.p50, ...figures },
    },
    {
        id: 'P3', what: '100 streams of 250 events', fresh: true, penstock: streams,
        warm: ['-u', chatUrl, '-c', 8, '-n', 64, '-b', streamBody(1, 0)],
        args: ['-u', chatUrl, '-m', 'once', '-c', 100, '-r', 200, '-d', 90, '-b', streamBody(250, 20)], figures,
    },
    { id: 'P4-down', what: '8 MB of image JSON', fresh: true, warm: down(4), args: down(120), figures },
    { id: 'P4-up', what: 'forms of 10 MB', fresh: true, warm: up(4), args: up(120), figures },
].filter(({ id }) => only.length === 0 || only.includes(id.slice(0, 2)));

// ---- the two -----------------------------------------------------------------------------------------
// Only options that an old build has.
const builds = (before) => [
    { name: 'before', program: path.join(before, 'penstockd') },
    { name: 'now' },
];

const scope = (flow) => ({ route: 'scope = account', more: `[scope account]\nsources = simulated\n${flow}\n` });

// The largest quotas there are: what is measured is the counting. Only shaping's pace shows: 6 µs from call to
// call; about one of P1's in thirteen comes sooner and waits. rate has no pace, and counts no tokens.
const strategies = {
    rate: { source: { rpm: 10_000_000 }, more: '' },
    shaping: { source: { rpm: 10_000_000, tpm: 10_000_000_000 }, more: 'flow_warmup_s = 0' },
};
const flows = (strategy) => [
    { name: 'flow = none', ...scope('flow = none') },
    {
        name: `flow = ${strategy}`, source: strategies[strategy].source,
        ...scope(`flow = ${strategy}\nflow_initial = 10000000\n${strategies[strategy].more}`),
    },
];

function commitOf(directory) {
    try {
        return execFileSync('git', ['-C', directory, 'rev-parse', '--short', 'HEAD'],
            { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
    } catch {
        return '?';
    }
}

// ---- one load ----------------------------------------------------------------------------------------
// Each round is first, second, second, first: what drifts evenly is in both.
async function run(place, sides, load) {
    const [first, second] = sides.map((side) =>
        penstock(place, 'nginx', { ...side, penstock: load.penstock, image: { max_waiting_requests: 16 } }));
    const order = [first, second, second, first];
    const work = async (chain) => {
        await measure(chain, place.upstream, load.warm);
        return measure(chain, place.upstream, load.args);
    };
    try {
        if (!load.fresh) for (const chain of [first, second]) await chain.start();
        const count = rounds * (load.slices ?? 1);
        const records = await interleave(order, count, work, { fresh: load.fresh });
        for (const { name } of [first, second])
            if (records[name]?.length !== 2 * count) throw new Error(`${load.id}: ${name} did not do all rounds`);
        return records;
    } finally {
        if (!load.fresh) for (const chain of [first, second]) await chain.stop();
    }
}

// The mean of the two runs of each round.
const byRound = (runs, figure) =>
    Array.from({ length: runs.length / 2 }, (_, i) => (figure(runs[2 * i]) + figure(runs[2 * i + 1])) / 2);

function row(load, name, figure, [first, second]) {
    const a = byRound(first, figure), b = byRound(second, figure);
    const ratios = b.map((value, i) => value / a[i]);
    const at = (share) => quantile(ratios, share);
    return {
        ratio: median(ratios),
        cells: [`${load.id} ${load.what}`, name, number(median(a), 3), number(median(b), 3),
            number(median(b) / median(a), 3), number(at(0.5), 3), `${number(at(0.25), 3)} to ${number(at(0.75), 3)}`,
            [...first, ...second].reduce((n, r) => n + r.bad, 0), number(over([...first, ...second], (r) => r.otherLoad), 0)],
    };
}

function show(report, sides, results) {
    const rows = [];
    for (const { load, records } of results)
        for (const [name, figure] of Object.entries(load.figures)) {
            const one = row(load, name, figure, sides.map((side) => records[side.name]));
            rows.push(one.cells);
            report.judge(load.id, name.replace(/,.*/, ''), one.ratio, '≤', bound, 3);
        }
    report.table(`${sides[1].name} over ${sides[0].name}: ${rounds} rounds of first, second, second, first`,
        ['load', 'figure', sides[0].name, sides[1].name, 'ratio of medians', 'median of ratios', 'quartiles', 'failed', 'other load %'], rows);
    for (const { load, records } of results)
        report.judge(load.id, 'failed', Object.values(records).flat().reduce((n, r) => n + r.bad, 0), '=', 0, 0);
}

// ---- all of it ---------------------------------------------------------------------------------------
const before = process.env.BEFORE && path.resolve(process.env.BEFORE);
if (before && !existsSync(path.join(before, 'penstockd'))) throw new Error(`BEFORE: there is no ${before}/penstockd`);
const strategy = process.env.FLOW === '1' ? 'shaping' : process.env.FLOW;
if (!before && !strategies[strategy]) throw new Error(`FLOW: ${strategy} is not 1, rate or shaping`);
const sides = before ? builds(before) : flows(strategy);
const directory = mkdtempSync(path.join(os.tmpdir(), 'penstock-bench-'));
chmodSync(directory, 0o755);
process.on('exit', () => {
    if (!process.env.KEEP) rmSync(directory, { recursive: true, force: true });
});
const upstream = new Upstream();
const report = new Report(path.join(build, 'bench-results/compare'));
try {
    await upstream.start(directory);
    report.print(`Command: \`${process.env.BENCH_COMMAND}\`; ${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC; ` +
        `commit ${commitOf('.')}${before ? `, before: ${commitOf(before)}` : ''}; load before: ${os.loadavg()[0].toFixed(2)}.`);
    const results = [];
    for (const load of loads) {
        results.push({ load, records: await run({ directory, upstream }, sides, load) });
        report.keep(load.id, results.at(-1).records);
    }
    show(report, sides, results);
    if (!report.summary()) process.exitCode = 1;
} finally {
    await upstream.stop();
}
