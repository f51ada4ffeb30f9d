// fronts.mjs - configurations of the web servers: by themselves, in front of the floor, in front of
// Penstock. In front of Penstock they use the examples of conf/ as they are; only sockets are replaced.
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { isRoot, root, webUser } from '../front/stage/servers.mjs';

function example(name, directory, { socket, statusSocket }) {
    const text = readFileSync(path.join(root, 'conf', name), 'utf8')
        .replaceAll('/run/penstock/penstock.sock', socket)
        .replaceAll('/run/penstock/status.sock', statusSocket);
    const copy = path.join(directory, `example.${name}`);
    writeFileSync(copy, text);
    return copy;
}

// ---- nginx -------------------------------------------------------------------------------------------
const nginxKinds = {
    // Streams are passed on at once; image answers in memory, none in a file.
    plain: ({ upstreamPort }) => `
        location / {
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_buffer_size 16k;
            proxy_buffers 8 16k;
            proxy_pass http://upstream;
        }
        location /v1/images/ {
            proxy_buffers 16 64k;
            proxy_buffer_size 16k;
            proxy_busy_buffers_size 128k;
            proxy_max_temp_file_size 0;
            proxy_request_buffering off;
            proxy_pass http://upstream;
        }
    }
    upstream upstream {
        server 127.0.0.1:${upstreamPort};
        keepalive 256;
        keepalive_requests 1000000;
    `,
    floor: ({ socket }) => `
        location / {
            include fastcgi_params;
            fastcgi_buffering off;
            fastcgi_request_buffering off;
            fastcgi_buffer_size 16k;
            fastcgi_buffers 8 16k;
            fastcgi_read_timeout 300s;
            fastcgi_pass unix:${socket};
        }`,
    penstock: ({ directory, ...at }) => `include ${example('nginx.conf', directory, at)};`,
    // Not a front server but TLS for the upstream.
    tls: ({ directory, upstreamPort }) => `
        ssl_certificate ${directory}/tls.pem;
        ssl_certificate_key ${directory}/tls.key;
        location / {
            proxy_buffering off;
            proxy_pass http://127.0.0.1:${upstreamPort};
        }`,
};

export function nginx(kind, at) {
    const { directory, port } = at;
    copyFileSync('/etc/nginx/fastcgi_params', path.join(directory, 'fastcgi_params'));
    const file = path.join(directory, 'nginx.conf');
    writeFileSync(file, `
daemon off;
${isRoot ? `user ${webUser};` : ''}
worker_processes 2;
worker_rlimit_nofile 20000;
pid ${directory}/nginx.pid;
error_log ${directory}/nginx.error.log warn;
events { worker_connections 9000; }
http {
    access_log off;
    client_body_temp_path ${directory}/nginx.body;
    proxy_temp_path ${directory}/nginx.proxy;
    fastcgi_temp_path ${directory}/nginx.fastcgi;
    uwsgi_temp_path ${directory}/nginx.uwsgi;
    scgi_temp_path ${directory}/nginx.scgi;
    client_max_body_size 64m;
    client_body_buffer_size 64k;
    keepalive_requests 1000000;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_read_timeout 300s;
    server {
        listen 127.0.0.1:${port} backlog=8192${kind === 'tls' ? ' ssl' : ''};
        ${nginxKinds[kind](at)}
    }
}
`);
    return { command: ['/usr/sbin/nginx', '-p', directory, '-e', `${directory}/nginx.error.log`, '-c', file] };
}

// ---- Apache ------------------------------------------------------------------------------------------
const apacheKinds = {
    plain: ({ upstreamPort }) =>
        `ProxyPass / http://127.0.0.1:${upstreamPort}/ enablereuse=on keepalive=on flushpackets=on`,
    floor: ({ socket }) => `ProxyPass / "unix:${socket}|fcgi://floor/" flushpackets=on`,
    penstock: ({ directory, ...at }) => `Include "${example('apache.conf', directory, at)}"`,
};

// A thread for each stream: a thousand streams want more than the 150 of Debian's default.
export function apache(kind, at) {
    const { directory, port } = at;
    const modules = ['mpm_event', 'authz_core', 'authz_host', 'env', 'proxy', 'proxy_http', 'proxy_fcgi'];
    const file = path.join(directory, 'apache.conf');
    writeFileSync(file, `
ServerRoot "${directory}"
DefaultRuntimeDir "${directory}"
PidFile "${directory}/apache.pid"
ErrorLog "${directory}/apache.error.log"
LogLevel warn
ServerName localhost
${isRoot ? `User ${webUser}\nGroup ${webUser}` : ''}
Listen 127.0.0.1:${port}
ListenBacklog 8192
${modules.map((m) => `LoadModule ${m}_module /usr/lib/apache2/modules/mod_${m}.so`).join('\n')}
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 60
ServerLimit 11
ThreadsPerChild 100
ThreadLimit 100
StartServers 2
MinSpareThreads 100
MaxSpareThreads 1100
MaxRequestWorkers 1100
AsyncRequestWorkerFactor 4
ProxyTimeout 300
<VirtualHost 127.0.0.1:${port}>
    ${apacheKinds[kind](at)}
</VirtualHost>
`);
    return { command: ['/usr/sbin/apache2', '-DFOREGROUND', '-f', file] };
}

// ---- Caddy -------------------------------------------------------------------------------------------
const caddyKinds = {
    plain: ({ port, upstreamPort }) => `
http://127.0.0.1:${port} {
	reverse_proxy 127.0.0.1:${upstreamPort} {
		flush_interval -1
		transport http {
			keepalive_idle_conns_per_host 256
		}
	}
}`,
    floor: ({ port, socket }) => `
http://127.0.0.1:${port} {
	reverse_proxy unix/${socket} {
		transport fastcgi
	}
}`,
    penstock: ({ directory, port, ...at }) => {
        const copy = example('Caddyfile', directory, at);
        writeFileSync(copy, readFileSync(copy, 'utf8').replaceAll('llm.example.org', `http://127.0.0.1:${port}`));
        return `import ${copy}`;
    },
};

export function caddy(kind, at) {
    const file = path.join(at.directory, 'Caddyfile');
    writeFileSync(file, `{
	admin off
	auto_https off
	log {
		level ERROR
	}
}
${caddyKinds[kind](at)}
`);
    const home = { HOME: at.directory, XDG_DATA_HOME: at.directory, XDG_CONFIG_HOME: at.directory };
    return { command: ['/usr/bin/caddy', 'run', '--adapter', 'caddyfile', '--config', file], env: home };
}

// ---- HAProxy -----------------------------------------------------------------------------------------
const haproxyKinds = {
    plain: () => 'maxconn 9000 pool-max-conn 256',
    // Eight at a time, the others queue; who hangs up leaves the queue.
    limit8: () => 'maxconn 8',
};

export function haproxy(kind, { directory, port, upstreamPort }) {
    mkdirSync(directory, { recursive: true });
    const file = path.join(directory, 'haproxy.cfg');
    writeFileSync(file, `
global
    nbthread 2
    maxconn 9000
defaults
    mode http
    option http-keep-alive
    option http-no-delay
    option redispatch
    http-reuse always
    timeout connect 5s
    timeout client 300s
    timeout server 300s
    timeout http-keep-alive 60s
    timeout queue 300s
listen llm
    bind 127.0.0.1:${port} backlog 8192
    ${kind === 'plain' ? '' : 'option abortonclose'}
    server upstream 127.0.0.1:${upstreamPort} ${haproxyKinds[kind]()}
`);
    return { command: ['/usr/sbin/haproxy', '-db', '-f', file] };
}
