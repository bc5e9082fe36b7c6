// Receives webhooks, and prints those whose signature is right.
//
//   WEBHOOK_SECRET=whsec_… node receive.js

import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const webhook = new Webhook(process.env.WEBHOOK_SECRET);

async function receive(request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  let event;
  try {
    event = webhook.verify(Buffer.concat(chunks), request.headers);
  } catch (error) {
    response.writeHead(401).end(error.message);
    return;
  }
  console.log(request.headers["webhook-id"], event.type, event.data);
  response.writeHead(204).end();
}

createServer(receive).listen(process.env.PORT ?? 8090, "127.0.0.1");
