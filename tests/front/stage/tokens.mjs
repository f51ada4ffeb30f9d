// tokens.mjs - the input tokens of a request as an upstream would count them, with a real tokenizer: what
// the estimates of worker/estimate.c are measured against. Messages cost what OpenAI says they do; tools
// and calls are told to the model as JSON, as the chat templates of open models do it.

const plain = { disallowedSpecial: new Set() };

// encode: of gpt-tokenizer/encoding/NAME. body: of a chat completion or a response.
export function inputTokens(encode, body) {
    const tokens = (text) => encode(text, plain).length;
    const content = (value) => {
        if (typeof value === 'string') return tokens(value);
        return (value ?? []).reduce((sum, part) => sum + (typeof part.text === 'string' ? tokens(part.text) : 0), 0);
    };
    const message = (item) => {
        let sum = 3 + tokens(item.role ?? 'tool') + content(item.content);
        for (const { function: called } of item.tool_calls ?? [])
            sum += tokens(JSON.stringify({ name: called.name, arguments: '' })) + tokens(called.arguments);
        return sum;
    };
    const items = body.messages ?? (typeof body.input === 'string' ? [{ role: 'user', content: body.input }] : body.input);
    let sum = 3;

    for (const item of items ?? []) sum += message(item);
    if (body.instructions) sum += message({ role: 'system', content: body.instructions });
    if (body.tools?.length) sum += 10 + tokens(JSON.stringify(body.tools));
    return sum;
}
