// flow.mjs - each strategy of flow control (F1) against the same upstream and the same calls; see flow.sh.
// Three programs share a fast clock: the simulated upstream, penstockd and flow_client (fast_clock.c).
import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { freePort, startProcess, stopProcess, untilListening } from '../front/stage/servers.mjs';
import { build } from './measure.mjs';
import { judge } from './flow_judge.mjs';
import { plot } from './flow_plot.mjs';
import { bins, mean, percentile, sum, throttled, variation } from './flow_figures.mjs';
import { median, number } from './report.mjs';

const smoke = Boolean(process.env.SMOKE);
const seconds = Number(process.env.SECONDS_EACH ?? (smoke ? 16 : 600));
const speed = Number(process.env.SPEED ?? 6);
const list = (name, usual) => (process.env[name] ?? usual).split(',');
const usual = ['none', 'retry', 'rate', 'shaping', 'adaptive'];
const strategies = list('STRATEGIES', usual.join());
const loadNames = list('LOADS', smoke ? 'mixed' : 'low,mixed,high,shift');
const variants = list('VARIANTS', smoke ? 'free' : 'free,counted');
const [firstSeed, lastSeed] = (process.env.SEEDS ?? '1-1').split('-').map(Number);
const binSeconds = smoke ? 2 : 10;
const patienceSeconds = smoke ? 20 : 120;

// What the account is granted, and how the upstream keeps it: research 8.1.
const rpm = 600, tpm = 400_000, capacity = 60;
const limits = {
    on: 1, rpm, tpm, rps_factor: 2, tps_factor: 4, burst_floor: 20, burst_gain: 3, shared_above: capacity,
    refused_above: 150, first_ms: 300, input_us: 100, output_us: 20000, tokens_per_event: 10, dialect: 'compatible',
};

// How much of SECONDS_EACH; calls a second, the share of long ones, how much of the run; what changes, and when.
const loads = {
    low: { part: 0.5, phases: [[1, 0, 1]] },
    mixed: { part: 0.75, phases: [[6, 0.1, 1]] },
    high: { part: 0.75, phases: [[20, 0, 1]] },
    idle: { part: 1, phases: [[8, 0, 1 / 3], [0, 0, 1 / 5], [8, 0, 7 / 15]] },
    shift: {
        part: 1,
        phases: [[12, 0, 1]],
        changes: [
            { at: 5 / 12, set: { tpm: tpm / 2, shared_above: 25 } },
            { at: 7 / 10, set: { tpm, shared_above: capacity } },
        ],
    },
};

const lengthOf = (load) => Math.round(seconds * loads[load].part);

const told = (share) => `rpm = ${rpm * share}\ntpm = ${tpm * share}\nmax_concurrency = ${capacity}\n`;
const toldWhat = {
    none: '', retry: '', rate: `rpm = ${rpm}\nmax_concurrency = ${capacity}\n`, shaping: told(1), adaptive: '',
    'shaping-97': told(0.97), 'shaping-93': told(0.93),
};
// What adaptive is compared with: the best of what somebody could have chosen who knows the limits.
const chosen = ['shaping-97', 'shaping-93'];
const strategiesOf = (load) =>
    (!smoke && ['mixed', 'high'].includes(load) && strategies.includes('adaptive') ? [...strategies, ...chosen] : strategies);

// ---- one run -----------------------------------------------------------------------------------------
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const library = path.join(build, 'bench/fast_clock.so');
const fast = { FAST_CLOCK: String(speed), LD_PRELOAD: library };
const run = promisify(execFile);

class Stage {
    constructor(directory, strategy) {
        Object.assign(this, { directory, strategy, gate: `flow-${process.pid}-${++Stage.made}` });
    }

    static made = 0;

