// outage.mjs - what callers get while Penstock itself does not answer: the web server's own 502 or 503 is an error
// object that SDKs understand and do not answer with a second call; what Penstock and upstreams say stays as it is.
import assert from 'node:assert/strict';
import { behindEach, until } from './stage/stack.mjs';
import { stopProcess } from './stage/servers.mjs';

behindEach('outage', { penstock: { workers: 1 } }, (stack, front) => {
    const ask = (options) => stack.request({
        method: 'POST', path: '/v1/chat/completions', body: JSON.stringify({ model: 'm', messages: [] }), ...options,
    });
    const unanswered = front === 'apache' ? 503 : 502; // as the server says it when its backend ends
    const assertObject = ({ status, headers, body }) => {
        assert.equal(status, unanswered);
        assert.match(headers['content-type'], /^application\/json/);
        const { error } = JSON.parse(body);
        assert.deepEqual(Object.keys(error), ['message', 'type', 'param', 'code']);
        assert.equal(error.type, 'server_error');
        assert.equal(error.code, 'penstock_no_answer');
        assert.equal(headers['x-should-retry'], 'false');
    };

    for (const status of [502, 503, 504])
        stack.test(`an upstream's own ${status} passes as it is`, async () => {
            const mock = `status=${status}`;
            const [passed, direct] = [await ask({ mock }), await ask({ mock, to: 'upstream' })];
            assert.equal(passed.status, status);
            assert.deepEqual(passed.body, direct.body);
            assert.equal(passed.headers['content-type'], direct.headers['content-type']);
            assert.equal(passed.headers['x-should-retry'], direct.headers['x-should-retry']);
        });

    stack.test("an upstream's page of HTML passes as it is", async () => {
        const { status, headers, body } = await ask({ mock: 'status=502,dialect=html' });
        assert.equal(status, 502);
        assert.match(headers['content-type'], /^text\/html/);
        assert.match(String(body), /</);
    });

    stack.test("Penstock's own 502 passes as it is", async () => {
        const { status, body } = await ask({ mock: 'close=head' });
        assert.equal(status, 502);
        assert.equal(JSON.parse(body).error.code, 'penstock_upstream_no_answer');
    });

    stack.test('the worker dies in the middle of a call: an error object, and the call is not made again', async () => {
        const before = (await stack.stats()).requests;
        const client = stack.client({ mock: 'delay_ms=20000', maxRetries: 2 });
        const answer = client.chat.completions.create({ model: 'm', messages: [] });
        answer.catch(() => {});
        await until('the upstream has it', async () => (await stack.stats()).requests === before + 1);
        const worker = (await stack.status()).processes.find(({ role }) => role === 'worker');
        process.kill(worker.pid, 'SIGKILL');
        await assert.rejects(answer, (error) => {
            assert.equal(error.status, unanswered);
            assert.equal(error.code, 'penstock_no_answer');
            return true;
        });
        assert.equal((await stack.stats()).requests, before + 1);
    });

    // Last: nothing serves afterwards.
    stack.test('Penstock is stopped: an error object on every path', async () => {
        await stopProcess(stack.penstock);
        for (const path of ['/v1/chat/completions', '/v1/images/generations', '/v1/models'])
            assertObject(await ask({ path }));
        await assert.rejects(stack.client().models.list(), (error) => /^penstock_/.test(error.code));
    });
});
