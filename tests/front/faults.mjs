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
const wholes = {
    chat: (client) => client.chat.completions.create(chat),
    responses: (client) => client.responses.create(respond),
    images: (client) => client.images.generate(image),
};

behindEach('faults', settings, (stack) => {
    for (const [family, begin] of Object.entries(streams))
        for (const how of ['close', 'reset'])
            stack.test(`N4: ${family}: a stream cut in the middle (${how}) raises an error`, async () => {
                const client = stack.client({ mock: `${how}=1500,chunk_ms=20,size=600,events=20,partials=3` });
                await assert.rejects(async () => collect(await begin(client)), (error) => {
                    assert.match(`${error.code} ${error.message}`, /penstock_upstream_cut|broke off/);
                    return true;
                });
            });

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
