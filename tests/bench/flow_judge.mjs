// flow_judge.mjs - what the strategies are there for, as bars: which hold, and by how much others are missed.
import { bins, goodput, mean, refused, secondsUntil, throttled, variation } from './flow_figures.mjs';
import { number } from './report.mjs';

const settledSeconds = 90; // what adaptive may take to find the limits
const warmupSeconds = 60; // of shaping
const answersFlow = 20; // after a change, answers to calls begun before it still come

const steady = (run) => run.seconds.slice(warmupSeconds);
const settled = (run) => run.seconds.slice(settledSeconds);
const calmSeconds = 150; // when what was overshot while learning is over
const perTen = (run, figure) => variation(bins(steady(run), figure, 10));
const costs = (row) => row.admitted_tokens;
const answers = (row) => row.good_tokens;
const relations = { '≤': (is, bar) => is <= bar, '≥': (is, bar) => is >= bar };

// The best goodput of those that know the limits and are hardly refused, once settled.
function bestStatic(runs) {
    const fair = runs.filter((run) => /^(rate|shaping)/.test(run.strategy) && refused(settled(run)) < 0.02);
    return Math.max(...fair.map((run) => goodput(settled(run)))); // -Infinity: none
}

// One seed and variant: [what, relation, bar, measured, digits]; of what was run.
function measuredOf(runs, { rpm, tpm }) {
    const of = (load, strategy) => runs.find((run) => run.load === load && run.strategy === strategy);
    const rows = [];
    const add = (what, relation, bar, measured, digits = 2) => rows.push({ what, relation, bar, measured, digits });

    for (const load of ['high', 'mixed']) {
        const [retry, rate, shaping, adaptive] = ['retry', 'rate', 'shaping', 'adaptive'].map((name) => of(load, name));
        const best = bestStatic(runs.filter((run) => run.load === load));
        if (retry && shaping && runs[0].variant === 'counted')
            add(`${load}: goodput of retry, % of that of shaping`, '≤', 50, (100 * goodput(retry.seconds)) / goodput(shaping.seconds), 1);
        if (load === 'mixed' && rate && shaping)
            add('mixed: variation of goodput of rate, times that of shaping', '≥', 2, perTen(rate, answers) / perTen(shaping, answers));
        if (shaping) {
            const used = Math.max(mean(steady(shaping).map((row) => row.admitted)) / (rpm / 60), mean(steady(shaping).map(costs)) / (tpm / 60));
            add(`${load}: rate of shaping, % away from what is configured`, '≤', 5, Math.abs(100 * (used - 1)), 1);
            add(`${load}: variation of admitted cost of shaping`, '≤', load === 'high' ? 0.15 : 0.35, perTen(shaping, costs));
        }
        if (adaptive && Number.isFinite(best)) {
            add(`${load}: seconds of adaptive to 95 % of the best static setting`, '≤', settledSeconds, secondsUntil(adaptive.seconds, 0.95 * best, 0), 0);
            for (const from of [settledSeconds, calmSeconds])
                add(`${load}: goodput of adaptive from ${from} s on, % of the best static setting`, '≥', 95, (100 * goodput(adaptive.seconds.slice(from))) / best, 1);
        }
        if (adaptive) add(`${load}: 429 of adaptive from ${settledSeconds} s on, %`, '≤', 1, 100 * throttled(settled(adaptive)));
    }
    const moved = of('shift', 'adaptive');
    if (!moved) return rows;
    const [down, up] = moved.changes;
    const whole = bestStatic(runs.filter((run) => run.load === 'high'));
    add('shift: seconds of adaptive to 90 % of the half capacity', '≤', 120,
        secondsUntil(moved.seconds, 0.9 * (tpm / 120), down + answersFlow) + answersFlow, 0);
    if (Number.isFinite(whole)) add('shift: seconds of adaptive to 90 % of the whole again', '≤', 45, secondsUntil(moved.seconds, 0.9 * whole, up), 0);
    add(`shift: 429 of adaptive, %, from ${settledSeconds} s on and not within 60 s of a change`, '≤', 1,
        100 * throttled(moved.seconds.filter((_, at) => at >= settledSeconds && ![down, up].some((change) => at >= change && at < change + 60))));
    return rows;
}

// Lines of a table: the median over the seeds.
export function judge(results, variants, quota) {
    const lines = ['| what | bar | refusals | measured | holds |', '|---|---|---|---:|---|'];
    for (const variant of variants) {
        const seeds = [...new Set(results.map(({ seed }) => seed))]
            .map((seed) => results.filter((run) => run.variant === variant && run.seed === seed)).filter((runs) => runs.length)
            .map((runs) => measuredOf(runs, quota));
        for (const { what, relation, bar, digits } of seeds[0] ?? []) {
            const values = seeds.map((rows) => rows.find((row) => row.what === what)?.measured).filter((value) => value !== undefined);
            values.sort((a, b) => a - b);
            const value = (values[(values.length - 1) >> 1] + values[values.length >> 1]) / 2; // Infinity remains
            const holds = relations[relation](value, bar);
            lines.push(`| ${what} | ${relation} ${bar} | ${variant} | ${value === Infinity ? 'never' : number(value, digits)} | ${holds ? 'yes' : '**no**'} |`);
        }
    }
    return lines;
}
