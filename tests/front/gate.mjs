// gate.mjs - the limit on image calls as the official client meets it: refusals, retries, the queue.
import assert from 'node:assert/strict';
import { behindEach, inThreeTries, pause, until } from './stage/stack.mjs';

const image = { model: 'gpt-image-2', prompt: 'a heron' };
const chat = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] };

// An image call that holds a slot until the upstream answers; { done } is its promise.
async function occupy(stack, delayMs) {
    const { images } = await stack.stats();
    const done = stack.client({ mock: `delay_ms=${delayMs}` }).images.generate(image);
    done.catch(() => {});
    await until('the slot is taken', async () => (await stack.status()).slots.used === 1);
    await until('the upstream draws', async () => (await stack.stats()).images > images); // a moment later
    return { done };
}

async function failureOf(promise) {
    try {
        await promise;
    } catch (error) {
        return error;
    }
    return assert.fail('the call did not fail');
}

behindEach('gate, reject', { image: { enabled: true, max_concurrent_requests: 1 } }, (stack) => {
    stack.test('G5: over the limit: 429 at once, as an error the client understands', async () => {
        const first = await occupy(stack, 1500);
        const begin = performance.now();
        const error = await failureOf(stack.client().images.generate(image));
        assert.ok(performance.now() - begin < 700, 'refused at once');
        assert.equal(error.constructor.name, 'RateLimitError');
        assert.equal(error.status, 429);
        assert.equal(error.code, 'penstock_image_limit');
        assert.equal(error.type, 'rate_limit_error');
        assert.equal(error.param, null);
        assert.match(error.message, /image concurrency limit/);
        const seconds = Number(error.headers.get('retry-after'));
        assert.ok(seconds >= 1 && seconds <= 60, `Retry-After: ${seconds}`);
        assert.ok(Number(error.headers.get('retry-after-ms')) > 0);
        assert.ok(error.requestID);
        await first.done;
    });

    stack.test('G5: a streamed request over the limit gets the same 429, no stream', async () => {
        const first = await occupy(stack, 1500);
        const error = await failureOf(stack.client().images.generate({ ...image, stream: true }));
        assert.equal(error.status, 429);
        assert.equal(error.code, 'penstock_image_limit');
        await first.done;
    });

    stack.test('G5: the client retries by Retry-After and gets its picture', async () => {
        const first = await occupy(stack, 1200);
        const before = await stack.stats();
        const { data } = await stack.client({ maxRetries: 4 }).images.generate(image);
        assert.equal(data.length, 1);
        await first.done;
        const after = await stack.stats();
        assert.equal(after.images - before.images, 1, 'refused tries never reached the upstream');
    });

    stack.test('G2, G4: other calls pass while every slot is taken', async () => {
        const first = await occupy(stack, 1500);
        const begin = performance.now();
        assert.ok((await stack.client().chat.completions.create(chat)).choices.length > 0);
        assert.ok((await stack.client().models.list()).data.length > 0);
        assert.ok(performance.now() - begin < 1000);
        await first.done;
    });

    stack.test('T92: refusals and failures of the upstream pass as they are', async () => {
        const limited = await failureOf(stack.client({
            mock: 'status=429,code=rate_limit_exceeded,type=requests,retry_after=7',
        }).images.generate(image));
        assert.equal(limited.status, 429);
        assert.equal(limited.code, 'rate_limit_exceeded');
        assert.equal(limited.headers.get('retry-after'), '7');
        const broken = await failureOf(stack.client({ mock: 'status=500' }).images.generate(image));
        assert.equal(broken.status, 500);
        const invalid = await failureOf(stack.client({ mock: 'status=400' }).chat.completions.create(chat));
        assert.equal(invalid.status, 400);
        assert.equal(invalid.type, 'invalid_request_error');
    });

    stack.test('T72: an aborted stream is closed upstream and its slot is free', async () => {
        await stack.untilIdle();
        const before = await stack.stats();
        const stream = await stack.client({ mock: 'chunk_ms=100,partials=200,size=1000' }).images
            .generate({ ...image, stream: true, partial_images: 3 });
        let seen = 0;
        let begin;
        for await (const event of stream) {
            assert.equal(event.type, 'image_generation.partial_image');
            if (++seen === 3) {
                begin = performance.now();
                stream.controller.abort();
                break;
            }
        }
        await until('the upstream sees the close', async () => (await stack.stats()).aborted > before.aborted, {
            timeoutMs: 5000,
        });
        console.log(`    ${stack.front}: upstream closed ${Math.round(performance.now() - begin)} ms after the abort`);
        await stack.untilIdle();
        assert.equal((await stack.client().images.generate(image)).data.length, 1);
    });

    stack.test('G9: after all that no slot is held', async () => {
        await stack.untilIdle();
        const [last] = await until('the ledger has it', () => stack.ledger(
            "SELECT count(*) AS open FROM waits WHERE state IN ('waiting', 'granted')"));
        assert.equal(last.open, 0);
    });
});

