// ai.mjs - the AI SDK (`ai`, `@ai-sdk/openai`), and the official client beside it, on a scope with two
// upstreams: what one refuses the other answers, and what breaks off is an error in every family (B5, H3, H14).
import assert from 'node:assert/strict';
import { createOpenAI } from '@ai-sdk/openai';
import { generateImage, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { behindEach, collect, until } from './stage/stack.mjs';

// The SDK tells on the console what the tests assert.
globalThis.AI_SDK_LOG_WARNINGS = false;

const settings = {
    image: { enabled: true, max_concurrent_requests: 2 },
    source: { stream_idle_timeout_s: 1 },
    scope: { hedge_after_s: '700ms', backoff_base_s: '20ms', breaker_failures: 1000, breaker_share_calls: 100000 },
};
const prompt = 'how high is the water at the weir?';
const families = {
    chat: (openai) => openai.chat('gpt-4o-mini'),
    responses: (openai) => openai.responses('gpt-4o-mini'),
    completion: (openai) => openai.completion('gpt-3.5-turbo-instruct'),
};

// What a stream brings, part by part; onError only silences the SDK's own console line.
async function partsOf(model, options = {}) {
    const result = streamText({ model, prompt, maxRetries: 0, onError: () => {}, ...options });
    const parts = [];
    try {
        for await (const part of result.fullStream) parts.push(part);
    } catch (error) {
        parts.push({ type: 'error', error });
    }
    return parts;
}
const of = (parts, type) => parts.filter((part) => part.type === type);

behindEach('ai', settings, (stack) => {
    const openai = (mock) => createOpenAI({
        apiKey: 'sk-front-test', baseURL: `${stack.url}/v1`, headers: mock ? { 'X-Mock': mock } : {},
    });
    const bothAre = async (keys) => {
        for (const to of ['upstream', 'other']) await stack.upstreamIs(keys, to);
        for (const source of ['simulated', 'other']) stack.undrain(source);
    };
    const requests = async () => [(await stack.stats()).requests, (await stack.stats('other')).requests];

    for (const [family, model] of Object.entries(families)) {
        stack.test(`${family}: generateText, streamText`, async () => {
            await bothAre('');
            const whole = await generateText({ model: model(openai()), prompt, maxRetries: 0 });
            assert.match(whole.text, /word/);
            assert.equal(whole.finishReason, 'stop');
            assert.ok(whole.usage.totalTokens > 0);
            const parts = await partsOf(model(openai('events=20,chunk_ms=5')));
            assert.ok(of(parts, 'text-delta').length >= 20);
            assert.equal(of(parts, 'finish')[0].finishReason, 'stop');
            assert.ok(of(parts, 'finish')[0].totalUsage.totalTokens > 0);
            assert.deepEqual(await requests(), [2, 0]);
        });

        for (const error of ['openai_requests', 'openai_overloaded', 'openai_insufficient_quota'])
            stack.test(`H3: ${family}: ${error} here, success there, unseen by the client`, async () => {
                await bothAre('');
                await stack.upstreamIs(`error=${error}`);
                const whole = await generateText({ model: model(openai()), prompt, maxRetries: 0 });
                assert.match(whole.text, /^other /);
                const parts = await partsOf(model(openai()));
                assert.match(of(parts, 'text-delta')[0].text, /^other /);
                assert.equal(of(parts, 'error').length, 0);
            });

        for (const how of ['close=2600', 'reset=2600', 'stall=2600', 'garble=2600', 'error_event=6'])
            stack.test(`B5: ${family}: a stream that breaks off (${how}) is an error, never a clean end`, async () => {
                await bothAre('');
                const parts = await partsOf(model(openai(`events=60,size=100,chunk_ms=5,${how}`)));
                assert.ok(of(parts, 'text-delta').length > 0, 'it had begun');
                assert.ok(of(parts, 'error').length > 0, 'it raised an error');
                assert.equal(of(parts, 'finish').filter(({ finishReason }) => finishReason === 'stop').length, 0);
                assert.deepEqual(await requests(), [1, 0], 'H4: nothing is tried after the first content');
            });

    }

    for (const family of ['chat', 'responses']) {
        const tools = (called) => ({
            level: tool({
                description: 'the water level at a place',
                inputSchema: z.object({ place: z.string() }),
                execute: ({ place }) => {
                    called.push(place);
                    return '2.40 m';
                },
            }),
        });

        stack.test(`${family}: a tool is called, its result comes back, in text and in a stream`, async () => {
            await bothAre('');
            const model = families[family](openai('tool=level'));
            const called = [];
            const whole = await generateText({ model, prompt, tools: tools(called), stopWhen: stepCountIs(3), maxRetries: 0 });
            assert.deepEqual(called, ['weir']);
            assert.match(whole.text, /word/);
            assert.equal(whole.steps.length, 2);
            const parts = await partsOf(model, { tools: tools(called), stopWhen: stepCountIs(3) });
            assert.deepEqual(called, ['weir', 'weir']);
            assert.equal(of(parts, 'tool-result')[0].output, '2.40 m');
            assert.equal(of(parts, 'finish')[0].finishReason, 'stop');
        });

        stack.test(`H14: ${family}: one upstream hangs before its first content: the other answers`, async () => {
            await bothAre('');
            await stack.upstreamIs('prelude_ms=20000');
            const parts = await partsOf(families[family](openai()));
            assert.match(of(parts, 'text-delta')[0].text, /^other /);
            await until('the loser is cancelled', async () => (await stack.stats()).aborted === 1);
        });

        stack.test(`H6: ${family}: an abort reaches the upstream`, async () => {
            await bothAre('');
            const leaving = new AbortController();
            const result = streamText({
                model: families[family](openai('events=500,chunk_ms=50')), prompt, maxRetries: 0, onError: () => {},
                abortSignal: leaving.signal,
            });
            let seen = 0;
            for await (const part of result.fullStream)
                if (part.type === 'text-delta' && ++seen === 3) leaving.abort();
            await until('the upstream sees the close', async () => (await stack.stats()).aborted === 1);
            assert.deepEqual(await requests(), [1, 0]);
        });

        stack.test(`H3: ${family}: both refuse: the client reads the refusal as it is`, async () => {
            await bothAre('error=openai_requests,retry_after=90,retry_after_ms=90000');
            await assert.rejects(generateText({ model: families[family](openai()), prompt, maxRetries: 0 }), (error) => {
                assert.equal(error.statusCode, 429);
                assert.equal(error.isRetryable, true);
                assert.match(error.responseBody, /rate_limit_exceeded/);
                assert.ok(Number(error.responseHeaders['retry-after']) >= 80);
                return true;
            });
        });
    }

    stack.test('images: drawn, also when the first upstream fails', async () => {
        await bothAre('');
        const draw = () => generateImage({ model: openai('size=4000').image('gpt-image-2'), prompt, maxRetries: 0 });
        assert.equal((await draw()).image.base64.length, 4000);
        await stack.upstreamIs('status=500');
        assert.equal((await draw()).image.base64.length, 4000);
        assert.deepEqual(await requests(), [1, 1]);
    });

    const streams = {
        chat: (client) => client.chat.completions.create({
            model: 'gpt-4o-mini', messages: [{ role: 'user', content: prompt }], stream: true,
        }),
        responses: (client) => client.responses.create({ model: 'gpt-4o-mini', input: prompt, stream: true }),
        images: (client) => client.images.generate({ model: 'gpt-image-2', prompt, stream: true, partial_images: 3 }),
    };
    for (const [family, begin] of Object.entries(streams)) {
        stack.test(`B5: the official client: ${family}: what breaks off raises an error`, async () => {
            await bothAre('');
            // A silent image stream has at least a minute.
            const ways = ['close=2600', 'garble=2600', ...(family === 'images' ? [] : ['stall=2600'])];
            for (const how of ways) {
                const client = stack.client({ mock: `events=60,size=600,partials=6,chunk_ms=5,${how}` });
                await assert.rejects(async () => collect(await begin(client)), undefined, how);
            }
            assert.deepEqual(await requests(), [ways.length, 0]);
        });

        stack.test(`H3: the official client: ${family}: refused here, answered there`, async () => {
            await bothAre('');
            await stack.upstreamIs('error=openai_slow_down');
            assert.ok((await collect(await begin(stack.client()))).length > 2);
            assert.deepEqual(await requests(), [1, 1]);
        });
    }

    stack.test('G9: afterwards no slot is held', async () => {
        await bothAre('');
        await stack.untilIdle();
    });
});
