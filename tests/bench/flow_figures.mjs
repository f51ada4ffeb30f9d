// flow_figures.mjs - figures of one run from what the upstream counted in each of its seconds.
export const sum = (values) => values.reduce((all, value) => all + value, 0);
export const mean = (values) => (values.length ? sum(values) / values.length : NaN);
export const percentile = (values, part) => {
    const sorted = [...values].sort((a, b) => a - b);
    return sorted.length ? sorted[Math.floor((sorted.length - 1) * part)] : NaN;
};
export const variation = (values) => {
    const middle = mean(values);
    return middle > 0 ? Math.sqrt(mean(values.map((value) => (value - middle) ** 2))) / middle : NaN;
};

// Per second of each bin; only whole bins.
export function bins(rows, figure, size) {
    const out = [];
    for (let at = 0; at + size <= rows.length; at += size) out.push(sum(rows.slice(at, at + size).map(figure)) / size);
    return out;
}

const refusals = ['rpm', 'tpm', 'rps', 'tps', 'burst'];
const share = (rows, names) =>
    sum(rows.map((row) => sum(names.map((name) => row[name])))) / sum(rows.map((row) => row.attempts));
export const throttled = (rows) => share(rows, refusals);
export const refused = (rows) => share(rows, [...refusals, 'saturated']);
export const goodput = (rows) => mean(rows.map((row) => row.good_tokens));

// Seconds from `from` on until `span` seconds begin that bring `least` tokens a second on average.
export function secondsUntil(rows, least, from, span = 20) {
    for (let at = from; at + span <= rows.length; at++)
        if (goodput(rows.slice(at, at + span)) >= least) return at - from;
    return Infinity;
}
