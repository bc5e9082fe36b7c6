// node orders.js place o-17 c-1 kite; node orders.js handle NOTIFICATION o-17
import pg from 'pg';

// Stores an order and its notification, both or neither.
async function place(client: pg.Client, order: string, customer: string, product: string) {
  const payload = JSON.stringify({ order_id: order, product });
  const { rows } = await client.query("SELECT outbox_publish('order.placed', $1, $2) AS id", [customer, payload]);
  await client.query('INSERT INTO orders (id, product) VALUES ($1, $2)', [order, product]);
  return `${rows[0].id} ${payload}`;
}

// Writes an invoice once, however often the notification is delivered.
async function handle(client: pg.Client, id: string, order: string) {
  const { rows } = await client.query("SELECT outbox_first('invoices', $1) AS first", [id]);
  if (rows[0].first) await client.query('INSERT INTO invoices (order_id) VALUES ($1)', [order]);
  return rows[0].first ? 'first' : 'seen before';
}

const [task, ...args] = process.argv.slice(2) as [string, string, string, string];
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  await client.query('BEGIN');
  const result = task === 'place' ? await place(client, ...args) : await handle(client, args[0], args[1]);
  await client.query('COMMIT');
  console.log(result);
} finally {
  await client.end(); // without a commit, closing the connection rolls back
}
