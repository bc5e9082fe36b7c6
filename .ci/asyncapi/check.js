// Checks documents of AsyncAPI: the document itself with AsyncAPI's own parser, then the schemas in it, which are
// of JSON Schema 2020-12, and the examples by their schemas.
//
//   node check.js asyncapi.json...
import { readFileSync } from 'node:fs';
import { Parser } from '@asyncapi/parser';
import addFormats from 'ajv-formats';
import Ajv2020 from 'ajv/dist/2020.js';

const jsonSchema = 'application/schema+json;version=draft-2020-12';
const severityOfErrors = 0;

async function mistakesIn(text) {
  const { document, diagnostics } = await new Parser().parse(text);
  const mistakes = diagnostics.filter((d) => d.severity === severityOfErrors).map((d) => `${d.path.join('/')}: ${d.message}`);
  return document ? [...mistakes, ...mistakesInSchemas(JSON.parse(text))] : [...mistakes, 'there is no document'];
}

function mistakesInSchemas(document) {
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats(ajv);
  ajv.addSchema(document, 'document', undefined, false);
  const mistakes = [];
  const check = (path, examples) => {
    try {
      const fits = ajv.compile({ $ref: `document#/${path.map((p) => p.replaceAll('~', '~0').replaceAll('/', '~1')).map(encodeURIComponent).join('/')}` });
      for (const example of examples) {
        if (!fits(example)) mistakes.push(`${path.join('/')}: an example is wrong: ${ajv.errorsText(fits.errors)}`);
      }
    } catch (e) {
      mistakes.push(`${path.join('/')}: ${e.message}`);
    }
  };
  for (const [name, component] of Object.entries(document.components.schemas)) {
    if (component.schemaFormat !== jsonSchema) continue;
    if (!ajv.validateSchema(component.schema)) mistakes.push(`components/schemas/${name}: ${ajv.errorsText()}`);
    check(['components', 'schemas', name, 'schema'], component.schema.examples ?? []);
  }
  for (const [channel, { messages }] of Object.entries(document.channels)) {
    for (const [name, { payload, examples = [] }] of Object.entries(messages)) {
      if (payload?.schemaFormat === jsonSchema) {
        check(['channels', channel, 'messages', name, 'payload', 'schema'], examples.map((e) => e.payload));
      }
    }
  }
  return mistakes;
}

for (const file of process.argv.slice(2)) {
  const mistakes = await mistakesIn(readFileSync(file, 'utf8'));
  for (const mistake of mistakes) console.error(`${file}: ${mistake}`);
  if (mistakes.length > 0) process.exitCode = 1;
  else console.log(`${file}: ok`);
}
