// edges.mjs - what the example configurations must get right: headers, sizes, paths, the status page.
import assert from 'node:assert/strict';
import net from 'node:net';
import { behindEach, pause, until } from './stage/stack.mjs';

const settings = {
    penstock: {
        max_json_body: '1m', max_multipart_body: '2m', body_read_timeout_s: 1, client_stall_timeout_seconds: 2,
    },
    image: { enabled: true, max_concurrent_requests: 2 },
};
const json = { 'content-type': 'application/json' };

// Send bytes as they are, return what comes back until the end, or until it matches.
function exchange(stack, text, enough = /^$/) {
    return new Promise((resolve, reject) => {
        const socket = net.connect({ host: '127.0.0.1', port: stack.port });
        let answer = '';
        socket.setTimeout(10000, () => socket.destroy(new Error('no answer within 10 s')));
        socket.on('data', (piece) => {
            answer += piece;
            if (enough.test(answer)) socket.destroy();
        });
        socket.on('error', reject);
        socket.on('close', () => resolve(answer));
        socket.write(text.replaceAll('\n', '\r\n'));
    });
}

behindEach('edges', settings, (stack, front) => {
    stack.test('a header with an underscore never passes for the one with a hyphen', async () => {
        for (let i = 0; i < 5; i++) {
            const { status, body } = await stack.request({
                method: 'POST', path: '/v1/chat/completions',
                headers: { ...json, 'x-mock': 'echo=1', 'X-Api-Key': 'real', X_Api_Key: 'forged', X_Other_Key: 'forged' },
                body: '{}',
            });
            assert.equal(status, 200);
            const { headers } = JSON.parse(body);
            assert.equal(headers['x-api-key'], 'real');
            assert.equal(headers['x-other-key'], undefined);
        }
    });

    stack.test('Proxy, cookies and what the web server adds of its own stay away from the upstream', async () => {
        const { body } = await stack.request({
            method: 'POST', path: '/v1/chat/completions', body: '{}',
            headers: { ...json, 'x-mock': 'echo=1', Proxy: 'http://attacker.invalid/', Cookie: 'site=secret' },
        });
        const { headers } = JSON.parse(body);
        for (const name of ['proxy', 'cookie', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'status'])
            assert.equal(headers[name], undefined, name);
    });

    stack.test('Status does not reach the client as a header', async () => {
        const { headers } = await stack.request({ path: '/v1/models' });
        assert.equal(headers.status, undefined);
    });

    for (const framing of ['with Content-Length', 'chunked'])
        stack.test(`413 for a body over the limit, ${framing}`, async () => {
            const big = Buffer.alloc(1500000, ' ');
            const { status, headers, body } = await stack.request({
                method: 'POST', path: '/v1/chat/completions',
                headers: framing === 'chunked' ? json : { ...json, 'content-length': big.length },
                body: framing === 'chunked' ? [big.subarray(0, 700000), big.subarray(700000)] : big,
            });
            assert.equal(status, 413);
            assert.match(headers['content-type'], /^application\/json/);
            assert.equal(JSON.parse(body).error.code, 'penstock_body_too_large');
        });

    // Caddy looks for an answer when it has sent the whole body, however long that takes.
    for (const framing of ['with Content-Length', 'chunked'])
        stack.test(`413 reaches a client whose upload takes its time, ${framing}`, async () => {
            const piece = Buffer.alloc(150000, ' ');
            async function* pieces() {
                for (let i = 0; i < 12; i++) {
                    yield piece;
                    await pause(100);
                }
            }
            const { status, body } = await stack.request({
                method: 'POST', path: '/v1/chat/completions',
                headers: framing === 'chunked' ? json : { ...json, 'content-length': 12 * piece.length },
                body: pieces(),
            });
            assert.equal(status, 413);
            assert.equal(JSON.parse(body).error.code, 'penstock_body_too_large');
            await until('every request thread is idle', async () =>
                (await stack.status()).processes.every(({ threads_busy }) => threads_busy === 0));
        });

    stack.test('413 through the official client is an error it understands, and is not retried', async () => {
        const before = (await stack.stats()).requests;
        const client = stack.client({ maxRetries: 2 });
        await assert.rejects(client.images.edit({
            model: 'gpt-image-2', prompt: 'a heron', image: new File([Buffer.alloc(2500000)], 'big.png'),
        }), { status: 413, code: 'penstock_body_too_large' });
        assert.equal((await stack.stats()).requests, before);
    });

    stack.test('a client that leaves in the middle of its upload: no call is made, nothing is held', async () => {
        const before = (await stack.stats()).requests;
        for (const framing of ['Content-Length: 500000', 'Transfer-Encoding: chunked']) {
            const socket = net.connect({ host: '127.0.0.1', port: stack.port });
            socket.on('error', () => {});
            socket.write(`POST /v1/images/edits HTTP/1.1\r\nHost: 127.0.0.1:${stack.port}\r\n${framing}\r\n` +
                'Content-Type: multipart/form-data; boundary=x\r\n\r\n' +
                `${framing.startsWith('T') ? '2710\r\n' : ''}${'x'.repeat(10000)}`);
            await pause(300);
            socket.destroy();
        }
        await until('every request thread is idle', async () =>
            (await stack.status()).processes.every(({ threads_busy }) => threads_busy === 0));
        await stack.untilIdle();
        assert.equal((await stack.stats()).requests, before);
    });

    // nginx takes the whole body before it calls, so that there a slow upload holds nothing of ours. Apache
    // and Caddy do not look for an answer before the upload is over, so the client learns of it late.
    if (front !== 'nginx')
        stack.test('M16: an upload that trickles is ended with 408, its thread is free', async () => {
            const before = (await stack.stats()).requests;
            const socket = net.connect({ host: '127.0.0.1', port: stack.port });
            socket.on('error', () => {});
            socket.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:${stack.port}\r\n` +
                'Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{');
            const trickle = setInterval(() => socket.write(' '), 100);
            try {
                await until('the call is ended', () =>
                    stack.ledger("SELECT * FROM calls WHERE status = 408 AND error_code = 'penstock_body_too_slow'")
                        .length === 1, { timeoutMs: 4000, everyMs: 50 });
                await until('every request thread is idle', async () =>
                    (await stack.status()).processes.every(({ threads_busy }) => threads_busy === 0));
            } finally {
                clearInterval(trickle);
                socket.destroy();
            }
            assert.equal((await stack.stats()).requests, before);
        });

    stack.test('G9a: a client that never reads is given up, its slot is free', async () => {
        const before = (await stack.stats()).aborted;
        const socket = net.connect({ host: '127.0.0.1', port: stack.port });
        socket.pause();
        socket.on('error', () => {});
        const body = JSON.stringify({ model: 'gpt-image-2', prompt: 'a heron' });
        socket.write(`POST /v1/images/generations HTTP/1.1\r\nHost: 127.0.0.1:${stack.port}\r\n` +
            `Content-Type: application/json\r\nX-Mock: size=60000000\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
        await until('the slot is taken', async () => (await stack.status()).slots.used === 1);
        await stack.untilIdle();
        await until('the upstream sees the close', async () => (await stack.stats()).aborted === before + 1);
        socket.destroy();
    });

    stack.test('Content-Length of answers is kept', async () => {
        const { headers, body } = await stack.request({
            method: 'POST', path: '/v1/images/generations', headers: { ...json, 'x-mock': 'size=300000' },
            body: JSON.stringify({ model: 'gpt-image-2', prompt: 'a heron' }),
        });
        assert.equal(headers['content-length'], String(body.length));
        assert.equal(headers['content-encoding'], undefined);
    });

    stack.test('a long head of an answer passes', async () => {
        const { status, headers } = await stack.request({
            path: '/v1/models', headers: { 'x-mock': 'head_bytes=7000' },
        });
        assert.equal(status, 200);
        assert.equal(headers['x-padding'].length, 7000);
    });

    stack.test('encoded slashes, empty and dot segments are refused, never routed', async () => {
        for (const path of ['/v1/images%2Fgenerations', '/v1//images/generations', '/v1/x/../images/generations',
            '/v1/images/%2e%2e/images/generations', '/v1/%00']) {
            const before = (await stack.stats()).images;
            const answer = await exchange(stack,
                `POST ${path} HTTP/1.1\nHost: 127.0.0.1:${stack.port}\nConnection: close\n` +
                'Content-Type: application/json\nContent-Length: 2\n\n{}');
            assert.match(answer, /^HTTP\/1\.1 4\d\d/, path);
            assert.equal((await stack.stats()).images, before, path);
        }
    });

    stack.test('status lines are whole: code, blank, reason (RFC 9112, 4)', async () => {
        for (const [path, mock] of [['/v1//x', ''], ['/v1/models', 'status=429'], ['/v1/models', '']]) {
            const answer = await exchange(stack,
                `GET ${path} HTTP/1.1\nHost: 127.0.0.1:${stack.port}\nConnection: close\nX-Mock: ${mock}\n\n`);
            assert.match(answer, /^HTTP\/1\.1 \d\d\d \w+/, `${path} ${mock}: ${answer.slice(0, 40)}`);
        }
    });

    stack.test('Expect: 100-continue and HTTP/1.0', async () => {
        const continued = await exchange(stack,
            `POST /v1/chat/completions HTTP/1.1\nHost: 127.0.0.1:${stack.port}\nConnection: close\n` +
            'Expect: 100-continue\nContent-Type: application/json\nContent-Length: 2\n\n{}');
        assert.match(continued, /HTTP\/1\.1 200 /);
        const old = await exchange(stack,
            'POST /v1/chat/completions HTTP/1.0\nContent-Type: application/json\nContent-Length: 2\n\n{}');
        assert.match(old, /^HTTP\/1\.[01] 200 /);
    });

    stack.test('O8: the status page is for this machine only', async () => {
        const allowed = await stack.request({ path: '/penstock/status' });
        assert.equal(allowed.status, 200);
        assert.match(allowed.headers['content-type'], /^text\/plain/);
        assert.equal((await stack.request({ path: '/penstock/ping' })).status, 200);
        assert.equal((await stack.request({ path: '/penstock/metrics' })).status, 200);
        // Another loopback address stands for another machine.
        for (const path of ['/penstock/status', '/penstock/metrics', '/penstock/'])
            assert.equal((await stack.request({ path, localAddress: '127.0.0.2', agent: undefined })).status, 403);
        // Calls do not depend on it.
        assert.equal((await stack.request({ path: '/v1/models', localAddress: '127.0.0.2', agent: undefined })).status, 200);
    });

    stack.test('status is not served where calls are', async () => {
        const { status } = await stack.request({ path: '/v1/../penstock/status' });
        assert.notEqual(status, 500);
        assert.ok([200, 400, 403, 404].includes(status));
    });

    stack.test('T76: a killed worker is replaced, the next call is served', async () => {
        const worker = (await stack.status()).processes.find(({ role, own }) => role === 'worker' && own);
        process.kill(worker.pid, 'SIGKILL');
        await until('another has taken its place', async () => {
            const { processes } = await stack.status();
            const workers = processes.filter(({ role, own }) => role === 'worker' && own).map(({ pid }) => pid);
            return workers.length === 2 && !workers.includes(worker.pid);
        });
        assert.equal((await stack.request({ path: '/v1/models' })).status, 200);
    });

    if (front === 'nginx')
        stack.test('nginx: an absurd length is refused before the upload, as an error object', async () => {
            const answer = await exchange(stack,
                `POST /v1/images/edits HTTP/1.1\nHost: x\nConnection: close\nContent-Length: 300000000\n\nx`, /\}\}$/);
            assert.match(answer, /^HTTP\/1\.1 413 /);
            assert.match(answer, /application\/json/);
            assert.match(answer, /penstock_body_too_large/);
        });
});
