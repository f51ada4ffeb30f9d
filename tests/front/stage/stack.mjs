// stack.mjs - one whole stack in a directory of its own: simulated upstream, penstockd, a real web server.
import assert from 'node:assert/strict';
import { File as NodeFile } from 'node:buffer';
import { execFileSync } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import OpenAI from 'openai';
import {
    freePort, fronts, isRoot, logOf, pause, root, startFront, startProcess, stopProcess, until, untilListening,
    webUser,
} from './servers.mjs';

// Debian 12's Node 18 has no global File, which the client wants for uploads.
globalThis.File ??= NodeFile;

const build = path.resolve(root, process.env.BUILD ?? 'build/release');
let stacks = 0;

// scope: options of a scope over two upstreams with keys of ours, instead of a route to the one.
function configuration(stack, { penstock = {}, image = {}, source = {}, scope }) {
    if (scope) source = { api_key: `@file:${stack.keyFile}`, ...source };
    const lines = (values) => Object.entries(values).map(([key, value]) => `${key} = ${value}`).join('\n');
    return `[penstock]
${lines({
    listen: `unix:${stack.socket}`,
    status_listen: `unix:${stack.statusSocket}`,
    listen_group: isRoot ? webUser : '',
    workers: 2,
    state_directory: `${stack.directory}/state`,
    runtime_directory: `${stack.directory}/run`,
    ...penstock,
})}
[image_concurrency]
${lines({ gate: stack.gate, ...image })}
[source simulated]
base_url = ${stack.upstreamUrl}
${lines(source)}
${scope ? `[source other]
base_url = ${stack.otherUrl}
${lines(source)}
[scope pair]
sources = simulated, other
${lines(scope)}
` : ''}
[route all]
path = /v1/
${scope ? 'scope = pair' : 'source = simulated'}
`;
}

class Stack {
    constructor(front, settings) {
        this.front = front;
        this.settings = settings;
        this.agent = new http.Agent({ keepAlive: true });
    }

    async start() {
        this.directory = mkdtempSync(path.join(os.tmpdir(), 'penstock-front-'));
        chmodSync(this.directory, 0o755);
        for (const name of ['state', 'run']) mkdirSync(path.join(this.directory, name));
        this.gate = `front-${process.pid}-${++stacks}`;
        this.socket = path.join(this.directory, 'penstock.sock');
        this.statusSocket = path.join(this.directory, 'status.sock');
        this.keyFile = path.join(this.directory, 'key');
        writeFileSync(this.keyFile, 'sk-of-penstock\n', { mode: 0o600 });
        this.upstreamPort = await this.startUpstream('upstream');
        this.upstreamUrl = `http://127.0.0.1:${this.upstreamPort}`;
        if (this.settings.scope) {
            this.otherPort = await this.startUpstream('other', '-n', 'other');
            this.otherUrl = `http://127.0.0.1:${this.otherPort}`;
        }
        await this.startPenstock();
        this.server = await startFront(this.front, path.join(this.directory, this.front), {
            socket: this.socket,
            statusSocket: this.statusSocket,
        });
        this.url = this.server.url;
        this.port = this.server.port;
        await until('the ledger is there', () => this.ledger('SELECT count(*) FROM waits').length === 1);
        this.semaphore = (await this.status()).segment.semaphore_id;
    }

    async startUpstream(name, ...options) {
        const port = await freePort();
        this[name] = startProcess(name, this.directory, [
            path.join(build, 'tools/simulated_upstream'), '-p', String(port), ...options,
        ]);
        await untilListening(this[name], { host: '127.0.0.1', port });
        return port;
    }

    async startPenstock() {
        const file = path.join(this.directory, 'penstock.conf');
        writeFileSync(file, configuration(this, this.settings));
        const env = Object.fromEntries(Object.keys(process.env)
            .filter((key) => /^PENSTOCK_/.test(key)).map((key) => [key, undefined]));
        this.penstock = startProcess('penstockd', this.directory, [
            path.join(build, 'penstockd'), '-F', '-c', file,
        ], { env });
        await untilListening(this.penstock, { path: this.socket });
        await untilListening(this.penstock, { path: this.statusSocket });
    }

    // Stop in the direction of the requests; then what outlives a daemon on purpose: segment, semaphore.
    async stop() {
        this.agent.destroy();
        if (this.server) await this.server.stop();
        if (this.penstock) await stopProcess(this.penstock);
        for (const upstream of [this.upstream, this.other]) if (upstream) await stopProcess(upstream);
        if (this.semaphore > 0)
            try {
                execFileSync('ipcrm', ['-s', String(this.semaphore)], { stdio: 'ignore' });
            } catch { /* gone already */ }
        try {
            unlinkSync(`/dev/shm/penstock-${this.gate}`);
        } catch { /* gone already */ }
        if (process.env.KEEP) console.error(`kept: ${this.directory}`);
        else rmSync(this.directory, { recursive: true, force: true });
    }

    // The official client, unmodified. mock: how the simulated upstream is to answer (its X-Mock header).
    client({ mock = '', headers = {}, ...options } = {}) {
        return new OpenAI({
            apiKey: 'sk-front-test',
            baseURL: `${this.url}/v1`,
            maxRetries: 0,
            timeout: 60000,
            defaultHeaders: { ...(mock && { 'X-Mock': mock }), ...headers },
            ...options,
        });
    }

