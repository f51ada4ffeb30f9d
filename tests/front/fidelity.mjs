// fidelity.mjs - B6: with the default configuration (gate off) Penstock changes nothing: a corpus of
// requests is sent to the simulated upstream directly and through each web server, and both ends compared.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { behindEach, picture } from './stage/stack.mjs';

const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
const json = { 'content-type': 'application/json' };

// ---- end-to-end headers that must arrive with the same value -----------------------------------------
// Not listed, because Penstock decides on them: cookies of the operator's site (never sent on),
// accept-encoding (the answer is read on its way), and what belongs to one connection.
const requestHeaders = [
    'authorization', 'content-type', 'content-encoding', 'accept', 'accept-language', 'user-agent',
    'openai-organization', 'openai-project', 'openai-beta', 'idempotency-key',
    'x-stainless-lang', 'x-stainless-retry-count', 'x-stainless-timeout', 'x-stainless-helper-method',
    'x-goog-api-key', 'x-api-key', 'x-dashscope-async', 'traceparent', 'x-unknown', 'range', 'if-none-match',
];
const responseHeaders = [
    'content-type', 'content-encoding', 'cache-control', 'retry-after', 'retry-after-ms', 'location',
    'x-ratelimit-limit-requests', 'x-ratelimit-remaining-requests', 'x-ratelimit-reset-requests',
    'x-ratelimit-limit-tokens', 'x-ratelimit-remaining-tokens', 'x-ratelimit-reset-tokens',
    'x-padding', 'x-unknown-header',
];
const manyHeaders = {
    authorization: 'Bearer sk-with-=/+._~-signs',
    accept: 'application/json',
    'accept-language': 'de, en;q=0.5',
    'user-agent': 'OpenAI/JS 7.59.0',
    'openai-organization': 'org-1',
    'openai-project': 'proj_1',
    'openai-beta': 'assistants=v2',
    'idempotency-key': 'stainless-node-retry-0c8f',
    'x-stainless-lang': 'js',
    'x-stainless-retry-count': '0',
    'x-stainless-timeout': '600',
    'x-stainless-helper-method': 'stream',
    'x-goog-api-key': 'g-1',
    'x-api-key': 'a-1',
    'x-dashscope-async': 'enable',
    traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    'x-unknown': 'kept, as "it" is; even\tthis',
    range: 'bytes=0-99',
    'if-none-match': '"tag"',
};

// ---- multipart, written byte by byte so that nothing "corrects" it -----------------------------------
function multipart(boundary, parts, { type = `multipart/form-data; boundary=${boundary}`, preamble = '', epilogue = '' } = {}) {
    const pieces = [Buffer.from(preamble)];
    for (const { head, content } of parts)
        pieces.push(Buffer.from(`--${boundary}\r\n${head}\r\n\r\n`), Buffer.from(content), Buffer.from('\r\n'));
    pieces.push(Buffer.from(`--${boundary}--\r\n${epilogue}`));
    return { headers: { 'content-type': type }, body: Buffer.concat(pieces) };
}
const field = (name, content) => ({ head: `Content-Disposition: form-data; name="${name}"`, content });
const file = (name, filename, content, type = 'image/png') => ({
    head: `Content-Disposition: form-data; name="${name}"; filename="${filename}"\r\nContent-Type: ${type}`, content,
});
const edits = '/v1/images/edits';

