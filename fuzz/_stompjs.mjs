// Reads streams of octets with the parser of stomp.js; _peers.py says what goes in and out.
import {join} from 'node:path';
import {pathToFileURL} from 'node:url';

const folder = join(process.argv[2], 'node_modules/@stomp/stompjs/esm6');
const load = name => import(pathToFileURL(join(folder, name)));
const {Parser} = await load('parser.js');
const {FrameImpl} = await load('frame-impl.js');

function read(octets, isEscaping) {
  const frames = [];
  const parser = new Parser(raw => {
    const frame = FrameImpl.fromRawFrame(raw, isEscaping);
    const body = Buffer.from(frame.binaryBody).toString('latin1');
    frames.push([frame.command, Object.entries(frame.headers), body]);
  }, () => {});
  parser.parseChunk(octets);
  return [frames, parser._onByte !== parser._collectFrame];
}

let pending = Buffer.alloc(0);
for await (const chunk of process.stdin) {
  pending = Buffer.concat([pending, chunk]);
  // A batch: its length, then for each stream its length, an octet for 1.2 or not, and octets.
  while (pending.length >= 4 && pending.length >= 4 + pending.readUInt32BE(0)) {
    const end = 4 + pending.readUInt32BE(0);
    const answers = [];
    for (let at = 4; at < end; ) {
      const size = pending.readUInt32BE(at);
      answers.push(read(pending.subarray(at + 5, at + 5 + size), pending[at + 4] === 1));
      at += 5 + size;
    }
    process.stdout.write(JSON.stringify(answers) + '\n');
    pending = pending.subarray(end);
  }
}
