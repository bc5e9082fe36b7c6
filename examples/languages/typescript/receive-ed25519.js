// Receives webhooks that are signed with an ed25519 key, and prints those whose signature is right.
//
//   WEBHOOK_KEY=whpk_… node receive-ed25519.js

import { createPublicKey, verify } from "node:crypto";
import { createServer } from "node:http";

// Node reads keys in DER, where these bytes stand before the 32 of an ed25519 key (RFC 8410).
const der = Buffer.from("302a300506032b6570032100", "hex");
const bytes = Buffer.from(process.env.WEBHOOK_KEY.replace(/^whpk_/, ""), "base64");
const key = createPublicKey({ key: Buffer.concat([der, bytes]), format: "der", type: "spki" });

function isGenuine(headers, body) {
  const id = headers["webhook-id"], timestamp = headers["webhook-timestamp"];
  const age = Math.abs(Date.now() / 1000 - Number(timestamp));
  if (!(age < 300)) return false; // it may be a copy of an old request
  const signed = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body]);
  return (headers["webhook-signature"] ?? "").split(" ").some((signature) =>
    signature.startsWith("v1a,") && verify(null, signed, key, Buffer.from(signature.slice(4), "base64")));
}

async function receive(request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (!isGenuine(request.headers, body)) {
    response.writeHead(401).end();
    return;
  }
  const event = JSON.parse(body);
  console.log(request.headers["webhook-id"], event.type, event.data);
  response.writeHead(204).end();
}

createServer(receive).listen(process.env.PORT ?? 8090, "127.0.0.1");
