// node.js FOLDER: worker threads, the crypto pool, shared memory, files, an HTTP server, name look-up and a child process;
// prints what came out, the same in every run.
const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');
const childProcess = require('child_process');
const crypto = require('crypto');
const dns = require('dns');
const fs = require('fs');
const http = require('http');
const zlib = require('zlib');

const digest = (text) => crypto.createHash('md5').update(text).digest('hex');
const times = (count, make) => Promise.all([...Array(count).keys()].map(make));

const inWorker = (number) => new Promise((done, failed) => {
  const worker = new Worker(__filename, { workerData: number + 1 });
  let message;
  worker.on('message', (text) => { message = text; });
  worker.on('error', failed);
  worker.on('exit', (code) => (code ? failed(new Error(`exit ${code}`)) : done(message)));
});

const derived = (number) => new Promise((done, failed) => {
  crypto.pbkdf2(`password ${number}`, 'salt', 3000, 32, 'sha512', (error, key) => (error ? failed(error) : done(key.toString('hex'))));
});

const counting = `const { workerData: shared } = require('worker_threads');
for (let i = 0; i < 10000; i++) Atomics.add(shared, 0, 1);
Atomics.wait(shared, 1, 0, 20);
Atomics.notify(shared, 1);`;

async function file(folder, number) {
  const name = `${folder}/${number}`;
  await fs.promises.writeFile(name, digest(`${number}`).repeat(100));
  const text = await fs.promises.readFile(name);
  await new Promise((done, failed) => {
    zlib.gzip(text, (_, packed) => zlib.gunzip(packed, (error, back) => (error || !back.equals(text) ? failed(new Error(name)) : done())));
  });
  await fs.promises.unlink(name);
}

const asked = (port, number) => new Promise((done, failed) => {
  const request = http.request({ port, host: '127.0.0.1', path: `/${number}`, method: 'POST' }, (answer) => {
    let body = '';
    answer.on('data', (part) => { body += part; });
    answer.on('end', () => (body === `/${number}${'x'.repeat(number)}` ? done() : failed(new Error(body))));
  });
  request.on('error', failed);
  request.end('x'.repeat(number));
});

async function main() {
  console.log('workers', digest((await times(12, inWorker)).join()));
  console.log('crypto', digest((await times(60, derived)).join()));
  const shared = new Int32Array(new SharedArrayBuffer(8));
  await times(4, () => new Promise((done) => { new Worker(counting, { eval: true, workerData: shared }).on('exit', done); }));
  console.log('shared', shared[0]);
  const folder = fs.mkdtempSync(`${process.argv[2]}/node-`);
  await times(200, (number) => file(folder, number));
  fs.rmdirSync(folder);
  const server = http.createServer((request, answer) => {
    let body = '';
    request.on('data', (part) => { body += part; });
    request.on('end', () => answer.end(request.url + body));
  });
  await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
  await times(300, (number) => asked(server.address().port, number));
  server.close();
  console.log('localhost', await new Promise((done) => { dns.lookup('localhost', (error) => done(!error)); }));
  const child = childProcess.spawn('sh', ['-c', 'cat; exit 3'], { stdio: ['pipe', 'pipe', 'inherit'] });
  child.stdout.on('data', (text) => console.log('child', `${text}`));
  child.on('close', (code) => console.log('status', code));
  child.stdin.end('hello');
}

if (isMainThread) {
  main();
} else {
  const hash = crypto.createHash('sha256');
  for (let i = 0; i < 20000; i++) hash.update(String(i * workerData));
  parentPort.postMessage(hash.digest('hex'));
}
