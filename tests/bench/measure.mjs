// measure.mjs - what a chain of processes costs while the load client works on it.
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { freePort, pause, root, startProcess, stopProcess, untilListening } from '../front/stage/servers.mjs';

export const build = path.resolve(root, process.env.BUILD ?? 'build/release');
export { pause };

function read(file) {
    try {
        return readFileSync(file, 'latin1');
    } catch {
        return '';
    }
}

const statOf = (pid) => {
    const stat = read(`/proc/${pid}/stat`);
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
};

// The processes and all that descend from them.
function family(roots) {
    const children = new Map();
    for (const entry of readdirSync('/proc')) {
        if (!/^\d+$/.test(entry)) continue;
        const parent = Number(statOf(entry)[1]);
        if (!children.has(parent)) children.set(parent, []);
        children.get(parent).push(Number(entry));
    }
    const found = new Set();
    const waiting = [...roots];
    while (waiting.length > 0) {
        const pid = waiting.pop();
        if (found.has(pid)) continue;
        found.add(pid);
        waiting.push(...(children.get(pid) ?? []));
    }
    return [...found];
}

// schedstat counts nanoseconds of the threads that live, stat counts ticks of 10 ms of all that lived: a
// pool of a thousand with 1 ms each shows nothing there. So the larger of both, process by process.
function cpuSeconds(pids) {
    let sum = 0;
    for (const pid of pids) {
        const stat = statOf(pid);
        if (stat.length < 14) continue;
        let tasks = [];
        try {
            tasks = readdirSync(`/proc/${pid}/task`);
        } catch { /* it ended */ }
        const ns = tasks.reduce((all, task) =>
            all + Number(read(`/proc/${pid}/task/${task}/schedstat`).split(' ')[0] || 0), 0);
        sum += Math.max((Number(stat[11]) + Number(stat[12])) / 100, ns / 1e9);
        sum += (Number(stat[13]) + Number(stat[14])) / 100;
    }
    return sum;
}

// Proportional set size: shared pages are counted once.
function pssKb(pids) {
    return pids.reduce((sum, pid) =>
        sum + Number(/^Pss:\s+(\d+)/m.exec(read(`/proc/${pid}/smaps_rollup`))?.[1] ?? 0), 0);
}

function machineSeconds() {
    const fields = read('/proc/stat').split('\n')[0].trim().split(/\s+/).slice(1).map(Number);
    return (fields[0] + fields[1] + fields[2] + fields[5] + fields[6] + fields[7]) / 100;
}

// ---- the upstream ------------------------------------------------------------------------------------
export class Upstream {
    async start(directory) {
        this.port = await freePort();
        this.url = `http://127.0.0.1:${this.port}`;
        this.child = startProcess('upstream', directory, [
            path.join(build, 'tools/simulated_upstream'), '-p', String(this.port), '-q', '-d', 'skip_sha',
        ]);
        await untilListening(this.child, { host: '127.0.0.1', port: this.port });
    }

    stop() {
        return stopProcess(this.child);
    }

    ask(method, where) {
        return new Promise((resolve, reject) => {
            http.request({ host: '127.0.0.1', port: this.port, path: where, method, agent: false }, (response) => {
                let text = '';
                response.on('data', (piece) => (text += piece)).on('end', () => resolve(JSON.parse(text)));
            }).on('error', reject).end();
        });
    }

    stats(last = 0) {
        return this.ask('GET', `/stats?last=${last}`);
    }

    reset() {
        return this.ask('POST', '/stats/reset');
    }
}

// ---- one run -----------------------------------------------------------------------------------------
function runClient(args) {
    return new Promise((resolve, reject) => {
        const client = spawn(path.join(build, 'bench/load_client'), args.map(String), { stdio: ['ignore', 'pipe', 'inherit'] });
        let text = '';
        client.stdout.on('data', (piece) => (text += piece));
        client.once('error', reject);
        client.once('close', () => {
            try {
                resolve(JSON.parse(text));
            } catch {
                reject(new Error(`load_client ${args.join(' ')}: ${text}`));
            }
        });
    });
}

const okCount = (run) => run.status['200'] ?? 0;

// args: load_client's, without the port. sampleMs: when, after the start, memory is looked at (repeated
// every so often with every: true).
export async function measure(chain, upstream, args, { sampleMs = 0, every = false } = {}) {
    await upstream.reset();
    const all = family(chain.pids), own = family(chain.ownPids);
    const before = { cpu: cpuSeconds(all), ownCpu: cpuSeconds(own), pss: pssKb(all), ownPss: pssKb(own), machine: machineSeconds() };
    const peak = { pss: before.pss, ownPss: before.ownPss };
    const look = () => {
        peak.pss = Math.max(peak.pss, pssKb(family(chain.pids)));
        peak.ownPss = Math.max(peak.ownPss, pssKb(family(chain.ownPids)));
    };
    const timer = sampleMs > 0 && (every ? setInterval : setTimeout)(look, sampleMs);
    const begun = performance.now();
    const headers = ['Authorization: Bearer bench', ...(chain.headers ?? [])].flatMap((h) => ['-H', h]);
    const run = await runClient(['-p', chain.port, ...args, ...headers]);
    const seconds = (performance.now() - begun) / 1000;
    if (timer) clearTimeout(timer);
    const now = family(chain.pids);
    const cpu = cpuSeconds(now) - before.cpu;
    const ownCpu = cpuSeconds(family(chain.ownPids)) - before.ownCpu;
    const machine = machineSeconds() - before.machine;
    const stats = await upstream.stats();
    const others = machine - cpu - run.cpu_seconds - stats.cpu_us / 1e6;
    return {
        ...run,
        ok: okCount(run),
        bad: run.finished + run.unfinished - okCount(run),
        cpu,
        ownCpu,
        cpuPer10k: (cpu / run.finished) * 1e4,
        pssBeforeKb: before.pss,
        pssPeakKb: peak.pss,
        ownPssBeforeKb: before.ownPss,
        ownPssPeakKb: peak.ownPss,
        stats,
        otherLoad: Math.max(0, (others / seconds / 2) * 100),
    };
}

// The same work on each chain, interleaved, round after round: { name: [records] }.
export async function interleave(chains, rounds, work, { fresh = false } = {}) {
    const records = {};
    for (let round = 0; round < rounds; round++)
        for (const chain of chains) {
            if (chain.rounds && round >= chain.rounds) continue;
            try {
                if (fresh) await chain.start();
                (records[chain.name] ??= []).push(await work(chain, round));
            } catch (error) {
                console.error(`${chain.name}: ${error.message}`);
            }
            if (fresh) await chain.stop();
            await pause(100);
        }
    return records;
}
