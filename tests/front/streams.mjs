// streams.mjs - B4, G15: each event reaches the client when the upstream sends it.
import assert from 'node:assert/strict';
import { assertOneByOne, behindEach, collect, inThreeTries } from './stage/stack.mjs';

const settings = { image: { enabled: true, max_concurrent_requests: 4 } };
const pauseMs = 200;

behindEach('streams', settings, (stack) => {
    stack.test('B4: partial images arrive one by one', () => inThreeTries(async () => {
        const items = await collect(await stack.client({ mock: `chunk_ms=${pauseMs},size=2000` }).images.generate({
            model: 'gpt-image-2', prompt: 'a heron', stream: true, partial_images: 3,
        }));
        assert.deepEqual(items.map(({ item }) => item.type), [
            ...Array(3).fill('image_generation.partial_image'), 'image_generation.completed',
        ]);
        assertOneByOne(items, pauseMs);
    }));

    stack.test('B4, T25: partial images of 8 MB each arrive one by one, whole', () => inThreeTries(async () => {
        const size = 8 * 1024 * 1024;
        const items = await collect(await stack.client({ mock: `chunk_ms=600,size=${size}` }).images.generate({
            model: 'gpt-image-2', prompt: 'a heron', stream: true, partial_images: 2,
        }));
        assert.deepEqual(items.map(({ item }) => item.b64_json.length), [size, size, size]);
        assertOneByOne(items, 600);
    }));

    stack.test('B4: chat deltas arrive one by one', () => inThreeTries(async () => {
        const items = await collect(await stack.client({ mock: `chunk_ms=${pauseMs},events=5` }).chat.completions
            .create({ model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }], stream: true }));
        const deltas = items.filter(({ item }) => item.choices[0]?.delta.content);
        assert.ok(deltas.length >= 5);
        assertOneByOne(deltas, pauseMs);
    }));

    stack.test('B4: response events arrive one by one', () => inThreeTries(async () => {
        const items = await collect(await stack.client({ mock: `chunk_ms=${pauseMs},events=5` }).responses
            .create({ model: 'gpt-4o-mini', input: 'hello', stream: true }));
        const deltas = items.filter(({ item }) => item.type === 'response.output_text.delta');
        assert.ok(deltas.length >= 5);
        assertOneByOne(deltas, pauseMs);
    }));

    stack.test('T45: an answer in JSON to a request for a stream passes as JSON', async () => {
        const { status, headers, body } = await stack.request({
            method: 'POST', path: '/v1/images/generations', mock: 'stream=0',
            body: JSON.stringify({ model: 'gpt-image-2', prompt: 'a heron', stream: true }),
        });
        assert.equal(status, 200);
        assert.match(headers['content-type'], /^application\/json/);
        assert.equal(JSON.parse(body).data.length, 1);
    });
});