// name, method, path, headers, body; chunked: without a length, in pieces.
const requests = [
    { name: 'GET', path: '/v1/models?limit=5' },
    { name: 'no User-Agent', path: '/v1/models', bare: true },
    { name: 'all headers', path: '/v1/models', headers: manyHeaders },
    { name: 'query kept as written', path: '/v1/files?after=a%20b%2Bc+d&empty=&flag&q=x?y/z&e=%C3%BC' },
    { name: 'encoded path', path: '/v1/models/ft%3Agpt-4o%3Aorg%3A%3Aid%20x' },
    { name: 'colon in the path', method: 'POST', path: '/v1/models/gemini-x:generateContent?alt=sse', headers: json, body: '{}' },
    { name: 'unknown path', path: '/v1/some/thing/unknown' },
    { name: 'DELETE', method: 'DELETE', path: '/v1/files/file-1' },
    { name: 'PUT', method: 'PUT', path: '/v1/things/1', headers: json, body: '{"a":1}' },
    { name: 'PATCH', method: 'PATCH', path: '/v1/things/1', headers: json, body: '{"a":2}' },
    { name: 'POST with an empty body', method: 'POST', path: '/v1/responses/resp_1/cancel', headers: { 'content-length': '0' } },
    { name: 'JSON', method: 'POST', path: '/v1/chat/completions', headers: { ...json, ...manyHeaders },
        body: '{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello"}]}' },
    { name: 'JSON of odd looks', method: 'POST', path: '/v1/chat/completions', headers: { 'content-type': 'application/json; charset=utf-8' },
        body: ' \n{ "mod\\u0065l" : "gpt-4o" ,"model":"b", "x":[1e999,-0.0,{"":null}],"t":"\\ud83d\\ude00 😀 \\/" }\r\n\t ' },
    { name: 'JSON that is none', method: 'POST', path: '/v1/chat/completions', headers: json, body: '{"model": "gpt-4o", ' },
    { name: 'JSON with a byte order mark', method: 'POST', path: '/v1/responses', headers: json, body: '\ufeff{"model":"gpt-4o"}' },
    { name: 'deep JSON', method: 'POST', path: '/v1/responses', headers: json, body: `${'['.repeat(5000)}${']'.repeat(5000)}` },
    { name: 'large JSON', method: 'POST', path: '/v1/responses', headers: json,
        body: JSON.stringify({ model: 'gpt-4o', input: picture(3000000).toString('base64') }) },
    { name: 'JSON, chunked', method: 'POST', path: '/v1/images/generations', headers: json, chunked: true,
        body: JSON.stringify({ model: 'gpt-image-2', prompt: 'x'.repeat(100000) }) },
    { name: 'request for a stream', method: 'POST', path: '/v1/chat/completions', headers: { ...json, accept: 'text/event-stream' },
        body: '{"model":"gpt-4o-mini","stream":true,"stream_options":null,"messages":[]}' },
    { name: 'JSON, gzip', method: 'POST', path: '/v1/responses', headers: { ...json, 'content-encoding': 'gzip' },
        body: gzipSync('{"model":"gpt-4o","input":"hello"}') },
    { name: 'no content type', method: 'POST', path: '/v1/chat/completions', body: '{"model":"gpt-4o"}' },
    { name: 'bytes', method: 'POST', path: '/v1/audio/raw', headers: { 'content-type': 'application/octet-stream' }, body: picture(70001) },
    { name: 'multipart', method: 'POST', path: edits,
        ...multipart('xyz', [field('model', 'gpt-image-2'), file('image', 'a.png', picture(100000)), field('prompt', 'a heron')]) },
    { name: 'multipart, chunked', method: 'POST', path: edits, chunked: true,
        ...multipart('xyz', [file('image[]', 'a.png', picture(2000000)), file('image[]', 'b.png', picture(1000000, 2)), field('model', 'gpt-image-2')]) },
    { name: 'multipart: names, quotes, raw UTF-8, repeated fields', method: 'POST', path: edits,
        ...multipart('b', [file('image', 'Graureiher ü 鷺 ☂.png', 'a'), file('image', 'a \\"b\\"; c.png', 'b'), file('image', '', 'c', 'x/y'),
            file('mask[]', 'm.png', 'd'), field('image[0]', 'text'), field('n', '1'), field('n', '2')]) },
    { name: 'multipart: quoted boundary, preamble, epilogue', method: 'POST', path: edits,
        ...multipart('a b:=?', [field('prompt', '--a b:=\r\n--not the boundary'), field('model', '')],
            { type: 'multipart/form-data; charset=utf-8; boundary="a b:=?"', preamble: 'nothing\r\n', epilogue: 'nothing either' }) },
    { name: 'multipart without an end', method: 'POST', path: edits, headers: { 'content-type': 'multipart/form-data; boundary=x' },
        body: '--x\r\nContent-Disposition: form-data; name="model"\r\n\r\ngpt-im' },
    { name: 'multipart without a boundary', method: 'POST', path: edits, headers: { 'content-type': 'multipart/form-data' }, body: '--x\r\n' },
];

