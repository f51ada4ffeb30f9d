// faults.mjs - N4: an upstream answer that breaks off never looks complete to the official client.
import assert from 'node:assert/strict';
import { behindEach, collect } from './stage/stack.mjs';

const settings = { image: { enabled: true, max_concurrent_requests: 2 } };
const image = { model: 'gpt-image-2', prompt: 'a heron' };
const chat = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] };
const respond = { model: 'gpt-4o-mini', input: 'hello' };

const streams = {
    chat: (client) => client.chat.completions.create({ ...chat, stream: true }),
    responses: (client) => client.responses.create({ ...respond, stream: true }),
    images: (client) => client.images.generate({ ...image, stream: true, partial_images: 3 }),
};
const post = (path, body) => ({ method: 'POST', path, body: JSON.stringify({ ...body, stream: true }) });
const posts = {
    chat: post('/v1/chat/completions', chat),
    responses: post('/v1/responses', respond),
    images: post('/v1/images/generations', { ...image, partial_images: 3 }),
};
const wholes = {
    chat: (client) => client.chat.completions.create(chat),
    responses: (client) => client.responses.create(respond),
    images: (client) => client.images.generate(image),
};

behindEach('faults', settings, (stack) => {
    for (const [family, begin] of Object.entries(streams))
        for (const how of ['close', 'reset']) {
            const pace = 'seed=3,chunk_ms=20,size=600,events=20,partials=3';

            stack.test(`N4: ${family}: a stream cut between two events (${how}) raises our error`, async () => {
                const whole = await stack.request({ to: 'upstream', ...posts[family], mock: pace });
                const events = whole.body.toString().split('\n\n');
                const boundary = Buffer.byteLength(events.slice(0, 2).join('\n\n')) + 2;
                const client = stack.client({ mock: `${how}=${boundary},${pace}` });
                await assert.rejects(async () => collect(await begin(client)), (error) => {
                    assert.match(`${error.code} ${error.message}`, /penstock_upstream_cut|broke off/);
                    return true;
                });
            });

            stack.test(`N4: ${family}: a stream cut within an event (${how}) raises an error, ours comes last`, async () => {
                const mock = `${how}=1500,${pace}`;
                await assert.rejects(async () => collect(await begin(stack.client({ mock }))));
                const { body } = await stack.request({ ...posts[family], mock });
                const last = body.toString().trimEnd().split('\n\n').at(-1);
                assert.match(last, /^event: error$/m);
                assert.match(last, /"code":"penstock_upstream_cut"/);
                assert.doesNotMatch(body.toString(), /\[DONE\]/);
            });
        }

    for (const [family, begin] of Object.entries(wholes))
        stack.test(`N4: ${family}: a JSON answer cut in the middle raises an error`, async () => {
            await assert.rejects(begin(stack.client({ mock: 'close=300,size=200000' })));
            await assert.rejects(begin(stack.client({ mock: 'close=300,size=200000,chunked=1' })));
        });

    stack.test('T90: no answer at all: 502, and the client does not send a paid call again', async () => {
        const before = (await stack.stats()).images;
        await assert.rejects(wholes.images(stack.client({ mock: 'close=head', maxRetries: 2 })), (error) => {
            assert.equal(error.status, 502);
            assert.equal(error.code, 'penstock_upstream_no_answer');
            assert.equal(error.headers.get('x-should-retry'), 'false');
            return true;
        });
        assert.equal((await stack.stats()).images - before, 1);
    });

    stack.test('an upstream that is not HTTP: 502 with an error object', async () => {
        await assert.rejects(wholes.images(stack.client({ mock: 'garbage=1' })), { status: 502 });
    });

    stack.test('an error event of the upstream itself passes', async () => {
        for (const begin of Object.values(streams))
            await assert.rejects(async () => collect(await begin(stack.client({ mock: 'error_event=2,events=5' }))));
    });

    stack.test('G9: after all that no slot is held', async () => {
        await stack.untilIdle();
    });
});
