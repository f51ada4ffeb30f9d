// intent.mjs - P9: what reading a request's intent costs, beyond receiving it.
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { existsSync } from 'node:fs';
import { build } from './measure.mjs';
import { number } from './report.mjs';

export async function intentTables({ report, rounds }) {
    const program = path.join(build, 'bench/intent_speed');
    if (!existsSync(program)) return;
    const rows = JSON.parse(execFileSync(program, [String(Math.max(5, rounds))], { encoding: 'utf8' }));
    report.keep('P9', rows);
    report.table('P9: reading the intent (median; in pieces of 64 kB as they arrive)',
        ['body', 'bytes', 'CPU ms', 'json-c tree ms', 'memory growth kB'],
        rows.map((row) => [row.name, row.bytes.toLocaleString('en'), number(row.cpu_ms, 4), row.tree_ms ? number(row.tree_ms, 4) : '–', row.growth_kb]));
    for (const row of rows.filter(({ bytes }) => bytes > 1e7)) {
        report.judge('P9', `${row.name}: CPU ms`, row.cpu_ms, '≤', row.bytes > 3e7 ? 60 : 20, 1);
        report.judge('P9', `${row.name}: memory growth, kB`, row.growth_kb, '≤', 64, 0);
    }
}