const chat = (extra = {}) => JSON.stringify({ model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hi' }], ...extra });
const image = (extra = {}) => JSON.stringify({ model: 'gpt-image-2', prompt: 'a heron', ...extra });
const answer = (name, mock, path, body) => ({ name, mock, method: 'POST', path, headers: json, body });

// What the upstream answers (seed= makes it the same each time).
const answers = [
    answer('chat JSON', 'size=500', '/v1/chat/completions', chat()),
    answer('chat stream', 'events=40,comments=2', '/v1/chat/completions', chat({ stream: true })),
    answer('chat stream with an end mark', 'events=3,done=1', '/v1/chat/completions', chat({ stream: true })),
    answer('chat stream with an error in it', 'events=10,error_event=4', '/v1/chat/completions', chat({ stream: true })),
    answer('chat stream with a broken event', 'events=10,bad_event=4', '/v1/chat/completions', chat({ stream: true })),
    answer('response stream with a picture', 'partials=2,size=200000', '/v1/responses',
        JSON.stringify({ model: 'gpt-4o', input: 'a heron', stream: true, tools: [{ type: 'image_generation' }] })),
    answer('image JSON', 'size=3000000', '/v1/images/generations', image({ n: 2 })),
    answer('image JSON, chunked', 'size=100000,chunked=1', '/v1/images/generations', image()),
    answer('image JSON, ended by the close', 'size=100000,no_length=1', '/v1/images/generations', image()),
    answer('image stream of long lines', 'partials=2,size=3000000', '/v1/images/generations', image({ stream: true })),
    answer('gzip below and above 1 KB', 'gzip=1,size=100', '/v1/chat/completions', chat()),
    answer('gzip above 1 KB', 'gzip=1,size=50000', '/v1/images/generations', image()),
    answer('another content type', 'ctype=text/plain', '/v1/chat/completions', chat()),
    answer('rate headers', 'limit_requests=60,remaining_requests=59,reset_requests=1s,limit_tokens=9,remaining_tokens=8,reset_tokens=6m0s',
        '/v1/chat/completions', chat()),
    answer('odd headers', 'odd_headers=1', '/v1/chat/completions', chat()),
    answer('redirect', 'redirect=1', '/v1/chat/completions', chat()),
    answer('long head', 'head_bytes=6000', '/v1/chat/completions', chat()),
    answer('early hints', 'interim=2', '/v1/chat/completions', chat()),
    answer('201', 'status=201', '/v1/chat/completions', chat()),
    ...[400, 401, 402, 403, 404, 409, 413, 422, 500, 503].map((status) =>
        answer(`${status}`, `status=${status}`, '/v1/images/generations', image())),
    answer('429', 'status=429,code=rate_limit_exceeded,retry_after=7,retry_after_ms=6500', '/v1/images/generations', image()),
    ...['azure', 'dashscope', 'compatible', 'gemini', 'anthropic', 'html', 'plain', 'empty'].map((dialect) =>
        answer(`429 in the ${dialect} dialect`, `status=429,dialect=${dialect}`, '/v1/images/generations', image())),
];

const pick = (headers, names) => Object.fromEntries(names.filter((name) => name in headers).map((name) => [name, headers[name]]));

function send(stack, to, { method, path, headers = {}, body, chunked, bare, mock }) {
    const half = body === undefined ? 0 : Math.floor(Buffer.byteLength(body) / 2);
    const bytes = body === undefined ? undefined : Buffer.from(body);
    const length = bytes && !chunked ? { 'content-length': bytes.length } : {};
    return stack.request({
        to, method, path,
        mock,
        headers: { ...(bare ? {} : { 'user-agent': 'fidelity' }), ...headers, ...length },
        body: chunked ? [bytes.subarray(0, half), bytes.subarray(half)] : bytes,
    });
}

async function arrivedAt(stack, to, request) {
    const { status, body } = await send(stack, to, { ...request, mock: 'echo=1' });
    assert.equal(status, 200, body.toString().slice(0, 300));
    const { method, path, query, sha256: hash, body_bytes, headers } = JSON.parse(body);
    return { method, path, query, hash, body_bytes, headers: pick(headers, requestHeaders) };
}

async function answeredFrom(stack, to, request) {
    const { status, headers, complete, body } = await send(stack, to, { ...request, mock: `seed=7,${request.mock}` });
    assert.ok(complete);
    // The id DashScope's errors carry is another for each call.
    const same = body.length > 10000 ? body : body.toString('latin1').replace(/"request_id":"[^"]*"/, '');
    return { status, bytes: body.length, hash: sha256(same), headers: pick(headers, responseHeaders) };
}

behindEach('fidelity', {}, (stack) => {
    for (const request of requests)
        stack.test(`B6: the request arrives unchanged: ${request.name}`, async () => {
            const expected = await arrivedAt(stack, 'upstream', request);
            const given = request.body === undefined ? '' : request.body;
            assert.equal(expected.hash, sha256(given), 'the direct call itself');
            assert.deepEqual(await arrivedAt(stack, 'front', request), expected);
        });

    for (const request of answers)
        stack.test(`B6: the answer arrives unchanged: ${request.name}`, async () => {
            const expected = await answeredFrom(stack, 'upstream', request);
            assert.deepEqual(await answeredFrom(stack, 'front', request), expected);
        });
});
