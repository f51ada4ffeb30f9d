// flow_plot.mjs - lines over time as an SVG, one panel under the other.
const colours = ['#888888', '#d62728', '#ff7f0e', '#1f77b4', '#2ca02c', '#9467bd'];
const width = 860, height = 190, left = 70, right = 110, top = 34, bottom = 30;

const escape = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const text = (x, y, words, more = '') => `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${more}>${escape(words)}</text>`;

// 1, 2 or 5 times a power of ten, so that about so many steps reach most.
function stepOf(most, steps) {
    const rough = Math.max(most, 1e-9) / steps;
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= rough);
}

function panel({ title, seconds, lines }, y0) {
    const most = Math.max(1, ...lines.flatMap(({ values }) => values));
    const x = (second) => left + (second / seconds) * (width - left - right);
    const y = (value) => y0 + top + (1 - value / most) * (height - top - bottom);
    const out = [text(left, y0 + 20, `${title}; tokens answered per second`, 'font-weight="bold"')];
    for (let value = 0, step = stepOf(most, 4); value <= most; value += step)
        out.push(`<path d="M${left} ${y(value).toFixed(1)}H${width - right}" stroke="#dddddd"/>`,
            text(left - 6, y(value) + 4, Math.round(value), 'text-anchor="end"'));
    for (let second = 0, step = stepOf(seconds, 6); second <= seconds; second += step)
        out.push(text(x(second), y0 + height - 12, `${Math.round(second)} s`, 'text-anchor="middle"'));
    lines.forEach(({ name, values }, i) => {
        const each = seconds / Math.max(1, values.length);
        const points = values.map((value, at) => `${x((at + 0.5) * each).toFixed(1)},${y(value).toFixed(1)}`);
        const colour = colours[i % colours.length];
        if (points.length) out.push(`<polyline points="${points.join(' ')}" fill="none" stroke="${colour}" stroke-width="1.6"/>`);
        out.push(text(width - right + 12, y0 + top + 12 + i * 17, name, `fill="${colour}"`));
    });
    return out.join('\n');
}

// panels: [{ title, seconds, lines: [{ name, values }] }]; the values of a line are evenly spread over the time.
export function plot(panels) {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${panels.length * height}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
${panels.map((each, i) => panel(each, i * height)).join('\n')}
</svg>
`;
}