    async start() {
        this.port = await freePort();
        this.upstream = startProcess('upstream', this.directory,
            [path.join(build, 'tools/simulated_upstream'), '-p', String(this.port), '-q', '-d', 'skip_sha'], { env: fast });
        await untilListening(this.upstream, { host: '127.0.0.1', port: this.port });
        this.socket = path.join(this.directory, 'penstock.sock');
        const file = path.join(this.directory, 'penstock.conf');
        for (const name of ['state', 'run']) mkdirSync(path.join(this.directory, name), { recursive: true });
        writeFileSync(file, this.configuration());
        const env = Object.fromEntries(Object.keys(process.env)
            .filter((key) => /^PENSTOCK_/.test(key)).map((key) => [key, undefined]));
        this.daemon = startProcess('penstockd', this.directory, [path.join(build, 'penstockd'), '-F', '-c', file],
            { env: { ...env, ...fast } });
        // The status socket comes a little later, from the master.
        for (const socket of [this.socket, path.join(this.directory, 'status.sock')])
            await untilListening(this.daemon, { path: socket });
        const status = JSON.parse(execFileSync(path.join(build, 'penstockctl'), ['-c', file, '--json', 'status'], { encoding: 'utf8' }));
        this.semaphore = status.segment.semaphore_id;
    }

    configuration() {
        return `[penstock]
listen = unix:${this.socket}
status_listen = unix:${path.join(this.directory, 'status.sock')}
state_directory = ${path.join(this.directory, 'state')}
runtime_directory = ${path.join(this.directory, 'run')}
log_file = ${path.join(this.directory, 'penstock.log')}
log_level = warning
workers = 2
threads = 1500
stop_timeout_s = 1
[image_concurrency]
gate = ${this.gate}
[source simulated]
base_url = http://127.0.0.1:${this.port}
dialect = dashscope
timeout_s = 120
${toldWhat[this.strategy]}
[scope account]
sources = simulated
flow = ${this.strategy.split('-')[0]}
[route all]
scope = account
`;
    }

    async ask(where, keys = {}) {
        const query = Object.entries(keys).map(([key, value]) => `${key}=${value}`).join('&');
        const answer = await (await fetch(`http://127.0.0.1:${this.port}${where}?${query}`)).json();
        if (answer.bad_key) throw new Error(`upstream: ${where}: ${answer.bad_key}`);
        return answer;
    }

    async stop() {
        await stopProcess(this.daemon);
        await stopProcess(this.upstream);
        // What outlives a daemon on purpose.
        try {
            if (this.semaphore > 0) execFileSync('ipcrm', ['-s', String(this.semaphore)], { stdio: 'ignore' });
            unlinkSync(`/dev/shm/penstock-${this.gate}`);
        } catch { /* gone already */ }
    }
}

async function measure(place, { strategy, load, variant, seed }) {
    const directory = mkdtempSync(path.join(place, `${strategy}-${load}-`));
    const stage = new Stage(directory, strategy);
    const log = path.join(directory, 'calls');
    const { phases, changes = [] } = loads[load];
    const length = lengthOf(load);
    const timers = [];
    try {
        await stage.start();
        await stage.ask('/limits/reset', { ...limits, refusals_count: variant === 'counted' ? 1 : 0 });
        for (const { at, set } of changes)
            timers.push(setTimeout(() => stage.ask('/limits', set), (at * length * 1000) / speed));
        const { stdout } = await run(path.join(build, 'bench/flow_client'), ['-s', stage.socket, '-e', String(seed), '-l', log,
            '-w', String(patienceSeconds), '-P', phases.map(([rate, share, part]) => `${rate}:${share}:${part * length}`).join(',')],
            { env: { ...process.env, ...fast } });
        const totals = await stage.ask('/limits');
        return {
            strategy, load, variant, seed, client: JSON.parse(stdout), totals,
            seconds: (await stage.ask('/limits/seconds')).slice(0, length),
            changes: changes.map(({ at }) => Math.round(at * length)),
            machine: os.loadavg()[0],
            command: process.env.BENCH_COMMAND ?? 'make bench-flow',
            calls: readCalls(log),
        };
    } finally {
        timers.forEach(clearTimeout);
        await stage.stop();
        if (!process.env.KEEP) rmSync(directory, { recursive: true, force: true });
    }
}

