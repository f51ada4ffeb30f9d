// report.mjs - medians, tables, and what was to be reached.
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';

// Between two values, in proportion.
export function quantile(values, share) {
    const sorted = values.filter((value) => Number.isFinite(value)).sort((a, b) => a - b);
    if (sorted.length === 0) return NaN;
    const at = (sorted.length - 1) * share, below = Math.floor(at);
    return sorted[below] + (at - below) * (sorted[Math.ceil(at)] - sorted[below]);
}

export const median = (values) => quantile(values, 0.5);

export const number = (value, digits = 2) => (Number.isFinite(value) ? value.toFixed(digits) : '–');

// Everything that is printed goes to a file as well; raw figures beside it.
export class Report {
    constructor(directory) {
        mkdirSync(directory, { recursive: true });
        this.file = path.join(directory, 'report.md');
        this.rawFile = path.join(directory, 'results.json');
        writeFileSync(this.file, '');
        this.raw = {};
        this.verdicts = [];
    }

    print(text = '') {
        console.log(text);
        appendFileSync(this.file, `${text}\n`);
    }

    table(title, columns, rows) {
        this.print(`\n### ${title}\n`);
        this.print(`| ${columns.join(' | ')} |`);
        this.print(`|${columns.map((_, i) => (i ? '---:' : '---')).join('|')}|`);
        for (const row of rows) this.print(`| ${row.join(' | ')} |`);
    }

    // rounds: { chain: [one record a round] }
    keep(key, rounds) {
        this.raw[key] = rounds;
        writeFileSync(this.rawFile, JSON.stringify(this.raw));
    }

    // Is what was measured within its bound? relation: '≤', '≥' or '='.
    judge(id, what, measured, relation, bound, digits = 2) {
        const fine = relation === '≤' ? measured <= bound : relation === '≥' ? measured >= bound : measured === bound;
        this.verdicts.push({ id, what, measured: number(measured, digits), bar: `${relation} ${bound}`, fine });
    }

    summary() {
        if (this.verdicts.length === 0) return true;
        this.table('Measured against what was to be reached', ['what', 'measured', 'bar', 'holds'],
            this.verdicts.map((v) => [`${v.id} ${v.what}`, v.measured, v.bar, v.fine ? 'yes' : '**no**']));
        return this.verdicts.every((v) => v.fine);
    }
}

// "median of 5", and what else there was.
export function medianOf(records) {
    const counts = Object.values(records).map((runs) => runs.length);
    const most = Math.max(...counts), least = Math.min(...counts);
    return `median of ${most}${least < most ? `; of ${least} for peers that decide nothing` : ''}`;
}

// Median over rounds of a figure; of a ratio or a difference to another chain in the same round.
export const over = (rounds, figure) => median(rounds.map(figure));
export const ratio = (rounds, others, figure) =>
    median(rounds.map((round, i) => (others?.[i] ? figure(round) / figure(others[i]) : NaN)));
export const difference = (rounds, others, figure) =>
    median(rounds.map((round, i) => (others?.[i] ? figure(round) - figure(others[i]) : NaN)));
