// SPDX-License-Identifier: Apache-2.0
// Hello over Node's http module. Prints `ready PORT`; ends with its standard input.
'use strict';

const http = require('http');

const server = http.createServer((request, answer) => {
    answer.writeHead(200, {'Content-Type': 'text/plain', 'Content-Length': 12});
    answer.end('Hello world!');
});

server.keepAliveTimeout = 3600000;
server.listen(0, '127.0.0.1', 4096, () => console.log(`ready ${server.address().port}`));
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