function readCalls(log) {
    return readFileSync(log, 'utf8').trim().split('\n').filter(Boolean).map((line) => {
        const [begun, long, tokensIn, tokensOut, status, first, end, fate] = line.split(' ');
        return { begun: +begun, long: long === '1', tokens: +tokensIn + +tokensOut, status: +status, first: +first, end: +end, fate };
    });
}

// ---- figures -----------------------------------------------------------------------------------------
// Seconds from the start of these bins to the first that has 90 % of what the second half has on average.
function converged(values) {
    const settled = mean(values.slice(Math.floor(values.length / 2)));
    const first = values.findIndex((value) => value >= 0.9 * settled);
    return first < 0 ? NaN : first * binSeconds;
}

function figures(result) {
    const { seconds: rows, calls, client } = result;
    const good = bins(rows, (row) => row.good_tokens, binSeconds);
    const steady = rows.slice(Math.min(60, Math.floor(rows.length / 4)));
    const ok = calls.filter((call) => call.fate === 'ok');
    const long = calls.filter((call) => call.long);
    const attempts = sum(rows.map((row) => row.attempts));
    const changes = result.changes.map((at) => Math.round(at / binSeconds));
    return {
        ok: (ok.length / client.offered) * 100,
        long: long.length ? (long.filter((call) => call.fate === 'ok').length / long.length) * 100 : NaN,
        refused: (client.refused / client.offered) * 100,
        late: client.late,
        broken: client.broken + client.error,
        goodput: mean(rows.map((row) => row.good_tokens)),
        throttled: throttled(rows) * 100,
        busy: (sum(rows.map((row) => row.saturated)) / attempts) * 100,
        attempts: attempts / client.offered,
        p50: percentile(ok.map((call) => call.end), 0.5) / 1000,
        p95: percentile(ok.map((call) => call.end), 0.95) / 1000,
        first95: percentile(ok.map((call) => call.first), 0.95) / 1000,
        costVariation: variation(bins(steady, (row) => row.admitted_tokens, binSeconds)),
        goodVariation: variation(bins(steady, (row) => row.good_tokens, binSeconds)),
        converged: converged(good.slice(0, changes[0])),
        again: changes.map((at, i) => converged(good.slice(at, changes[i + 1]))),
    };
}

const columns = [
    ['answered %', (f) => f.ok, 1], ['long ones %', (f) => f.long, 1], ['refused by us %', (f) => f.refused, 1],
    ['tokens/s', (f) => f.goodput, 0], ['429 %', (f) => f.throttled, 2], ['503 %', (f) => f.busy, 2],
    ['attempts per call', (f) => f.attempts, 2], ['p50 s', (f) => f.p50, 1], ['p95 s', (f) => f.p95, 1],
    ['first token p95 s', (f) => f.first95, 1], [`CV admitted/${binSeconds} s`, (f) => f.costVariation, 2],
    [`CV goodput/${binSeconds} s`, (f) => f.goodVariation, 2], ['converged s', (f) => f.converged, 0],
    ['again s', (f) => f.again, 0], ['late', (f) => f.late, 0], ['broken', (f) => f.broken, 0],
];
const cell = (runs, figure, digits) => {
    const values = runs.map(figure);
    if (!Array.isArray(values[0])) return number(median(values), digits);
    return values[0].map((_, i) => number(median(values.map((value) => value[i])), digits)).join(', ') || '–';
};

// ---- the report --------------------------------------------------------------------------------------
const variantWords = { free: 'refused calls do not count', counted: 'refused calls count towards the limits' };

function machineOf(results) {
    const loads = results.map(({ machine }) => machine);
    return `${os.cpus().length} CPUs, whose load average (ours included) was ${number(median(loads), 1)} (${number(Math.min(...loads), 1)} to ${number(Math.max(...loads), 1)}) meanwhile`;
}

const commands = (results) => [...new Set(results.map(({ command }) => command))];