    // One plain HTTP request: {status, headers, complete, body (Buffer)}, also when the answer breaks off:
    // then it is not complete. to: 'front', 'upstream' or 'other'; a body without a type is JSON.
    request({ to = 'front', method = 'GET', body, headers, mock, ...options }) {
        return new Promise((resolve, reject) => {
            const request = http.request({
                host: '127.0.0.1',
                port: { upstream: this.upstreamPort, other: this.otherPort }[to] ?? this.port,
                method,
                agent: to === 'front' ? this.agent : undefined,
                timeout: 30000,
                headers: {
                    ...(headers ?? (body === undefined ? {} : { 'content-type': 'application/json' })),
                    ...(mock && { 'x-mock': mock }),
                },
                ...options,
            }, (response) => {
                const pieces = [];
                response.on('data', (piece) => pieces.push(piece));
                response.on('error', () => {});
                response.on('close', () => resolve({
                    status: response.statusCode,
                    headers: response.headers,
                    complete: response.complete,
                    body: Buffer.concat(pieces),
                }));
            });
            request.on('timeout', () => request.destroy(new Error('no answer within 30 s')));
            request.on('error', reject);
            if (Array.isArray(body)) {
                for (const piece of body) request.write(piece);
                request.end();
            } else if (body?.[Symbol.asyncIterator]) { // pieces at their own pace
                Readable.from(body).pipe(request);
            } else {
                request.end(body);
            }
        });
    }

    async status() {
        const { status, body } = await this.request({ path: '/penstock/status?json', agent: undefined });
        if (status !== 200) throw new Error(`status page: ${status} ${body}`);
        return JSON.parse(body);
    }

    async stats(to = 'upstream') {
        return JSON.parse((await this.request({ to, path: '/stats' })).body);
    }

    // How an upstream answers from now on, whatever a call's own X-Mock adds; and its counts begin anew.
    async upstreamIs(keys, to = 'upstream') {
        const { body } = await this.request({ to, method: 'POST', path: '/defaults', headers: {}, body: keys });
        assert.equal(JSON.parse(body).defaults, keys);
        await this.request({ to, method: 'POST', path: '/stats/reset' });
    }

    async resetStats() {
        await this.request({ to: 'upstream', method: 'POST', path: '/stats/reset' });
    }

    // A source that was told to wait, or taken out of service, is in it again.
    undrain(source) {
        execFileSync(path.join(build, 'penstockctl'), ['-s', `unix:${this.statusSocket}`, 'undrain', source], { stdio: 'ignore' });
    }

    // Rows of a query against the ledger, asked as an operator would.
    ledger(query) {
        const out = execFileSync('sqlite3', [
            '-readonly', '-json', '-cmd', '.timeout 2000', path.join(this.directory, 'state/ledger.db'), query,
        ], { encoding: 'utf8' });
        return out.trim() ? JSON.parse(out) : [];
    }

    // Nothing holds a slot or waits.
    async untilIdle() {
        await until('all slots are free', async () => {
            const { slots, queue } = await this.status();
            return slots.used === 0 && queue.length === 0;
        });
    }

    // A test whose failure shows what the processes said.
    test(name, body) {
        test(name, async (t) => {
            try {
                await body(t);
            } catch (error) {
                const logs = [this.penstock, this.server?.child, this.upstream, this.other].filter(Boolean)
                    .map((child) => `--- ${child.testName}\n${logOf(child).split('\n').slice(-12).join('\n')}`);
                error.message += `\n${logs.join('\n')}`;
                throw error;
            }
        });
    }
}

// The same tests behind each web server (or those that FRONT names), each on a stack of its own.
export function behindEach(title, settings, define) {
    for (const front of fronts)
        describe(`${title}, behind ${front}`, () => {
            const stack = new Stack(front, settings);
            before(async () => {
                try {
                    await stack.start();
                } catch (error) {
                    await stack.stop();
                    throw error;
                }
            });
            after(() => stack.stop());
            define(stack, front);
        });
}

export { pause, until };

// ---- what tests read ---------------------------------------------------------------------------------
// All items of a stream with their time of arrival.
export async function collect(stream) {
    const items = [];
    for await (const item of stream) items.push({ atMs: performance.now(), item });
    return items;
}

// A measured claim: a busy machine can spoil one measurement, a buffer or a missing watch spoils all.
export async function inThreeTries(measure) {
    for (let left = 2; ; left--)
        try {
            return await measure();
        } catch (error) {
            if (left === 0) throw error;
        }
}

// Arrivals one by one: the gap between neighbours is never near zero. The upstream paused pauseMs each.
export function assertOneByOne(items, pauseMs) {
    const gaps = items.slice(1).map(({ atMs }, i) => Math.round(atMs - items[i].atMs));
    const total = items.at(-1).atMs - items[0].atMs;
    assert.ok(total > pauseMs * gaps.length * 0.7, `first and last are ${Math.round(total)} ms apart: ${gaps}`);
    for (const gap of gaps) assert.ok(gap > pauseMs * 0.3, `bunched: gaps of ${gaps} ms`);
}

export const picture = (bytes, seed = 1) => {
    const buffer = Buffer.alloc(bytes);
    for (let i = 0, x = seed; i < bytes; i++) buffer[i] = (x = (x * 1103515245 + 12345) >>> 0) >>> 16;
    return buffer;
};