const waiting = { enabled: true, max_concurrent_requests: 1, overflow_mode: 'wait', wait_timeout_seconds: 20 };

behindEach('gate, wait', { image: waiting }, (stack) => {
    stack.test('G6: three calls, one slot: all succeed, first come first served, one at a time', async () => {
        await stack.resetStats();
        const calls = [];
        for (let i = 0; i < 3; i++) {
            calls.push(stack.client({ mock: 'delay_ms=400' }).images.generate(image));
            await until(`call ${i} has arrived`, async () => {
                const { slots, queue } = await stack.status();
                return slots.used + queue.length === i + 1;
            });
        }
        const waitingRows = await until('a waiting row in the ledger', () => {
            const rows = stack.ledger("SELECT call_id FROM waits WHERE state = 'waiting'");
            return rows.length > 0 && rows;
        }, { timeoutMs: 1000 });
        assert.ok(waitingRows.length <= 2);
        for (const call of calls) assert.equal((await call).data.length, 1);
        const rows = await until('the ledger has all three', () => {
            const done = stack.ledger(
                "SELECT arrival_seq, grant_seq, wait_ms FROM waits WHERE state = 'done' ORDER BY arrival_seq");
            return done.length === 3 && done;
        });
        const grants = rows.map(({ grant_seq }) => grant_seq);
        assert.deepEqual(grants, [...grants].sort((a, b) => a - b), 'order of grants is order of arrivals');
        assert.equal((await stack.stats()).images_open_max, 1);
    });

    stack.test('G6: a queue time-out is a 429 that says so', async () => {
        const first = await occupy(stack, 2500);
        // The client's own patience caps the wait: X-Stainless-Timeout is in seconds.
        const error = await failureOf(stack.client({ timeout: 30000, headers: { 'X-Stainless-Timeout': '1' } })
            .images.generate(image));
        assert.equal(error.status, 429);
        assert.equal(error.code, 'penstock_image_queue_timeout');
        await first.done;
    });

    for (const [what, body] of [['JSON', image], ['a stream', { ...image, stream: true }]])
        stack.test(`G8, B4: a client that leaves while it waits for ${what} frees its place in time`, () =>
            inThreeTries(async () => {
                await stack.untilIdle();
                await stack.resetStats();
                const bookedBefore = booked(stack);
                const first = await occupy(stack, 2000);
                const leaving = new AbortController();
                stack.client().images.generate(body, { signal: leaving.signal }).catch(() => {});
                await until('it waits', async () => (await stack.status()).queue.length === 1);
                await pause(200);
                const begin = performance.now();
                leaving.abort();
                await until('its place is free', async () => (await stack.status()).queue.length === 0,
                    { everyMs: 2 });
                const tookMs = Math.round(performance.now() - begin);
                console.log(`    ${stack.front}, ${what}: place free ${tookMs} ms after the client left`);
                await first.done;
                await stack.untilIdle();
                assert.equal((await stack.stats()).images, 1, 'the call of the client that left is not made');
                await until('it is booked', () => booked(stack) === bookedBefore + 1);
                // 250 ms is the bound; the rest is for asking the status page.
                assert.ok(tookMs < 250 + 100, `place free after ${tookMs} ms`);
            }));
});

function booked(stack) {
    return stack.ledger("SELECT count(*) AS n FROM waits WHERE state = 'client_gone'")[0].n;
}
