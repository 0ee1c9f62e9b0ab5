// Shared by all pages: the JSON document of the page, elements, and packed bytes.
const $ = id => document.getElementById(id);
const page = JSON.parse($('page').textContent);
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in element && key !== 'list') element[key] = value; else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
};
const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
// Decodes Base64 and zlib; a promise for the bytes.
function inflate(text) {
  const raw = Uint8Array.from(atob(text), character => character.charCodeAt(0));
  return new Response(new Blob([raw]).stream().pipeThrough(new DecompressionStream('deflate'))).arrayBuffer();
}
