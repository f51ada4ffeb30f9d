// bench.mjs - the tables of docs/performance.md. Called by run.sh; ONLY, QUICK and ROUNDS are described there.
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { root } from '../front/stage/servers.mjs';
import { bodyTables } from './bodies.mjs';
import { haveGateway, havePenstock } from './chains.mjs';
import { chatTables, ledgerTables } from './chat.mjs';
import { growthTables } from './growth.mjs';
import { hedgeTables } from './hedge.mjs';
import { imageTables } from './images.mjs';
import { build, Upstream } from './measure.mjs';
import { Report } from './report.mjs';
import { intentTables } from './intent.mjs';
import { streamTables } from './streams.mjs';

const tables = [
    [['P1', 'P2'], chatTables],
    [['P3'], streamTables],
    [['P4'], bodyTables],
    [['P5', 'P6'], imageTables],
    [['P7'], ledgerTables],
    [['P8'], hedgeTables],
    [['P9'], intentTables],
    [['P10'], growthTables],
];

function ask(...command) {
    try {
        return execFileSync(command[0], command.slice(1), { encoding: 'utf8', cwd: root, stdio: ['ignore', 'pipe', 'pipe'] }).trim();
    } catch (error) {
        return String(error.stderr ?? '').trim();
    }
}

function introduce(report, wanted) {
    const cpu = /model name\s*:\s*(.*)/.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? 'unknown CPU';
    const first = (text, pattern) => pattern.exec(text)?.[1] ?? '?';
    report.print(`Command: \`${process.env.BENCH_COMMAND ?? 'make bench'}\`; ${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC; ` +
        `commit ${ask('git', 'rev-parse', '--short', 'HEAD')}${ask('git', 'status', '--porcelain', 'base', 'shared', 'worker') ? ' with changes' : ''}; ${[...wanted].join(' ')}.`);
    report.print(`${os.cpus().length} × ${cpu}, Linux ${os.release().split('-')[0]}, load before: ${os.loadavg()[0].toFixed(2)}. ` +
        `nginx ${first(ask('sh', '-c', '/usr/sbin/nginx -v 2>&1'), /nginx\/([\d.]+)/)}, ` +
        `HAProxy ${first(ask('/usr/sbin/haproxy', '-v'), /version ([\d.]+)/)}, ` +
        `Apache ${first(ask('/usr/sbin/apache2', '-v'), /Apache\/([\d.]+)/)}, ` +
        `Caddy ${first(ask('/usr/bin/caddy', 'version'), /v?([\d.]+)/)}, Node ${process.versions.node}` +
        `${haveGateway ? ', Portkey 1.15.2' : ' (Portkey is not installed: make bench-deps)'}.`);
    if (!havePenstock) report.print('penstockd is not built: peers and floor only.');
}

const quick = Boolean(process.env.QUICK);
const only = (process.env.ONLY ?? '').split(/[ ,]+/).filter(Boolean);
const wanted = new Set(tables.flatMap(([ids]) => ids).filter((id) => only.length === 0 || only.includes(id)));
const directory = mkdtempSync(path.join(os.tmpdir(), 'penstock-bench-'));
chmodSync(directory, 0o755);
const upstream = new Upstream();
const report = new Report(path.join(build, 'bench-results'));
const bench = { place: { directory, upstream }, report, quick, rounds: Number(process.env.ROUNDS ?? (quick ? 1 : 5)) };
let fine = true;
const begun = performance.now();

process.on('exit', () => {
    if (!process.env.KEEP) rmSync(directory, { recursive: true, force: true });
});
try {
    await upstream.start(directory);
    introduce(report, wanted);
    for (const [ids, show] of tables)
        if (ids.some((id) => wanted.has(id)))
            try {
                await show(bench, wanted);
            } catch (error) {
                fine = false;
                report.print(`\n${ids.join(', ')} did not come to its end: ${error.message}`);
            }
    fine = report.summary() && fine;
    report.print(`\nTook ${((performance.now() - begun) / 60000).toFixed(1)} minutes.`);
} finally {
    await upstream.stop();
}
if (process.env.MUST_HOLD && !fine) process.exit(1);
