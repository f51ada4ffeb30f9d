// chains.mjs - what is measured: a chain is one or two programs between the client and the upstream. Each
// is started and stopped as a whole, in a directory of its own.
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { freePort, isRoot, pause, startProcess, stopProcess, untilListening } from '../front/stage/servers.mjs';
import { apache, caddy, haproxy, nginx } from './fronts.mjs';
import { build } from './measure.mjs';

const servers = { nginx, apache, caddy, haproxy };
const gatewayProgram = new URL('portkey/node_modules/@portkey-ai/gateway/build/start-server.js', import.meta.url).pathname;
export const haveGateway = existsSync(gatewayProgram);

class Chain {
    constructor(place, name) {
        this.place = place; // { directory, upstream }
        this.name = name;
        this.children = [];
        this.ownChildren = [];
        this.directory = path.join(place.directory, name.replace(/\W+/g, '_'));
    }

    get pids() {
        return this.children.map((child) => child.pid);
    }

    // Of what stands between front server and upstream.
    get ownPids() {
        return this.ownChildren.map((child) => child.pid);
    }

    async start() {
        mkdirSync(this.directory, { recursive: true });
        chmodSync(this.directory, 0o755);
        this.port = await freePort();
        await this.startAll();
        await pause(this.slow ? 1500 : 300);
    }

    async startAll() {}

    async stop() {
        for (const child of [...this.children].reverse()) await stopProcess(child);
        this.children = [];
        this.ownChildren = [];
    }

    run(name, { command, env }) {
        const child = startProcess(name, this.directory, command, { env });
        this.children.push(child);
        return child;
    }

    async runServer(server, kind, more = {}) {
        const at = { directory: this.directory, port: this.port, upstreamPort: this.place.upstream.port, ...more };
        const child = this.run(server, servers[server](kind, at));
        await untilListening(child, { host: '127.0.0.1', port: this.port });
    }
}

class Direct extends Chain {
    async start() {
        this.port = this.place.upstream.port;
    }
}

class Server extends Chain {
    constructor(place, server, kind = 'plain', name = server) {
        super(place, name);
        Object.assign(this, { server, kind });
    }

    startAll() {
        return this.runServer(this.server, this.kind);
    }
}

class Gateway extends Chain {
    constructor(place) {
        super(place, 'Portkey');
        this.slow = true;
        this.headers = ['x-portkey-provider: openai', `x-portkey-custom-host: ${place.upstream.url}/v1`];
    }

    async startAll() {
        const child = this.run('portkey', {
            command: [process.execPath, gatewayProgram, '--headless', `--port=${this.port}`],
            env: { NODE_ENV: 'production', TRUSTED_CUSTOM_HOSTS: '127.0.0.1,localhost' },
        });
        await untilListening(child, { host: '127.0.0.1', port: this.port });
    }
}

class Floor extends Chain {
    constructor(place, server, { workers = 32 } = {}) {
        super(place, `floor+${server}`);
        Object.assign(this, { server, workers });
    }

    async startAll() {
        const socket = path.join(this.directory, 'floor.sock');
        const child = this.run('floor', {
            command: [path.join(build, 'bench/floor_relay'), socket, String(this.workers), String(this.place.upstream.port)],
        });
        this.ownChildren.push(child);
        await untilListening(child, { path: socket });
        await this.runServer(this.server, 'floor', { socket });
    }
}

// Everything is on, as an operator would have it: own key, gate, ledger, one log line a call. program: the
// penstockd of another build.
class Penstock extends Chain {
    constructor(place, server, {
        name = `Penstock+${server}`, program = path.join(build, 'penstockd'),
        penstock = {}, image = {}, source = {}, route = 'source = simulated', more = '',
    } = {}) {
        super(place, name);
        Object.assign(this, { server, program, penstock, image, source, route, more, gate: `bench-${process.pid}-${++Penstock.made}` });
    }

    static made = 0;

