// servers.mjs - starts the real web servers with the example configurations of conf/, as they are: only
// the sockets and the site's name are replaced by the test's own.
import { spawn } from 'node:child_process';
import { existsSync, openSync, closeSync, readFileSync, writeFileSync, copyFileSync, mkdirSync, chmodSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');
export const isRoot = process.getuid() === 0;
export const webUser = 'www-data';

// ---- processes ---------------------------------------------------------------------------------------
const running = new Set();

// Whatever ends this process, what it started ends too: by the exit handler, or, when we are killed, by
// the kernel (setpriv --pdeathsig). With SIGTERM, which a master passes on to its children.
process.on('exit', () => {
    for (const child of running) child.kill('SIGTERM');
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
    process.on(signal, () => process.exit(1));

export function startProcess(name, directory, command, { env = {} } = {}) {
    const log = path.join(directory, `${name}.log`);
    const fd = openSync(log, 'a');
    const guard = existsSync('/usr/bin/setpriv') ? ['/usr/bin/setpriv', '--pdeathsig', 'TERM', '--'] : [];
    const [program, ...args] = [...guard, ...command];
    const child = spawn(program, args, {
        cwd: directory,
        env: { ...process.env, ...env },
        stdio: ['ignore', fd, fd],
        detached: true, // a process group of its own, so that stragglers can be ended with it
    });
    closeSync(fd);
    child.testName = name;
    child.testLog = log;
    child.ended = new Promise((resolve) => {
        child.once('error', resolve);
        child.once('exit', resolve);
    });
    running.add(child);
    child.ended.then(() => running.delete(child));
    return child;
}

export async function stopProcess(child, { signal = 'SIGTERM', patienceMs = 5000 } = {}) {
    if (!running.has(child)) return;
    child.kill(signal);
    const timer = setTimeout(() => process.kill(-child.pid, 'SIGKILL'), patienceMs);
    await child.ended;
    clearTimeout(timer);
}

export function logOf(child) {
    try {
        return readFileSync(child.testLog, 'utf8').slice(-4000);
    } catch {
        return '';
    }
}

// ---- waiting for conditions --------------------------------------------------------------------------
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Ask until the answer is truthy; the answer, or an error that says what was waited for.
export async function until(what, ask, { timeoutMs = 10000, everyMs = 10 } = {}) {
    const end = performance.now() + timeoutMs;
    let last;
    for (;;) {
        try {
            last = await ask();
            if (last) return last;
        } catch (error) {
            last = error;
        }
        if (performance.now() > end) {
            const seen = last instanceof Error ? last.message : JSON.stringify(last);
            throw new Error(`not within ${timeoutMs} ms: ${what} (last: ${seen})`);
        }
        await pause(everyMs);
    }
}

export function canConnect(where) {
    return new Promise((resolve) => {
        const socket = net.connect(where);
        socket.once('connect', () => {
            socket.destroy();
            resolve(true);
        });
        socket.once('error', () => resolve(false));
    });
}

export async function untilListening(child, where) {
    await until(`${child.testName} listens`, async () => {
        if (!running.has(child)) throw new Error(`${child.testName} ended:\n${logOf(child)}`);
        return canConnect(where);
    }).catch((error) => {
        throw new Error(`${error.message}\n${logOf(child)}`);
    });
}

export function freePort() {
    return new Promise((resolve, reject) => {
        const server = net.createServer();
        server.once('error', reject);
        server.listen(0, '127.0.0.1', () => {
            const { port } = server.address();
            server.close(() => resolve(port));
        });
    });
}

// ---- the three servers -------------------------------------------------------------------------------
// Copy of an example with other sockets; everything else stays. Fails when the example no longer has
// what is to be replaced.
function example(name, directory, replacements) {
    let content = readFileSync(path.join(root, 'conf', name), 'utf8');
    for (const [from, to] of replacements) {
        if (!content.includes(from)) throw new Error(`conf/${name} does not contain ${from}`);
        content = content.replaceAll(from, to);
    }
    const copy = path.join(directory, `example.${name}`);
    writeFileSync(copy, content);
    return copy;
}

function socketReplacements({ socket, statusSocket }) {
    return [
        ['/run/penstock/penstock.sock', socket],
        ['/run/penstock/status.sock', statusSocket],
    ];
}

function apacheCommand({ directory, port, ...sockets }) {
    const include = example('apache.conf', directory, socketReplacements(sockets));
    const modules = ['mpm_event', 'authz_core', 'authz_host', 'env', 'headers', 'reqtimeout', 'proxy', 'proxy_fcgi'];
    const main = path.join(directory, 'apache.main.conf');
    writeFileSync(main, `
ServerRoot "${directory}"
DefaultRuntimeDir "${directory}"
PidFile "${directory}/apache.pid"
ErrorLog "${directory}/apache.error.log"
LogLevel warn
ServerName localhost
Listen 127.0.0.1:${port}
${modules.map((m) => `LoadModule ${m}_module /usr/lib/apache2/modules/mod_${m}.so`).join('\n')}
${isRoot ? `User ${webUser}\nGroup ${webUser}` : ''}
ServerLimit 1
StartServers 1
ThreadsPerChild 64
MaxRequestWorkers 64
<VirtualHost 127.0.0.1:${port}>
    Include "${include}"
</VirtualHost>
`);
    return { command: ['/usr/sbin/apache2', '-DFOREGROUND', '-f', main] };
}

function nginxCommand({ directory, port, ...sockets }) {
    const include = example('nginx.conf', directory, socketReplacements(sockets));
    const main = path.join(directory, 'nginx.main.conf');
    copyFileSync('/etc/nginx/fastcgi_params', path.join(directory, 'fastcgi_params'));
    writeFileSync(main, `
daemon off;
${isRoot ? `user ${webUser};` : ''}
worker_processes 1;
pid ${directory}/nginx.pid;
error_log ${directory}/nginx.error.log warn;
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path ${directory}/nginx.body;
    proxy_temp_path ${directory}/nginx.proxy;
    fastcgi_temp_path ${directory}/nginx.fastcgi;
    uwsgi_temp_path ${directory}/nginx.uwsgi;
    scgi_temp_path ${directory}/nginx.scgi;
    server {
        listen 127.0.0.1:${port};
        include ${include};
    }
}
`);
    return { command: ['/usr/sbin/nginx', '-p', directory, '-e', `${directory}/nginx.error.log`, '-c', main] };
}

function caddyCommand({ directory, port, ...sockets }) {
    const include = example('Caddyfile', directory, [
        ...socketReplacements(sockets),
        ['llm.example.org', `http://127.0.0.1:${port}`],
    ]);
    const main = path.join(directory, 'Caddyfile');
    writeFileSync(main, `{
	admin off
	auto_https off
	log {
		level WARN
	}
}
import ${include}
`);
    return {
        command: ['/usr/bin/caddy', 'run', '--adapter', 'caddyfile', '--config', main],
        env: { HOME: directory, XDG_DATA_HOME: directory, XDG_CONFIG_HOME: directory },
    };
}

const commands = { apache: apacheCommand, caddy: caddyCommand, nginx: nginxCommand };

// All three, or those named in FRONT (apache,caddy,nginx).
export const fronts = (process.env.FRONT ?? 'apache,caddy,nginx').split(',');

// Start one; at = {socket, statusSocket}: where Penstock listens. Its own files lie in directory.
export async function startFront(name, directory, at) {
    const port = await freePort();
    mkdirSync(directory, { recursive: true });
    chmodSync(directory, 0o755);
    const { command, env } = commands[name]({ directory, port, ...at });
    const child = startProcess(name, directory, command, { env });
    await untilListening(child, { host: '127.0.0.1', port });
    return { name, port, url: `http://127.0.0.1:${port}`, child, stop: () => stopProcess(child) };
}
