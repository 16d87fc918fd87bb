// The conformance suite imports `globSync`, which Node.js has from 22 on, for a command that the tests do not run.
// Preloaded with `node --import`, it lets the suite start on Node.js 20.
import * as fs from 'node:fs';
import { register } from 'node:module';

const SHIM = "export * from 'node:fs'; export { default } from 'node:fs'; export const globSync = () => [];";
const HOOK = `
const shim = 'data:text/javascript,' + encodeURIComponent(${JSON.stringify(SHIM)});
export async function resolve(specifier, context, next) {
  const isSuite = specifier === 'fs' && context.parentURL?.includes('/@modelcontextprotocol/conformance/');
  return isSuite ? { shortCircuit: true, url: shim } : next(specifier, context);
}`;

if (!('globSync' in fs)) register('data:text/javascript,' + encodeURIComponent(HOOK));
