// estimate.mjs - input tokens estimated without a tokenizer, against real ones (F6, B5): the counts recorded
// in tests/worker/estimate_corpus.json are those of o200k_base, and what Penstock learns from one request to
// the next comes within B5 for every tokenizer here, on that corpus and on code and documents it has never
// seen. The weights of worker/token_count.c were fitted to neither. cl100k_base (2022) is much worse at Chinese
// than at English, which one ratio per model could not serve.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { encode as o200k } from 'gpt-tokenizer/encoding/o200k_base';
import { encode as cl100k } from 'gpt-tokenizer/encoding/cl100k_base';
import { inputTokens } from './stage/tokens.mjs';

const root = path.resolve(import.meta.dirname, '../..');
const tool = path.resolve(root, process.env.BUILD ?? 'build/release', 'tools/estimate_tokens');
const corpus = JSON.parse(fs.readFileSync(path.join(root, 'tests/worker/estimate_corpus.json'), 'utf8'))
    .map((row) => ({ ...row, body: JSON.parse(row.body) }));
const young = 50;

// The same order in every run.
let seed = 20;
const below = (bound) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % bound;

function files(directory, endings) {
    return fs.readdirSync(directory, { recursive: true })
        .filter((name) => endings.includes(path.extname(name)))
        .map((name) => path.join(directory, name))
        .sort();
}

// Chats about excerpts of these files.
function excerpts(kind, names, count) {
    const rows = [];

    while (rows.length < count) {
        const text = fs.readFileSync(names[below(names.length)], 'utf8');
        const length = 300 + below(4000);
        if (text.length < length) continue;
        const at = below(text.length - length + 1);
        const body = {
            model: 'm',
            messages: [
                { role: 'system', content: 'You are a careful reviewer.' },
                { role: 'user', content: `What is this?\n\n${text.slice(at, at + length).toWellFormed()}` },
            ],
        };
        rows.push({ kind, path: '/v1/chat/completions', body });
    }
    return rows;
}

function shuffled(rows) {
    for (let i = rows.length - 1; i > 0; i--) {
        const j = below(i + 1);
        [rows[i], rows[j]] = [rows[j], rows[i]];
    }
    return rows;
}

// Errors of what was predicted for each request, once there were enough before it.
function errors(rows, encode) {
    const usage = rows.map((row) => inputTokens(encode, row.body));
    const input = rows.map((row, i) => `${usage[i]} ${row.path} ${JSON.stringify(row.body)}\n`).join('');
    const { status, stdout, stderr } = spawnSync(tool, { input, encoding: 'utf8', maxBuffer: 1 << 28 });

    assert.equal(status, 0, stderr);
    const lines = stdout.trim().split('\n');
    assert.equal(lines.length, rows.length);
    return lines.map((line, i) => Math.abs(line.split(' ')[1] / usage[i] - 1)).slice(young).sort((a, b) => a - b);
}

function within(t, rows, encode, median = 0.10, p95 = 0.30) {
    const sorted = errors(rows, encode);
    const at = (share) => sorted[Math.floor((sorted.length - 1) * share)];

    t.diagnostic(`${sorted.length} requests: median ${(100 * at(0.5)).toFixed(1)} %, p95 ${(100 * at(0.95)).toFixed(1)} %`);
    assert.ok(sorted.length >= 100);
    assert.ok(at(0.5) <= median, `median ${at(0.5)}`);
    assert.ok(at(0.95) <= p95, `p95 ${at(0.95)}`);
}

test('F6 the recorded counts are those of the tokenizer', () => {
    assert.ok(corpus.length >= 150);
    for (const row of corpus) assert.equal(inputTokens(o200k, row.body), row.tokens);
});

const code = excerpts('code', [...files(path.join(root, 'worker'), ['.c', '.h']), ...files('node_modules/openai', ['.js', '.ts'])], 200);
const prose = excerpts('prose', files('node_modules', ['.md']), 200);
const several = [...corpus, ...corpus, ...corpus];

test('B5 the mixed corpus, o200k', (t) => within(t, shuffled([...several]), o200k));
test('B5 the mixed corpus, cl100k: two scripts, two ratios', (t) => within(t, shuffled([...several]), cl100k));
for (const kind of ['english', 'chinese', 'code', 'tools'])
    test(`B5 ${kind} alone, cl100k`, (t) => {
        const rows = several.filter((row) => row.kind === kind);
        within(t, shuffled([...rows, ...rows]), cl100k);
    });
for (const [name, encode] of Object.entries({ o200k, cl100k })) {
    test(`B5 code never seen, ${name}`, (t) => within(t, code, encode));
    test(`B5 documents never seen, ${name}`, (t) => within(t, prose, encode));
    test(`B5 all of it mixed, ${name}`, (t) => within(t, shuffled([...corpus, ...code, ...prose]), encode));
}