    configuration() {
        const lines = (values) => Object.entries(values).map(([key, value]) => `${key} = ${value}`).join('\n');
        writeFileSync(path.join(this.directory, 'key'), 'bench-upstream-key\n', { mode: 0o600 });
        return `[penstock]
${lines({
    listen: `unix:${this.socket}`,
    status_listen: `unix:${this.statusSocket}`,
    listen_mode: '0666',
    state_directory: path.join(this.directory, 'state'),
    runtime_directory: path.join(this.directory, 'run'),
    log_file: path.join(this.directory, 'penstock.log'),
    ...this.penstock,
})}
[image_concurrency]
${lines({
    enabled: true,
    gate: this.gate,
    max_concurrent_requests: 8,
    overflow_mode: 'wait',
    wait_timeout_seconds: 120,
    ...this.image,
})}
[source simulated]
${lines({ base_url: this.place.upstream.url, api_key: `@file:${path.join(this.directory, 'key')}`, ...this.source })}
[route all]
path = /v1/
${this.route}
${this.more}`;
    }

    async startAll() {
        this.socket = path.join(this.directory, 'penstock.sock');
        this.statusSocket = path.join(this.directory, 'status.sock');
        for (const name of ['state', 'run']) mkdirSync(path.join(this.directory, name), { recursive: true });
        const file = path.join(this.directory, 'penstock.conf');
        writeFileSync(file, this.configuration());
        const env = Object.fromEntries(Object.keys(process.env)
            .filter((key) => /^PENSTOCK_/.test(key)).map((key) => [key, undefined]));
        const child = this.run('penstockd', { command: [this.program, '-F', '-c', file], env });
        this.ownChildren.push(child);
        await untilListening(child, { path: this.socket });
        await untilListening(child, { path: this.statusSocket });
        await this.runServer(this.server, 'penstock', { socket: this.socket, statusSocket: this.statusSocket });
        this.semaphore = (await this.status()).segment.semaphore_id;
    }

    async stop() {
        await super.stop();
        // What outlives a daemon on purpose.
        if (this.semaphore > 0)
            try {
                execFileSync('ipcrm', ['-s', String(this.semaphore)], { stdio: 'ignore' });
            } catch { /* gone already */ }
        try {
            unlinkSync(`/dev/shm/penstock-${this.gate}`);
        } catch { /* gone already */ }
    }

    status() {
        return new Promise((resolve, reject) => {
            http.get({ host: '127.0.0.1', port: this.port, path: '/penstock/status?json', agent: false }, (response) => {
                let text = '';
                response.on('data', (piece) => (text += piece)).on('end', () => {
                    try {
                        resolve(JSON.parse(text));
                    } catch {
                        reject(new Error(`status page: ${response.statusCode} ${text.slice(0, 200)}`));
                    }
                });
            }).on('error', reject);
        });
    }

    get ledgerFile() {
        return path.join(this.directory, 'state/ledger.db');
    }

    ledger(query, { write = false } = {}) {
        const out = execFileSync('sqlite3', [...(write ? [] : ['-readonly']), '-json', '-cmd', '.timeout 5000', this.ledgerFile, query],
            { encoding: 'utf8', maxBuffer: 1 << 28 });
        return out.trim() ? JSON.parse(out) : [];
    }

    forgetLedger() {
        rmSync(path.join(this.directory, 'state'), { recursive: true, force: true });
    }
}

// The upstream behind TLS, with a certificate of the moment.
export class TlsUpstream extends Chain {
    constructor(place) {
        super(place, 'tls');
    }

    async startAll() {
        this.caFile = path.join(this.directory, 'tls.pem');
        execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
            '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1',
            '-keyout', path.join(this.directory, 'tls.key'), '-out', this.caFile], { stdio: 'ignore' });
        if (isRoot) chmodSync(path.join(this.directory, 'tls.key'), 0o644);
        await this.runServer('nginx', 'tls');
        this.url = `https://localhost:${this.port}`;
    }
}

export const direct = (place) => new Direct(place, 'direct');
export const server = (place, ...rest) => new Server(place, ...rest);
export const gateway = (place) => new Gateway(place);
export const floor = (place, front, settings) => new Floor(place, front, settings);
export const penstock = (place, front, settings) => new Penstock(place, front, settings);
export const havePenstock = existsSync(path.join(build, 'penstockd'));
export const readLog = (chain) => readFileSync(path.join(chain.directory, 'penstock.log'), 'utf8');
