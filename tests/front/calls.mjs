// calls.mjs - every kind of call the official client makes, through each web server, with the gate on.
import assert from 'node:assert/strict';
import { createReadStream, writeFileSync } from 'node:fs';
import path from 'node:path';
import { toFile } from 'openai';
import { behindEach, collect, picture, until } from './stage/stack.mjs';

const settings = { image: { enabled: true, max_concurrent_requests: 4, overflow_mode: 'wait' } };
const prompt = 'a heron on a weir';

behindEach('calls', settings, (stack) => {
    stack.test('generate: JSON, two pictures, usage, our x-request-id', async () => {
        const { data, response } = await stack.client({ mock: 'size=100000' }).images
            .generate({ model: 'gpt-image-2', prompt, n: 2, size: '1024x1024' }).withResponse();
        assert.equal(data.data.length, 2);
        for (const { b64_json } of data.data) assert.equal(b64_json.length, 100000);
        assert.ok(data.usage.total_tokens > 0);
        assert.ok(response.headers.get('x-request-id'));
        assert.match(response.headers.get('x-upstream-request-id'), /^req_sim_/);
    });

    stack.test('generate: 20 MB of JSON arrive whole', async () => {
        const { data } = await stack.client({ mock: 'size=20000000' }).images
            .generate({ model: 'gpt-image-2', prompt });
        assert.equal(data[0].b64_json.length, 20000000);
    });

    stack.test('edit: a streamed file (chunked, no length) arrives whole', async () => {
        const file = path.join(stack.directory, 'heron.png');
        writeFileSync(file, picture(3000000));
        const echo = await stack.client({ mock: 'echo=1' }).images
            .edit({ model: 'gpt-image-2', prompt, image: createReadStream(file) });
        assert.equal(echo.method, 'POST');
        assert.equal(echo.path, '/v1/images/edits');
        assert.match(echo.headers['content-type'], /^multipart\/form-data; ?boundary=/);
        assert.ok(echo.body_bytes > 3000000);
        // Exactly one framing (T21).
        assert.notEqual('content-length' in echo.headers, 'transfer-encoding' in echo.headers);

        const edited = await stack.client().images
            .edit({ model: 'gpt-image-2', prompt, image: createReadStream(file) });
        assert.equal(edited.data.length, 1);
    });

    stack.test('edit: toFile (with Content-Length)', async () => {
        const image = await toFile(picture(50000), 'heron.png', { type: 'image/png' });
        const echo = await stack.client({ mock: 'echo=1' }).images.edit({ model: 'gpt-image-2', prompt, image });
        assert.ok(echo.body_bytes > 50000);
        assert.equal(echo.headers['content-length'], String(echo.body_bytes));
    });

    stack.test('edit: several images and a mask', async () => {
        const image = await Promise.all([1, 2, 3].map((seed) =>
            toFile(picture(200000, seed), `${seed}.png`, { type: 'image/png' })));
        const mask = await toFile(picture(1000), 'mask.png', { type: 'image/png' });
        const body = { model: 'gpt-image-2', prompt, image, mask };
        const echo = await stack.client({ mock: 'echo=1' }).images.edit(body);
        assert.ok(echo.body_bytes > 601000);
        assert.equal((await stack.client().images.edit(body)).data.length, 1);
    });

    stack.test('edit: a raw UTF-8 file name', async () => {
        const image = await toFile(picture(1000), 'Graureiher ü 鷺 ☂ "a\\b";.png', { type: 'image/png' });
        const edited = await stack.client().images.edit({ model: 'gpt-image-2', prompt, image });
        assert.equal(edited.data.length, 1);
    });

    stack.test('edit: streamed, with a streamed answer', async () => {
        const file = path.join(stack.directory, 'streamed.png');
        writeFileSync(file, picture(500000));
        const items = await collect(await stack.client().images.edit({
            model: 'gpt-image-2', prompt, image: createReadStream(file), stream: true, partial_images: 2,
        }));
        assert.deepEqual(items.map(({ item }) => item.type),
            ['image_edit.partial_image', 'image_edit.partial_image', 'image_edit.completed']);
    });

    stack.test('chat: whole and streamed', async () => {
        const body = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] };
        const whole = await stack.client().chat.completions.create(body);
        assert.ok(whole.choices[0].message.content.length > 0);
        const items = await collect(await stack.client({ mock: 'events=20' }).chat.completions
            .create({ ...body, stream: true, stream_options: { include_usage: true } }));
        assert.ok(items.length >= 20);
        assert.ok(items.some(({ item }) => item.usage));
    });

    stack.test('responses: whole, and a stream in which the image tool draws', async () => {
        const whole = await stack.client().responses.create({ model: 'gpt-4o-mini', input: 'hello' });
        assert.equal(whole.status, 'completed');
        const items = await collect(await stack.client({ mock: 'partials=2,size=10000' }).responses.create({
            model: 'gpt-4o-mini', input: prompt, tools: [{ type: 'image_generation', partial_images: 2 }],
            stream: true,
        }));
        const events = items.map(({ item }) => item);
        assert.equal(events.filter((e) => e.type === 'response.image_generation_call.partial_image').length, 2);
        const done = events.find((e) =>
            e.type === 'response.output_item.done' && e.item.type === 'image_generation_call');
        assert.ok(done.item.result.length > 0);
        assert.equal(events.at(-1).type, 'response.completed');
    });

    stack.test('embeddings and models', async () => {
        const client = stack.client();
        const embedded = await client.embeddings.create({
            model: 'text-embedding-3-small', input: 'hello', encoding_format: 'float',
        });
        assert.ok(embedded.data[0].embedding.length > 0);
        assert.ok((await client.models.list()).data.length > 0);
    });

    stack.test('Authorization reaches the upstream', async () => {
        const echo = await stack.client({ mock: 'echo=1' }).chat.completions
            .create({ model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] });
        assert.equal(echo.headers.authorization, 'Bearer sk-front-test');
    });

    stack.test('G14: the ledger counts the pictures that were drawn', async () => {
        const client = stack.client();
        const image = await toFile(picture(1000), 'heron.png', { type: 'image/png' });
        const tools = [{ type: 'image_generation', partial_images: 2 }];
        await client.images.generate({ model: 'gpt-image-count-json', prompt, n: 2 });
        await collect(await client.images
            .generate({ model: 'gpt-image-count-stream', prompt, stream: true, partial_images: 3 }));
        await client.images.edit({ model: 'gpt-image-count-edit', prompt, image });
        await client.responses.create({ model: 'count-responses', input: prompt, tools });
        await collect(await client.responses
            .create({ model: 'count-responses-stream', input: prompt, tools, stream: true }));
        await client.chat.completions
            .create({ model: 'count-chat', messages: [{ role: 'user', content: 'hello' }] });
        const counted = await until('the ledger has all six', () => {
            const rows = stack.ledger("SELECT model_asked, images FROM calls WHERE model_asked LIKE '%count-%'");
            return rows.length === 6 && Object.fromEntries(rows.map((row) => [row.model_asked, row.images]));
        });
        assert.deepEqual(counted, {
            'gpt-image-count-json': 2,
            'gpt-image-count-stream': 1,
            'gpt-image-count-edit': 1,
            'count-responses': 1,
            'count-responses-stream': 1,
            'count-chat': 0,
        });
    });

    stack.test('G9: afterwards no slot is held', async () => {
        await stack.untilIdle();
    });
});