// loads and variants: of what was measured, in the usual order.
function report(results, { loads: names, variants: kinds }) {
    const lines = [
        '# Flow control, measured', '',
        `By ${commands(results).map((command) => `\`${command}\``).join(', then ')} on ${machineOf(results)}; ${names.map((load) => `${load} ${lengthOf(load)} s`).join(', ')}, ${speed} times as fast as real time; ${results.length} runs, and where there were several with other calls, their median.`,
        '', `The upstream grants ${rpm} requests and ${tpm} tokens a minute, twice a 60th of the requests and four times a 60th of the tokens within any second, lets attempts grow threefold, and slows down above ${capacity} calls in flight. Calls come at random, whether others are answered or not; a client leaves after ${patienceSeconds} s. \`rate\` and \`shaping\` are told these limits, \`adaptive\` is told none. \`shaping-97\` is told 97 % of them.`,
    ];
    if (smoke) lines.push('', '**A smoke test: these figures mean nothing.**');
    else
        lines.push('', '## What was to be reached', '', ...judge(results, kinds, { rpm, tpm }));
    for (const variant of kinds)
        for (const load of names) {
            lines.push('', `## ${load}: ${variantWords[variant]}`, '',
                `| strategy | ${columns.map(([name]) => name).join(' | ')} |`, `|---|${columns.map(() => '---:').join('|')}|`);
            for (const strategy of Object.keys(toldWhat)) {
                const runs = results.filter((r) => r.variant === variant && r.load === load && r.strategy === strategy);
                if (runs.length) lines.push(`| ${strategy} | ${columns.map(([, figure, digits]) => cell(runs.map((r) => r.figures), figure, digits)).join(' | ')} |`);
            }
        }
    lines.push('', '![tokens answered per second, over time](flow-bench.svg)', '');
    return lines.join('\n');
}

const directory = path.join(build, 'bench-results/flow');
mkdirSync(directory, { recursive: true });
const place = mkdtempSync(path.join(os.tmpdir(), 'flow-bench-'));
const kept = path.join(directory, 'results.json');
const results = process.env.ADD ? JSON.parse(readFileSync(kept, 'utf8')) : [];
const isSame = (one, other) => ['strategy', 'load', 'variant', 'seed'].every((key) => one[key] === other[key]);
let failed = 0;
for (const name of loadNames) if (!loads[name]) throw new Error(`no load is called ${name}`);
try {
    for (let seed = firstSeed; seed <= (lastSeed ?? firstSeed); seed++)
        for (const variant of variants)
            for (const load of loadNames)
                for (const strategy of strategiesOf(load)) {
                    try {
                        const result = await measure(place, { strategy, load, variant, seed });
                        result.figures = figures(result);
                        delete result.calls;
                        const at = results.findIndex((other) => isSame(other, result));
                        results.splice(at < 0 ? results.length : at, at < 0 ? 0 : 1, result);
                        console.error(`${variant} ${load} ${strategy}: ${number(result.figures.goodput, 0)} tokens/s, ${number(result.figures.throttled, 1)} % throttled`);
                    } catch (error) {
                        failed++;
                        console.error(`${variant} ${load} ${strategy}: ${error.stack}`);
                    }
                    await pause(100);
                }
} finally {
    if (process.env.KEEP) console.error(`kept: ${place}`);
    else rmSync(place, { recursive: true, force: true });
}
const measured = {
    loads: Object.keys(loads).filter((load) => results.some((result) => result.load === load)),
    variants: Object.keys(variantWords).filter((variant) => results.some((result) => result.variant === variant)),
};
const text = report(results, measured);
console.log(text);
writeFileSync(kept, JSON.stringify(results));
writeFileSync(path.join(directory, 'flow-bench.md'), text);
writeFileSync(path.join(directory, 'flow-bench.svg'), plot(measured.loads.flatMap((load) => measured.variants.map((variant) => ({
    title: `${load}: ${variantWords[variant]}`,
    seconds: lengthOf(load),
    lines: usual.filter((name) => results.some(({ strategy }) => strategy === name)).map((name) => ({
        name,
        values: bins(results.find((r) => r.load === load && r.variant === variant && r.strategy === name)?.seconds ?? [], (row) => row.good_tokens, binSeconds),
    })),
})))));
process.exitCode = failed ? 1 : 0;
